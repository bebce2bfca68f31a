"""`cwdp why`: what makes jobs slow, each with what speaks for it."""

from typing import Any

import click
from rich.console import Group, RenderableType
from rich.text import Text

from cwdp.cli import tables
from cwdp.cli.client import ManagerClient
from cwdp.cli.reading import reading, show
from cwdp.cli.times import shown_time

SHOWN_PAST = 5


@click.command()
@click.argument("name", required=False, metavar="[JOB]")
@reading
def why(*, name: str | None, url: str | None, as_json: bool, watch: float | None) -> None:
    """Say why jobs are slow, or why JOB is: the cause, what it costs an iteration, and what speaks for it.

    JOB is what `cwdp job` calls it. A cause is told once all looks of a second have found it.
    """
    client = ManagerClient(url)
    query = {"job": name} if name else {}
    show(lambda: client.get("/v1/causes", query), _shown, as_json=as_json, watch_s=watch)


def _shown(answer: Any) -> RenderableType:
    holds = [row for row in answer["causes"] if row["end_s"] is None]
    past = [row for row in answer["causes"] if row["end_s"] is not None][:SHOWN_PAST]
    parts: list[RenderableType] = [Text(_said(job, holds)) for job in answer["jobs"]]
    if not answer["jobs"]:
        parts.append(Text("no job sends in bursts; `cwdp job` lists those that do"))
    if holds:
        parts += [_table(holds), *_evidence(holds)]
    if past:
        parts += [Text("over:"), _table(past)]
    return Group(*parts)


def _said(job: Any, holds: list[Any]) -> str:
    """How a job does, in a line."""
    line = f"{job['name']}: an iteration takes {tables.duration(job['iteration_ns'])}"
    usual_ns, now_ns = job["usual_ns"], job["iteration_ns"]
    if now_ns is None or usual_ns is None:
        line = f"{job['name']}: too few iterations yet to say"
    elif now_ns > 1.01 * usual_ns:
        line += f", {tables.duration(usual_ns)} at its best of late"
    mine = [row for row in holds if job["name"] in row["jobs"]]
    return line if mine else f"{line}; nothing is known that makes it slower"


def _table(rows: list[Any]) -> RenderableType:
    """Causes that hold, or that are over: of these how long they lasted stands in place of how sure they are."""
    is_over = rows[0]["end_s"] is not None
    table = tables.new_table(
        "no.", "job", "cause", "where", "costs", "lasted" if is_over else "certain", "since"
    )
    for row in rows:
        lasted = tables.duration(round((row["end_s"] - row["start_s"]) * 1e9)) if is_over else ""
        table.add_row(
            str(row["number"]),
            Text(", ".join(row["jobs"])),
            Text(row["kind"], "" if is_over else "red"),
            Text(row["subject"]),
            tables.duration(row["costs_ns"]),
            lasted or f"{row['confidence']:.0%}",
            shown_time(row["start_s"]),
        )
    return table


def _evidence(rows: list[Any]) -> list[Text]:
    return [Text(f"{row['number']}: {said}", "dim") for row in rows for said in _said_of(row)]


def _said_of(row: Any) -> list[str]:
    """What speaks for a cause, and what the planner has done about it."""
    avoided = [f"the planner sends nothing over {link} where there are others" for link in row["avoided"]]
    return [*row["evidence"], *avoided, *map(_acted, row["acted"])]


def _acted(acted: Any) -> str:
    before, after = tables.duration(acted["before_ns"]), tables.duration(acted["after_ns"])
    return f"the planner moved {acted['moved']} queue pairs of {acted['job']}: an iteration took {before}, and {after} since"
