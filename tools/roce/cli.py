"""`cwdp lab traffic`: RoCEv2 queue pairs over a lab, in a pattern or as ranks of a collective."""

from typing import Any

import click
from rich.console import Group, RenderableType
from rich.table import Table

from cwdp.cli.output import emit, progress
from tools.lab.lab import Lab
from tools.lab.params import RATE, SIZE, TIME, refuse_options
from tools.lab.topology import LabSpec
from tools.roce import collective_cli
from tools.roce.collective import view
from tools.roce.generator import Generator
from tools.roce.patterns import NIC_WINDOW, PATTERNS, plan_flows

_DEFAULT_SECONDS = 10.0
_PATTERN_ONLY = ("message_bytes", "qps")
_DRAIN_S = 60.0  # for what was begun, after the time is over


@click.command()
@click.argument("pattern", required=False, type=click.Choice(list(PATTERNS)))
@click.option("--name", default=LabSpec().name, show_default=True, help="The lab's name.")
@click.option(
    "--seconds",
    type=click.FloatRange(min=0, min_open=True),
    help=f"How long messages are begun, or a collective goes on.  [default: {_DEFAULT_SECONDS:.0f}]",
)
@click.option(
    "--bytes",
    "total_bytes",
    type=SIZE,
    help="Send so much per queue pair instead of for a time; of a collective each rank's buffer, such as 4mb.",
)
@click.option(
    "--message-bytes",
    type=click.IntRange(1, 2**31),
    default=2**18,
    show_default=True,
    help="Length of a WRITE.",
)
@click.option(
    "--qps", type=click.IntRange(1, 1000), default=1, show_default=True, help="Queue pairs per pair."
)
@click.option(
    "--rate", type=RATE, help="Rate of a queue pair, such as 10mbit.  [default: as fast as it goes]"
)
@click.option(
    "--window",
    type=click.IntRange(1, 2**20),
    help=f"Packets under way per queue pair.  [default: {NIC_WINDOW}, shared by those that meet at a NIC]",
)
@click.option("--ipv6", is_flag=True, help="Send IPv6.")
@click.option("--seed", default=1, show_default=True, help="Draws permutation, QPNs and PSNs.")
@click.option(
    "--snapshots", type=TIME, help="Add a timeline with a point so often, such as 100ms (JSON only)."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@collective_cli.options
@click.pass_context
def traffic(
    ctx: click.Context,
    /,
    *,
    pattern: str | None,
    collective: str | None,
    name: str,
    seconds: float | None,
    total_bytes: int | None,
    message_bytes: int,
    qps: int,
    rate: int | None,
    window: int | None,
    ipv6: bool,
    seed: int,
    snapshots: float | None,
    as_json: bool,
    iterations: int | None,
    **of_collective: Any,
) -> None:
    """Send RDMA WRITEs over a lab in PATTERN, and show what each queue pair got through.

    With --collective, in steps that begin when their inputs have arrived, and show how long iterations take.
    """
    settings: dict[str, Any] = {"rate_bps": rate, "ipv6": ipv6, "seed": seed}
    if window is not None:
        settings["window"] = window
    if pattern is not None and collective is None:
        refuse_options(ctx, collective_cli.OPTION_NAMES, "--collective")
        seconds = _duration(seconds, total_bytes, "--bytes")
        settings |= {"qps": qps, "message_bytes": message_bytes, "total_bytes": total_bytes}
        result = _run_pattern(Lab.open(name), pattern, seconds, snapshots, settings)
        emit(result, as_json=as_json, render=lambda: _render(result))
    elif pattern is None and collective is not None:
        refuse_options(ctx, _PATTERN_ONLY, "PATTERN")
        if total_bytes is None:
            raise click.UsageError("--collective needs --bytes, the buffer of a rank, such as 4mb.")
        seconds = _duration(seconds, iterations, "--iterations")
        settings |= {"iterations": iterations}
        result = collective_cli.run(
            Lab.open(name), collective, total_bytes, seconds, snapshots, **of_collective, **settings
        )
        emit(result, as_json=as_json, render=lambda: view.render(result))
    else:
        raise click.UsageError("Give PATTERN or --collective, one of the two.")


def _duration(seconds: float | None, amount: int | None, option: str) -> float | None:
    """How long to send: None for until an amount is done."""
    if seconds is not None and amount is not None:
        raise click.UsageError(f"--seconds and {option} exclude each other; give one of them.")
    return seconds or _DEFAULT_SECONDS if amount is None else None


def _run_pattern(
    lab: Lab, pattern: str, seconds: float | None, snapshots: float | None, settings: dict[str, Any]
) -> dict[str, Any]:
    flows = plan_flows(lab, pattern, **settings)
    with Generator(flows, lab.popen, lab.run_dir, snapshots) as generator:
        progress(f"{len(flows)} queue pairs over {len(lab.hosts)} hosts")
        generator.start(seconds)
        return {"pattern": pattern} | generator.result(None if seconds is None else seconds + _DRAIN_S)


def _render(result: dict[str, Any]) -> RenderableType:
    table = Table(box=None, pad_edge=False)
    for column in ("FLOW", "SPORT", "MBIT/S", "RESENT", "NAKS", "TIMEOUTS", "P50 MS", "P99 MS", "OUTAGE MS"):
        table.add_column(column, justify="left" if column == "FLOW" else "right")
    for flow in result["flows"]:
        table.add_row(
            f"{flow['source']} > {flow['target']}" + (" failed" if flow["failed"] else ""),
            str(flow["sport"]),
            f"{flow['goodput_bps'] / 1e6:.1f}",
            str(flow["retransmitted_packets"]),
            str(flow["naks_received"]),
            str(flow["timeouts"]),
            view.ms(flow["completion"]["p50_ns"]),
            view.ms(flow["completion"]["p99_ns"]),
            view.ms(flow["outage_ns"]),
        )
    total = result["total"]
    return Group(
        table,
        f"{total['goodput_bps'] / 1e6:,.1f} Mbit/s, {total['retransmitted_packets']} packets sent again, "
        f"{total['icrc_errors']} ICRC errors, {total['failed']} queue pairs failed",
        f"P50, P99: a message's completion; CPU: {total['cpu_ns'] / 1e9:.2f} s, much of it the fabric's",
    )
