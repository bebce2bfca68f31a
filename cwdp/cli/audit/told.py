"""`cwdp audit facts`, `record`: what a host tells of itself, and what that is read from."""

import asyncio
from pathlib import Path

import click
import msgspec

from cwdp.audit.collecting import Wanted, collect
from cwdp.cli.audit.facts import render
from cwdp.cli.audit.options import json_option, role_option, roles_of, root_option
from cwdp.cli.output import emit
from cwdp.errors import ConfigError
from cwdp.shared.audit.facts import HostFacts


@click.command()
@root_option
@role_option
@json_option
def facts(root: Path | None, given: tuple[str, ...], as_json: bool) -> None:
    """Show all facts of this host; nothing is judged or changed."""
    found = _collected(Wanted(host=root.name if root else "", root=str(root or ""), roles=roles_of(given)))
    emit(msgspec.to_builtins(found), as_json=as_json, render=lambda: render(found))


@click.command()
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
@role_option
def record(folder: Path, given: tuple[str, ...]) -> None:
    """Write all that facts of this host are read from to FOLDER, for `cwdp audit facts --root`."""
    if folder.exists() and any(folder.iterdir()):
        raise ConfigError(f"{folder} is not empty", "name a folder that is not there yet")
    folder.mkdir(parents=True, exist_ok=True)
    found = _collected(Wanted(record=str(folder.resolve()), roles=roles_of(given)))
    for area, why in found.troubles.items():
        click.echo(f"{area}: {why}", err=True)
    click.echo(f"wrote {folder}: what {len(found.subjects)} subjects are read from")


def _collected(wanted: Wanted) -> HostFacts:
    return asyncio.run(collect(wanted))
