"""`cwdp lab run ib-faults`: links of an InfiniBand lab are broken in five ways, and its fleet's manager is asked what is wrong."""

import random
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

import click
import msgspec
from rich.console import Group, RenderableType
from rich.text import Text

from cwdp.cli.client import ManagerClient
from cwdp.cli.output import emit, progress
from tools.experiments.ib_faults.model import KINDS, Json, Verdict, judge, summarise
from tools.experiments.options import JSON
from tools.experiments.report import new_table
from tools.ib.faults import Fault, draw
from tools.ib.lab import faults, fleet, lifecycle, links
from tools.ib.lab.state import Spec
from tools.ib.topology import TICKS_PER_S, port_name
from tools.lab.params import TIME
from tools.waiting import wait_for

NAME = "ib-faults"
LEAST_RIGHT = 0.99
POLL_S = 0.1
BEGIN_S = 4.0
"""Until all counters were read twice."""

CUTS, APART_S = 4, 1.5
"""Of a link that flaps: it is told of once it went down more than three times."""

SETTLE_S, CALM_S = 2.0, 30.0
LASTING = ("flapping", "bit_errors")
"""Findings that last for minutes after what they are about is over: their links are left alone meanwhile."""


@click.command("ib-faults")
@click.option("--faults", "count", type=click.IntRange(1, 10_000), default=20, show_default=True)
@click.option("--seed", default=1, show_default=True, help="Draws kinds and places.")
@click.option(
    "--quiet", "quiet_s", type=TIME, default="60s", show_default=True, help="Then so long without a fault."
)
@click.option(
    "--within",
    "within_s",
    type=TIME,
    default="5s",
    show_default=True,
    help="In time is what is named by then.",
)
@JSON
def ib_faults(*, count: int, seed: int, quiet_s: float, within_s: float, as_json: bool) -> None:
    """Break links of an InfiniBand lab in five ways, and see what the manager names and when."""
    result = run_ib_faults(Spec(name=NAME), count, seed, quiet_s=quiet_s, within_s=within_s)
    emit(result, as_json=as_json, render=lambda: _render(result))
    if result["right"] < LEAST_RIGHT * result["faults"] or result["alarms"]:
        raise click.exceptions.Exit(1)


