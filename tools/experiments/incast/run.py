"""`cwdp lab run incast`: many send to one, with congestion control and without it."""

import time
from typing import Any

import click
from rich.console import Group, RenderableType

from cwdp.cli.output import emit, progress
from cwdp.shared.rates import format_rate
from tools.clocks import ClockKind
from tools.experiments.collectives import options as of_collectives
from tools.experiments.incast import collective_run
from tools.experiments.incast.collective import SECONDS as COLLECTIVE_SECONDS
from tools.experiments.incast.collective import make_setting as make_collective
from tools.experiments.incast.fleet import incast_fleet
from tools.experiments.incast.model import Incast, compare, draw_incast, lab_spec, summarise
from tools.experiments.incast.wire import WireTap
from tools.experiments.options import JSON, rate_option
from tools.experiments.report import mbit, ms, new_table
from tools.experiments.runs import send
from tools.lab import Lab, LabSpec
from tools.lab.fleet.session import lab_for_run
from tools.lab.params import CLOCKS, refuse_options

NAME = "incast"
ARMS = ("without", "with")
SENDERS, SECONDS, MESSAGE_BYTES = 7, 10.0, 256 * 1024
JOBS = 1
RATE_BPS = 70_000_000
"""With more, the agents of a lab on two processors are too late for the first seconds of an incast."""


@click.command()
@click.option(
    "--senders", type=click.IntRange(2, 60), default=SENDERS, show_default=True, help="To one host."
)
@click.option("--seed", default=1, show_default=True, help="Draws hosts, queue pairs and clocks.")
@click.option(
    "--seconds",
    type=click.FloatRange(3, 120),
    help=f"For each arm.  [default: {SECONDS:.0f}, of collectives {COLLECTIVE_SECONDS:.0f}]",
)
@click.option(
    "--message-bytes", type=click.IntRange(1), default=MESSAGE_BYTES, show_default=True, help="Of a WRITE."
)
@rate_option(RATE_BPS, "Of all links.")
@of_collectives.options("the incast alone", jobs=JOBS)
@CLOCKS
@JSON
@click.pass_context
def incast(
    ctx: click.Context,
    /,
    *,
    senders: int,
    seed: int,
    seconds: float | None,
    message_bytes: int,
    rate: int,
    collective: str | None,
    clocks: ClockKind,
    as_json: bool,
    **of_jobs: Any,
) -> None:
    """Have many hosts send to one, with congestion control and without it.

    With --collective, that one is a rank of a job; what counts then is how long the job's iterations take.
    """
    if collective is None:
        refuse_options(ctx, of_collectives.OPTION_NAMES, "--collective")
        spec = lab_spec(NAME, senders, rate, seed, clocks)
        result = run_incast(spec, senders, seconds or SECONDS, message_bytes)
        emit(result, as_json=as_json, render=lambda: _render(result))
    else:
        setting = make_collective(
            NAME,
            senders,
            collective,
            rate_bps=rate,
            seed=seed,
            clocks=clocks,
            message_bytes=message_bytes,
            seconds=of_collectives.settled_seconds(seconds, COLLECTIVE_SECONDS),
            **of_jobs,
        )
        result = collective_run.run_collectives(setting)
        emit(result, as_json=as_json, render=lambda: collective_run.render(result))


def run_incast(spec: LabSpec, senders: int, seconds: float, message_bytes: int) -> dict[str, Any]:
    """Run the experiment; what `--json` prints.

    Raises:
        LabError: the lab or its processes failed.
    """
    arms: dict[str, dict[str, Any]] = {}
    with lab_for_run(NAME, spec) as lab:
        drawn = draw_incast(lab.topology, senders, message_bytes, spec.seed)
        for arm in ARMS:
            with incast_fleet(lab, senders, drawn.sources, controlled=arm == "with") as fleet:
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
