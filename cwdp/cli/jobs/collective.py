"""`cwdp collective`: the last collectives of programs that have loaded the plug-in for NCCL and RCCL, or that uprobes see."""

from typing import Any

import click
from rich.console import Group, RenderableType
from rich.text import Text

from cwdp.cli import tables
from cwdp.cli.client import ManagerClient
from cwdp.cli.reading import reading, show


@click.command()
@click.option("--job", default="", help="Of this job only, as `cwdp job` names it.")
@click.option("--slowest", is_flag=True, help="Those that took longest first, not the latest.")
@click.option("--limit", type=click.IntRange(0), default=20, show_default=True, help="How many; 0 for all.")
@reading
def collective(
    *, job: str, slowest: bool, limit: int, url: str | None, as_json: bool, watch: float | None
) -> None:
    """Show the last collectives: how long each took, which rank was last, and what that one waited for."""
    client = ManagerClient(url)
    query = {"job": job, "sort": "slowest" if slowest else "latest", "limit": str(limit)}
    show(lambda: client.get("/v1/collectives", query), _table, as_json=as_json, watch_s=watch)


def _table(answer: Any) -> RenderableType:
    table = tables.new_table(
        "job", "function", "seq", "bytes", "begin", "lasted", "ranks", "last", "late", "waited", "for"
    )
    newest_ns = max((row["start_ns"] for row in answer["collectives"]), default=0)
    for row in answer["collectives"]:
        known = f"{row['ranks_told']}/{row['ranks']}" if row["ranks"] else str(row["ranks_told"])
        table.add_row(
            Text(row["job"] or tables.NONE),
            row["function"],
            str(row["seq"]),
            tables.quantity(row["bytes"]),
            f"-{tables.duration(newest_ns - row['start_ns'])}",
            Text(_lasted(row), _style(row)),
            known,
            Text(tables.NONE if row["is_enqueued"] else f"{row['last_rank']} on {row['last_host']}"),
            tables.NONE if row["is_enqueued"] else tables.duration(row["late_ns"]),
            tables.duration(row["wait_ns"]),
            row["wait"] or tables.NONE,
        )
    text = f"{answer['count']} collectives; begin: before the newest; enqueued: seen by uprobes, its end is not known; ranks: that have told, of how many; "
    text += "last: the rank whose data came last, and how late after the first; waited: each of its operations, on average"
    return Group(table, Text(text, style="dim"))


def _lasted(row: Any) -> str:
    if row["is_enqueued"]:
        return "enqueued"
    lasted = tables.duration(row["lasted_ns"])
    return lasted if row["is_over"] else f"{lasted} so far"


def _style(row: Any) -> str:
    if row["is_enqueued"]:
        return "dim"
    if not row["is_over"]:
        return "red"
    return "yellow" if row["is_slow"] else ""
