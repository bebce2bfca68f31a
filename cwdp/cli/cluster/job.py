"""`cwdp job`: jobs as the manager knows them, by their processes or from when their queue pairs send."""

from itertools import pairwise
from statistics import median
from typing import Any

import click
from rich.console import Group, RenderableType
from rich.text import Text

from cwdp.cli import tables
from cwdp.cli.client import ManagerClient
from cwdp.cli.reading import reading, show

SHOWN_ITERATIONS = 8


@click.command()
@click.argument("name", required=False)
@reading
def job(*, name: str | None, url: str | None, as_json: bool, watch: float | None) -> None:
    """Show jobs whose queue pairs send in bursts: members, iterations, who makes the others wait; or all of the job NAME."""
    client = ManagerClient(url)
    query = {"job": name} if name else {}
    render = _one if name else _all
    show(lambda: client.get("/v1/iterations", query), render, as_json=as_json, watch_s=watch)


def _all(answer: Any) -> RenderableType:
    table = tables.new_table("job", "NICs", "pairs", "sends as", "iteration", "last", "sure", "waits for")
    for row in answer["jobs"]:
        table.add_row(
            Text(row["name"]),
            str(row["nics"]),
            str(row["queue_pairs"]),
            ", ".join(row["kinds"]) or tables.NONE,
            tables.duration(row["period_ns"]),
            tables.duration(row["last_iteration_ns"]),
            _sure(row),
            _stragglers(row),
        )
    text = f"{answer['job_count']} jobs; pairs: queue pairs, one way; iteration: the mean of 30 s, or since it changed"
    text += "; sure: that it is one job, told: by its processes; waits for: who is late, by how much, and how many more are"
    return Group(table, Text(text, style="dim"))


def _one(answer: Any) -> RenderableType:
    (row,) = answer["jobs"]
    table = tables.new_table("NIC", "late", "bytes")
    for rank in row["ranks"]:
        late = tables.duration(rank["late_ns"])
        table.add_row(
            rank["nic"], Text(late, "yellow" if rank["straggler"] else ""), tables.quantity(rank["bytes"])
        )
    return Group(Text("\n".join(_said(row))), table, Text("late: of an iteration, the median", style="dim"))


def _said(row: Any) -> list[str]:
    """What there is to say of a job, in lines."""
    groups = "; ".join(f"{one['kind']} of {', '.join(one['nics'])}" for one in row["communicators"])
    lines = [f"{row['name']}: {row['nics']} NICs, {row['queue_pairs']} queue pairs, {_whence(row)}", groups]
    if row["processes"]:
        lines.append("processes: " + ", ".join(f"{one['host']}/{one['pid']}" for one in row["processes"]))
    lasted = [later - earlier for earlier, later in pairwise(row["starts_ns"])]
    if lasted:
        latest = " ".join(tables.duration(each) for each in lasted[-SHOWN_ITERATIONS:])
        lines.append(
            f"{len(lasted)} iterations, median {tables.duration(round(median(lasted)))}; the last: {latest}"
        )
    lines += [
        f"from {tables.duration(one['before_ns'])} to {tables.duration(one['after_ns'])} an iteration"
        for one in row["changes"]
    ]
    return lines


def _stragglers(row: Any) -> Text:
    """The latest, and how many others are late."""
    late = row["stragglers"]
    if not late:
        return Text(tables.NONE)
    others = f" +{len(late) - 1}" if len(late) > 1 else ""
    return Text(f"{late[0]['nic']} {tables.duration(late[0]['late_ns'])}{others}", "yellow")


def _sure(row: Any) -> str:
    return f"{row['confidence']:.0%}" if row["is_inferred"] else "told"


def _whence(row: Any) -> str:
    return f"inferred, sure to {_sure(row)}" if row["is_inferred"] else "as its processes tell"
