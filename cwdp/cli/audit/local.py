"""`cwdp audit local`: this host's facts, or a recorded host's, held against the checks without a manager."""

import asyncio
from pathlib import Path

import click

from cwdp.audit.collecting import Wanted, collect
from cwdp.cli.audit.options import Judged, judging, role_option, roles_of, root_option
from cwdp.cli.audit.results import rendered
from manager.audit.checks.loading import load_checks
from manager.audit.judging.judge import judge
from manager.audit.today import today
from manager.config import DEFAULT_CHECKS
from manager.view.audit_views import audit_json


@click.command()
@root_option
@role_option
@click.option(
    "--checks",
    "paths",
    type=click.Path(path_type=Path, exists=True),
    multiple=True,
    help=f"A file of checks, or a folder of such, besides the default ones; {DEFAULT_CHECKS} unless given.",
)
@judging
def local(*, root: Path | None, given: tuple[str, ...], paths: tuple[Path, ...], judged: Judged) -> None:
    """Hold this host, or a recorded one, against what is expected; no manager is asked, nothing is changed.

    What is expected to be the same on like hosts is not judged, as there is one. The exit status is that of `cwdp audit run`.
    """
    checks = load_checks(_files(paths))
    wanted = Wanted(host=root.name if root else "", root=str(root or ""), roles=roles_of(given))
    facts = asyncio.run(collect(wanted))
    audit = judge(checks, [facts], today=today())
    judged.tell(
        audit,
        audit_json(audit),
        lambda: rendered(audit),
        title=f"Audit of {facts.host}",
        ended_s=facts.taken_s,
    )


def _files(paths: tuple[Path, ...]) -> list[Path]:
    """The files that are named, and those of folders that are."""
    found: list[Path] = []
    for path in paths or (Path(DEFAULT_CHECKS),):
        found += sorted(path.glob("*.toml")) if path.is_dir() else [path] if path.exists() else []
    return found
