"""`cwdp lab run incast`: many send to one, with congestion control and without it."""

import time
from typing import Any

import click
from rich.console import Group, RenderableType

from cwdp.cli.output import emit, progress
from cwdp.dataplane.pinned import tree
from cwdp.dataplane.pinned.maps import Maps
from cwdp.errors import LabError
from cwdp.shared.rates import format_rate
from manager.config import PlannerSettings, ProbeSettings
from tools.clocks import ClockKind
from tools.experiments.incast.model import (
    Incast,
    compare,
    congestion,
    draw_incast,
    lab_spec,
    pulse_interval_ms,
    summarise,
)
from tools.experiments.incast.wire import WireTap
from tools.experiments.options import JSON, rate_option
from tools.experiments.report import mbit, ms, new_table
from tools.experiments.runs import send
from tools.lab import Lab, LabSpec
from tools.lab.fleet.processes import Fleet
from tools.lab.fleet.session import lab_for_run, wait_for_lock
from tools.lab.network import netns
from tools.lab.params import CLOCKS
from tools.lab.truth.clocks import Truth
from tools.waiting import wait_for

NAME = "incast"
ARMS = ("without", "with")
SENDERS, SECONDS, MESSAGE_BYTES = 7, 10.0, 256 * 1024
RATE_BPS = 70_000_000
"""With more, the agents of a lab on two processors are too late for the first seconds of an incast."""

PROBES = ProbeSettings(pairs_per_s=100.0)
"""Few, as pulses: every packet of theirs is missing from what a slow link carries of the incast."""

CONTROLLED_TIMEOUT_S = 20.0
POLL_S = 0.2


@click.command()
@click.option(
    "--senders", type=click.IntRange(2, 60), default=SENDERS, show_default=True, help="To one host."
)
@click.option("--seed", default=1, show_default=True, help="Draws hosts, queue pairs and clocks.")
@click.option(
    "--seconds", type=click.FloatRange(3, 120), default=SECONDS, show_default=True, help="For each arm."
)
@click.option(
    "--message-bytes", type=click.IntRange(1), default=MESSAGE_BYTES, show_default=True, help="Of a WRITE."
)
@rate_option(RATE_BPS, "Of all links.")
@CLOCKS
@JSON
def incast(
    *,
    senders: int,
    seed: int,
    seconds: float,
    message_bytes: int,
    rate: int,
    clocks: ClockKind,
    as_json: bool,
) -> None:
    """Have many hosts send to one, with congestion control and without it."""
    spec = lab_spec(NAME, senders, rate, seed, clocks)
    result = run_incast(spec, senders, seconds, message_bytes)
    emit(result, as_json=as_json, render=lambda: _render(result))


def run_incast(spec: LabSpec, senders: int, seconds: float, message_bytes: int) -> dict[str, Any]:
    """Run the experiment; what `--json` prints.

    Raises:
        LabError: the lab or its processes failed.
    """
    arms: dict[str, dict[str, Any]] = {}
    with lab_for_run(NAME, spec) as lab:
        drawn = draw_incast(lab.topology, senders, message_bytes, spec.seed)
        for arm in ARMS:
            with _fleet(lab, senders, controlled=arm == "with") as fleet, Truth(lab) as truth:
                wait_for_lock(fleet, truth)
                if arm == "with":
                    _wait_for_control(fleet, drawn)
                progress(f"{senders} hosts send to {drawn.target}, {arm} congestion control")
                arms[arm] = _send(lab, drawn, seconds)
                fleet.check()
    return {
        "senders": senders,
        "target": drawn.target,
        "seed": spec.seed,
        "rate_bps": spec.rate_bps,
        "clocks": lab.spec.clocks,
        "message_bytes": message_bytes,
        **arms,
        **compare(arms["without"], arms["with"]),
    }


def _fleet(lab: Lab, senders: int, *, controlled: bool) -> Fleet:
    rate_bps = lab.spec.rate_bps
    return Fleet(
        lab,
        PROBES,
        pulse_interval_ms=pulse_interval_ms(senders, rate_bps),
        planner=PlannerSettings(enabled=False),
        congestion=congestion(rate_bps) if controlled else None,
    )


def _wait_for_control(fleet: Fleet, drawn: Incast) -> None:
    """Until every sender controls congestion."""
    are_controlled = fleet.checked(lambda: all(_is_controlled(fleet.lab, name) for name in drawn.sources))
    if not wait_for(are_controlled, CONTROLLED_TIMEOUT_S, poll_s=POLL_S):
        raise LabError(
            "waited for the agents to control congestion", f"read the logs: {fleet.lab.run_dir}/*.log"
        )


def _is_controlled(lab: Lab, host: str) -> bool:
    nic = lab.host(host).nics[0].name
    with netns.netns_enter(lab.netns(host)):
        where = tree.here(nic)
    with Maps(where) as maps:
        return bool(maps.slice_table["enforcer"][0])


def _send(lab: Lab, drawn: Incast, seconds: float) -> dict[str, Any]:
    with WireTap(lab, drawn.sources, drawn.target) as tap:
        result = send(lab, drawn.flows, seconds)
    left_ns, owd_ns = tap.delays_ns()
    realtime_ns = time.time_ns() - time.monotonic_ns()
    return summarise(
        result, (left_ns - realtime_ns - result["start_ns"]).astype(float), owd_ns, lab.spec.rate_bps
    )


def _render(result: dict[str, Any]) -> RenderableType:
    table = new_table(
        "CONTROL",
        ("OWD P50", "P99", "FIRST S", "GOODPUT", "OF LINK", "JAIN", "LEAST", "MOST", "RESENT", "IDLE"),
    )
    for arm in ARMS:
        row = result[arm]
        table.add_row(
            arm,
            *(ms(row[f"owd_{name}_ns"]) for name in ("p50", "p99", "beginning_p99")),
            mbit(row["goodput_bps"]),
            f"{row['goodput_share']:.1%}",
            f"{row['jain']:.3f}",
            mbit(row["least_bps"]),
            mbit(row["most_bps"]),
            str(row["retransmitted_packets"]),
            f"{row['idle_share']:.0%}",
        )
    ratio = result["owd_p99_ratio"]
    return Group(
        table,
        f"{result['senders']} hosts to {result['target']}, links of {format_rate(result['rate_bps'])}, messages of "
        f"{result['message_bytes']} bytes; clocks {result['clocks']}",
        "OWD: of data packets on the wire, in ms; FIRST S: p99 of the first second, not in the rest;",
        "GOODPUT of the queue pairs together, LEAST and MOST of one, Mbit/s of payload",
        f"p99 is {'-' if ratio is None else f'{ratio:.2f}'} of that without",
    )
