"""`cwdp audit`: the group of its commands."""

import asyncio
from pathlib import Path
from typing import get_args

import click
import msgspec

from cwdp.audit.collecting import Wanted, collect
from cwdp.cli.audit.facts import render
from cwdp.cli.output import emit
from cwdp.errors import ConfigError
from cwdp.shared.audit.facts import HostFacts, Role

ROLES = click.option(
    "--role",
    "given",
    multiple=True,
    metavar="NIC=ROLE",
    help="Have a NIC be `back`, `front` or neither (`eth0=`); may come several times.",
)


@click.group()
def audit() -> None:
    """What hosts tell of themselves: hardware, firmware, settings."""


@audit.command()
@click.option(
    "--root",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="A recorded tree, instead of this host.",
)
@ROLES
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def facts(root: Path | None, given: tuple[str, ...], as_json: bool) -> None:
    """Show all facts of this host; nothing is judged or changed."""
    found = _collected(Wanted(host=root.name if root else "", root=str(root or ""), roles=_roles(given)))
    emit(msgspec.to_builtins(found), as_json=as_json, render=lambda: render(found))


@audit.command()
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
@ROLES
def record(folder: Path, given: tuple[str, ...]) -> None:
    """Write all that facts of this host are read from to FOLDER, for `cwdp audit facts --root`."""
    if folder.exists() and any(folder.iterdir()):
        raise ConfigError(f"{folder} is not empty", "name a folder that is not there yet")
    folder.mkdir(parents=True, exist_ok=True)
    found = _collected(Wanted(record=str(folder.resolve()), roles=_roles(given)))
    for area, why in found.troubles.items():
        click.echo(f"{area}: {why}", err=True)
    click.echo(f"wrote {folder}: what {len(found.subjects)} subjects are read from")


def _collected(wanted: Wanted) -> HostFacts:
    return asyncio.run(collect(wanted))


def _roles(given: tuple[str, ...]) -> dict[str, Role]:
    pairs = [one.partition("=") for one in given]
    known = get_args(Role)
    for name, between, role in pairs:
        if not name or not between or role not in known:
            raise ConfigError(f"{name}{between}{role} is no role of a NIC", "such as --role eth0=front")
    return {name: msgspec.convert(role, type=Role) for name, _, role in pairs}
