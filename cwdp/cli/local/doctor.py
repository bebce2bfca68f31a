"""`cwdp doctor`: what works on this host, what does not, why, and what to do."""

from pathlib import Path

import click
import msgspec
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from cwdp.agent.config import DEFAULT_CONFIG
from cwdp.cli.output import emit
from cwdp.doctor.examination import examine
from cwdp.doctor.reading.host import read_facts
from cwdp.doctor.result import Result, Verdict, gravest

STYLES: dict[Verdict, str] = {"ok": "green", "warn": "yellow", "fail": "red"}
SUMMARY: dict[Verdict, str] = {
    "ok": "all is well",
    "warn": "cwdp works here, with less than all it can do",
    "fail": "cwdp does not work here as it is configured",
}


@click.command()
@click.option("--config", type=click.Path(path_type=Path), default=DEFAULT_CONFIG, show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_context
def doctor(ctx: click.Context, config: Path, as_json: bool) -> None:
    """Say what works on this host, what does not, why, and what to do.

    Nothing is changed. The exit status is 1 where something fails.
    """
    facts = read_facts(config)
    results = examine(facts)
    verdict = gravest(results)
    found = {
        "host": facts.host,
        "verdict": verdict,
        "checks": [msgspec.structs.asdict(one) for one in results],
    }
    emit(found, as_json=as_json, render=lambda: _render(facts.host, results, verdict))
    ctx.exit(int(verdict == "fail"))


def _render(host: str, results: list[Result], verdict: Verdict) -> RenderableType:
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 1))
    for column in ("", "check", "of"):
        table.add_column(column, no_wrap=True)
    table.add_column("what", overflow="fold")
    for one in results:
        what = Text(one.what)
        if one.next_step:
            what.append(f"\n-> {one.next_step}", "bold" if one.verdict == "fail" else "")
        table.add_row(Text(one.verdict, STYLES[one.verdict]), one.name, one.of, what)
    return Group(table, Text(f"{host}: {SUMMARY[verdict]}", STYLES[verdict]))
