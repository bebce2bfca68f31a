"""`cwdp link`: queues, loads and faults inside the fabric."""

from typing import Any

import click
from rich.console import Group, RenderableType
from rich.text import Text

from cwdp.cli import tables
from cwdp.cli.client import ManagerClient
from cwdp.cli.output import rows_that_fit
from cwdp.cli.reading import reading, show
from cwdp.cli.times import at_option, shown_time

NANOSECONDS_A_MICROSECOND = 1e3
STYLES = {"ok": "green", "full": "yellow"}
SORTS = ("trouble", "queue", "load", "name")


@click.command()
@click.option("--sort", type=click.Choice(SORTS), default="trouble", show_default=True)
@click.option(
    "--limit", type=click.IntRange(min=0), help="Show so many links, 0 for all; else what fits the terminal."
)
@at_option
@reading
def link(
    *,
    sort: str,
    limit: int | None,
    at_s: float | None,
    url: str | None,
    as_json: bool,
    watch: float | None,
) -> None:
    """Show every link of the fabric, each way by itself, and what is wrong.

    The queue is the time that packets wait for the link, inferred from the delays of the paths over it. Load is what
    queue pairs send over it, and what share that is of what it can carry; a capacity in brackets is that of its like,
    as the link itself has not been seen full. With --at it is shown as it was, over 10 s within the last hour, over
    1 min within the last day, over 10 min within the last 14 days.
    """
    client = ManagerClient(url)
    if limit is None:
        limit = 0 if as_json else rows_that_fit(lines_each=1)
    query: dict[str, str | int] = {"sort": sort, "limit": limit}
    if at_s is not None:
        query["at"] = str(at_s)
    show(lambda: client.get("/v1/link", query), _table, as_json=as_json, watch_s=watch)


def _table(answer: Any) -> RenderableType:
    table = tables.new_table("path", "state", "p50 us", "p99 us", "bit/s", "of", "share", "loss")
    for row in answer["links"]:
        table.add_row(
            f"{row['a']} > {row['b']}",
            Text(row["state"].replace("_", " "), STYLES.get(row["state"], "red")),
            _microseconds(row["queue_p50_ns"]),
            _microseconds(row["queue_p99_ns"]),
            tables.quantity(row["load_bps"]),
            _capacity(row),
            tables.share(row["share"]),
            tables.share(row["loss"]),
        )
    when = "last 5 s"
    if "from_s" in answer:
        when = f"{answer['lasts_s']:g} s from {shown_time(answer['from_s'])}"
    notes = [f"{len(answer['links'])} of {answer['link_count']} links, each way by itself; {when}"]
    notes += [finding_text(finding) for finding in answer["findings"]]
    return Group(table, *(Text(note, style="dim" if i == 0 else "red") for i, note in enumerate(notes)))


def _capacity(row: Any) -> str:
    if row["capacity_bps"] is not None:
        return tables.quantity(row["capacity_bps"])
    likely = row["likely_capacity_bps"]
    return tables.NONE if likely is None else f"({tables.quantity(likely)})"


def _microseconds(ns: int | None) -> str:
    return tables.NONE if ns is None else f"{ns / NANOSECONDS_A_MICROSECOND:,.0f}"


def finding_text(finding: Any) -> str:
    """A finding on one line."""
    names = " or ".join(subject["name"] for subject in (finding["subject"], *finding["also"]))
    return f"{finding['kind'].replace('_', ' ')}: {names} ({finding['confidence']:.0%}): {'; '.join(finding['evidence'])}"
