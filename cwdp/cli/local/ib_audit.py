"""`cwdp ib audit`: what is amiss in the InfiniBand subnet of this host, without a manager."""

from collections import Counter

import click
from rich.console import Group, RenderableType
from rich.text import Text

from cwdp.cli import tables
from cwdp.cli.local.ib_reading import asking, reading_options
from cwdp.cli.output import emit
from cwdp.errors import CwdpError
from cwdp.ib.snapshot import snapshot
from cwdp.ib.sweep import sweep
from cwdp.ib.tables import read_tables
from cwdp.shared.ib.names import Names
from manager.audit import summary
from manager.ib.audit import CHECKS, Finding, findings_of, in_words

MOST_SHOWN = 10
"""Findings of a check that are shown one by one; `--json` has all."""


@click.command()
@click.option("--strict", is_flag=True, help="Warnings fail too.")
@reading_options
def audit(*, strict: bool, dev: str, port: int, as_json: bool) -> None:
    """Say what is amiss: links slower than both ends could, ports that are not active, LMC 0, names twice, uneven routes."""
    try:
        with asking(dev, port) as asker:
            found = sweep(asker)
            subnet = snapshot(found, read_tables(asker, found))
    except CwdpError as error:
        error.exit_status = summary.INCOMPLETE
        raise
    findings = findings_of(subnet, Names(subnet))
    about = f"{len(subnet.guids)} nodes, {len(subnet.links)} links"
    emit(
        {
            "nodes": len(subnet.guids),
            "links": len(subnet.links),
            "findings": [one._asdict() for one in findings],
        },
        as_json=as_json,
        render=lambda: _render(findings, about),
    )
    is_bad = any(strict or one.verdict == "fail" for one in findings)
    click.get_current_context().exit(summary.FAILED if is_bad else 0)


def _render(findings: list[Finding], about: str) -> RenderableType:
    if not findings:
        return Text(f"{about}: nothing amiss by {len(CHECKS)} checks", "green")
    table = tables.new_table("verdict", "check", "where", "what")
    shown: Counter[str] = Counter()
    for one in findings:
        shown[one.check] += 1
        if shown[one.check] <= MOST_SHOWN:
            style = "red" if one.verdict == "fail" else "yellow"
            table.add_row(Text(one.verdict, style), one.check, Text(in_words(one.about)), Text(one.found))
    more = [
        Text(f"and {count - MOST_SHOWN} more by {check}", "dim")
        for check, count in shown.items()
        if count > MOST_SHOWN
    ]
    return Group(Text(about, "dim"), table, *more)
