"""`cwdp owd`: the one-way delay of every path."""

from typing import Any

import click
from rich.console import Group, RenderableType
from rich.text import Text

from cwdp.cli import tables
from cwdp.cli.client import ManagerClient
from cwdp.cli.output import rows_that_fit
from cwdp.cli.reading import reading, show


@click.command()
@click.option("--src", default="", metavar="HOST[/NIC]", help="Only paths from here.")
@click.option("--dst", default="", metavar="HOST[/NIC]", help="Only paths to there.")
@click.option("--sort", type=click.Choice(["worst", "name"]), default="worst", show_default=True)
@click.option(
    "--limit", type=click.IntRange(min=0), help="Show so many paths, 0 for all; else what fits the terminal."
)
@reading
def owd(
    *,
    src: str,
    dst: str,
    sort: str,
    limit: int | None,
    url: str | None,
    as_json: bool,
    watch: float | None,
) -> None:
    """Show the one-way delay of every path, there (>) and back (<), over the last seconds."""
    client = ManagerClient(url)
    if limit is None:
        limit = 0 if as_json else rows_that_fit(lines_each=2)
    query: dict[str, str | int] = {"src": src, "dst": dst, "sort": sort, "limit": limit}
    show(lambda: client.get("/v1/owd", query), table, as_json=as_json, watch_s=watch)


def table(answer: Any) -> RenderableType:
    """One row per path; delays there over those back."""
    table = tables.new_table("path", "port", "loss", "queued", "min", "p50", "p99", "bound")
    for row in answer["paths"]:
        table.add_row(
            f"{row['src']} > {row['dst']}",
            f"{row['sport']}\n{row['reply_sport']}",
            tables.share(row["loss"]),
            tables.share(row["queued_share"]),
            *(_both(row, quantile) for quantile in ("min", "p50", "p99")),
            tables.duration(row["bound_ns"]),
        )
    shown, count = len(answer["paths"]), answer["path_count"]
    note = f"{shown} of {count} paths, last {answer['window_s']:g} s; first line there, second line back"
    return Group(table, Text(note, style="dim"))


def _both(row: Any, quantile: str) -> str:
    return f"{tables.duration(row[f'fwd_{quantile}_ns'])}\n{tables.duration(row[f'rev_{quantile}_ns'])}"