def run_ib_faults(spec: Spec, count: int, seed: int, *, quiet_s: float, within_s: float) -> Json:
    """Run the experiment; what `--json` prints.

    Args:
        spec: of the lab.
        count: of faults, of each kind by turns.
        seed: draws them.
        quiet_s: for which nothing is done at the end.
        within_s: in which a fault has to be named.

    Raises:
        LabError: the lab or its fleet failed.
    """
    rng = random.Random(f"ib-faults {seed}")
    every = links.every(spec.topology)
    used: deque[str] = deque(maxlen=len(every) // 2)
    readers = list(dict.fromkeys((every[0].a[0], f"h{spec.leaves * spec.hosts}")))
    with _subnet(spec, readers) as client:
        time.sleep(BEGIN_S)
        verdicts = []
        for number in range(count):
            avoided = {*used, *_held(client, spec)}
            fault = draw(KINDS[number % len(KINDS)], spec.topology, rng, avoided, readers)
            used.append(fault.link.key)
            verdicts.append(_try(client, spec.name, fault, within_s))
            progress(_told(verdicts[-1]))
        alarms = _quiet(client, quiet_s)
    return {
        "lab": msgspec.to_builtins(spec),
        "seed": seed,
        "within_s": within_s,
        "quiet_s": quiet_s,
        "faults": count,
        "right": sum(one.is_right for one in verdicts),
        "alarms": alarms,
        "kinds": summarise(verdicts),
        "cases": [_as_json(one) for one in verdicts],
    }


@contextmanager
def _subnet(spec: Spec, readers: list[str]) -> Iterator[ManagerClient]:
    """A lab with a fleet, taken away at the end."""
    progress(f"raising the InfiniBand lab {spec.name!r}: {spec.describe()}")
    lifecycle.up(spec)
    try:
        faults.keep_growing(spec.name)
        yield ManagerClient(f"unix://{fleet.start(spec.name, readers)}")
    finally:
        lifecycle.down(spec.name)


def _try(client: ManagerClient, lab: str, fault: Fault, within_s: float) -> Verdict:
    before = {one["number"] for one in _findings(client)}
    seen: dict[int, Json] = {}

    def look() -> Verdict:
        seen.update({one["number"]: one for one in _findings(client) if one["number"] not in before})
        return judge(fault, seen.values(), since_s, within_s)

    since_s = time.time()
    try:
        since_s = _make(lab, fault)
        wait_for(lambda: look().named, within_s, poll_s=POLL_S)
        until_s = time.monotonic() + SETTLE_S
        while time.monotonic() < until_s:
            time.sleep(POLL_S)
            look()
    finally:
        faults.heal(lab, f"{fault.link.a[0]}-{fault.link.b[0]}", fault.link.a[1])
    wait_for(lambda: look() and _is_calm(client), CALM_S, poll_s=POLL_S)
    return look()


def _make(lab: str, fault: Fault) -> float:
    """Do it; when it could be seen first, since 1970."""
    link, port = f"{fault.link.a[0]}-{fault.link.b[0]}", fault.link.a[1]
    if fault.kind == "flapping":
        for _ in range(CUTS - 1):
            faults.cut(lab, link, port)
            time.sleep(APART_S)
            faults.heal(lab, link, port)
            time.sleep(APART_S)
    since_s = time.time()
    match fault.kind:
        case "cut" | "flapping":
            faults.cut(lab, link, port)
        case "degraded":
            faults.degrade(lab, link, port, width=int(fault.size), speed_bps=0)
        case "errors":
            faults.grow(lab, link, port, faults.SYMBOL_ERRORS, fault.size)
        case "congested":
            faults.grow(lab, link, port, faults.WAIT, fault.size * TICKS_PER_S)
    return since_s


def _findings(client: ManagerClient) -> list[Json]:
    found: list[Json] = client.get("/v1/link", {"limit": 1})["findings"]
    return found


def _held(client: ManagerClient, spec: Spec) -> set[str]:
    """Links that something is told of."""
    told = " ".join(one["subject"]["name"] for one in _findings(client)).split()
    return {
        link.key for link in links.every(spec.topology) if {port_name(*link.a), port_name(*link.b)} & {*told}
    }


def _is_calm(client: ManagerClient) -> bool:
    return all(one["kind"] in LASTING for one in _findings(client))


def _quiet(client: ManagerClient, quiet_s: float) -> list[str]:
    """What is named while nothing is done."""
    progress(f"{quiet_s:.0f} s without a fault")
    known = {one["number"] for one in _findings(client)}
    told: dict[int, str] = {}
    until_s = time.monotonic() + quiet_s
    while time.monotonic() < until_s:
        time.sleep(POLL_S)
        told |= {
            one["number"]: f"{one['kind']} {one['subject']['name']}"
            for one in _findings(client)
            if one["number"] not in known
        }
    return list(told.values())


def _as_json(verdict: Verdict) -> Json:
    fault = verdict.fault
    return {
        "fault": fault.kind,
        "link": f"{port_name(*fault.link.a)}-{port_name(*fault.link.b)}",
        "size": round(fault.size, 2),
        "named": verdict.named,
        "after_s": None if verdict.after_s is None else round(verdict.after_s, 2),
        "others": list(verdict.others),
        "is_right": verdict.is_right,
    }


def _told(verdict: Verdict) -> str:
    row = _as_json(verdict)
    after = "never" if row["after_s"] is None else f"after {row['after_s']} s"
    others = f"; besides {', '.join(row['others'])}" if row["others"] else ""
    return f"{row['fault']} {row['link']}: {row['named'] or 'not named'}, {after}{others}"


def _render(result: Json) -> RenderableType:
    cases = new_table("fault", [])
    for column in ("where", "named", "after s", "besides", ""):
        cases.add_column(column)
    for row in result["cases"]:
        after = "-" if row["after_s"] is None else f"{row['after_s']:.1f}"
        verdict = Text("right", "green") if row["is_right"] else Text("wrong", "red")
        cases.add_row(
            row["fault"], row["link"], row["named"] or "-", after, ", ".join(row["others"]) or "-", verdict
        )
    kinds = new_table("fault", ("FAULTS", "RIGHT", "P50 S", "MAX S"))
    for row in result["kinds"]:
        times = ("-" if row[key] is None else f"{row[key]:.1f}" for key in ("after_p50_s", "after_max_s"))
        kinds.add_row(row["kind"], str(row["faults"]), str(row["right"]), *times)
    alarms = ", ".join(result["alarms"]) or "nothing"
    text = (
        f"{result['right']} of {result['faults']} right within {result['within_s']:g} s; "
        f"in {result['quiet_s']:g} s without a fault named: {alarms}"
    )
    return Group(cases, kinds, Text(text))
