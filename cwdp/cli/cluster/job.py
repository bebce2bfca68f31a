"""`cwdp job`: jobs as the manager knows them, by their processes or from when their queue pairs send."""

import re
import sys
from itertools import pairwise
from statistics import median
from typing import Any

import click
from rich.console import Group, RenderableType
from rich.text import Text

from cwdp.cli import tables
from cwdp.cli.chrome_trace import chrome_trace, left_out
from cwdp.cli.client import ManagerClient
from cwdp.cli.output import progress
from cwdp.cli.reading import reading, show

SHOWN_ITERATIONS = 8
LONGEST_TRACE_NS = 300_000_000_000
_SPAN = re.compile(r"(\d{1,6}(?:\.\d{1,3})?)(ms|s)")


class _Span(click.ParamType[int]):
    """How long a trace is to be, in ns."""

    name = "span"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """What a text stands for."""
        found = _SPAN.fullmatch(str(value).strip())
        span_ns = 0 if found is None else round(float(found[1]) * {"ms": 1e6, "s": 1e9}[found[2]])
        if not 10**6 <= span_ns <= LONGEST_TRACE_NS:
            self.fail(
                f"{value!r} is no span from 1ms to 300s, which is as long as bursts are kept.", param, ctx
            )
        return span_ns


@click.command()
@click.argument("name", required=False)
@click.option(
    "--trace",
    "trace_ns",
    type=_Span(),
    metavar="SPAN",
    help="Print a trace of the last SPAN (as 10s, at most 300s) of the job NAME for Perfetto.",
)
@reading
def job(
    *, name: str | None, trace_ns: int | None, url: str | None, as_json: bool, watch: float | None
) -> None:
    """Show jobs whose queue pairs send in bursts: members, iterations, who makes the others wait; or all of the job NAME."""
    if trace_ns is not None and (name is None or as_json or watch is not None):
        raise click.UsageError(
            "--trace prints JSON of its own, once, of the job NAME; leave out --json and --watch."
        )
    client = ManagerClient(url)
    if trace_ns is not None:
        _print_trace(client.get("/v1/trace", {"job": name or "", "window_ns": trace_ns}))
        return
    query = {"job": name} if name else {}
    render = _one if name else _all
    show(lambda: client.get("/v1/iterations", query), render, as_json=as_json, watch_s=watch)


def _print_trace(answer: Any) -> None:
    for text in chrome_trace(answer):
        sys.stdout.write(text)
    lacks = left_out(answer)
    if lacks is not None:
        progress(f"left out: {lacks}")


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
    text = f"{answer['job_count']} jobs; pairs: queue pairs, one way; iteration: the mean of 30 s (of long ones 300 s), or since it changed"
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
