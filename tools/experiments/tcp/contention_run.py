"""`cwdp lab run tcp-contention`: two jobs of all-reduces over TCP that collide, by plain ECMP, by Linux's re-hash and steered."""

import time
from collections.abc import Sequence
from typing import Any

import click
import msgspec
import numpy as np
from rich.console import Group, RenderableType

from cwdp.cli.output import emit, progress
from cwdp.shared.rates import format_rate
from tools.experiments.fleets import RARE_PULSES
from tools.experiments.options import JSON, arm_option, chosen, fabric_options
from tools.experiments.report import describe_lab, ms, new_table, share
from tools.experiments.runs import IdleShare
from tools.experiments.tcp.arms import Arm, prepared
from tools.experiments.tcp.contention import (
    QUEUE_BYTES,
    RATE_BPS,
    SECONDS,
    SETTLE_S,
    SIZE_BYTES,
    Setting,
    make_setting,
    opened,
    summarise,
)
from tools.experiments.tcp.watching import Watch, resets
from tools.lab import Lab, LabSpec
from tools.lab.fleet.session import lab_for_run
from tools.lab.params import CLOCKS
from tools.mpi import allreduce

NAME = "tcp-contention"
RUNS = 3


@click.command("tcp-contention")
@click.option("--seed", default=1, show_default=True, help="Draws the hosts' clocks.")
@click.option(
    "--runs",
    type=click.IntRange(min=1),
    default=RUNS,
    show_default=True,
    help="Of each arm: ports are new each time.",
)
@fabric_options(NAME, hosts=LabSpec().hosts_per_leaf, rate_bps=RATE_BPS)
@click.option(
    "--bytes", "size_bytes", type=click.IntRange(8), default=SIZE_BYTES, show_default=True, help="Summed up."
)
@click.option(
    "--seconds",
    type=click.FloatRange(min=SETTLE_S + 1),
    default=SECONDS,
    show_default=True,
    help=f"Of traffic a run; the first {SETTLE_S:.0f} do not count.",
)
@arm_option(Arm, "Only this one; may be repeated.")
@CLOCKS
@JSON
def tcp_contention(
    *,
    spec: LabSpec,
    seed: int,
    runs: int,
    size_bytes: int,
    seconds: float,
    arms: tuple[str, ...],
    as_json: bool,
) -> None:
    """Have two jobs of all-reduces over TCP collide, with plain ECMP, with Linux's re-hash on time-outs and steered by cwdp."""
    del seed  # it is the spec's
    spec = msgspec.structs.replace(
        spec, queue_bytes=QUEUE_BYTES, spine_queue_bytes=QUEUE_BYTES, by_headers=True
    )
    setting = make_setting(spec, size_bytes)
    result = run_contention(setting, chosen(Arm, arms), runs, seconds)
    emit(result, as_json=as_json, render=lambda: _render(result))


def run_contention(setting: Setting, arms: Sequence[Arm], runs: int, seconds: float) -> dict[str, Any]:
    """Run the experiment; what `--json` prints.

    Raises:
        LabError: the lab or its processes failed.
    """
    done: list[dict[str, Any]] = []
    open_share = _open_share(setting, seconds)
    with lab_for_run(NAME, setting.spec) as lab:
        for arm in arms:
            with prepared(lab, arm, setting.ports, RARE_PULSES) as fleet:
                for number in range(runs):
                    run = _run(lab, setting, arm, seconds)
                    progress(
                        f"{arm}, run {number + 1} of {runs}: {run['optimum_share']:.0%} of the best possible"
                    )
                    done.append(run)
                    if fleet:
                        fleet.check()
    return {
        "lab": describe_lab(lab, setting.spec, spine_rate_bps=setting.spec.spine_rate_bps),
        "size_bytes": setting.size_bytes,
        "seconds": seconds,
        "settle_s": SETTLE_S,
        "best_ns": setting.best_ns(setting.jobs("ipv4")[0]),
        "open_share": open_share,
        "arms": [summarise_arm(arm, [run for run in done if run["arm"] == arm], open_share) for arm in arms],
        "runs": done,
    }


def _open_share(setting: Setting, seconds: float) -> float:
    """What the jobs reach of the best possible where no link between switches is ever full."""
    setting = opened(setting)
    with lab_for_run(NAME, setting.spec) as lab, prepared(lab, Arm.ECMP, setting.ports, RARE_PULSES):
        share: float = _run(lab, setting, Arm.ECMP, seconds)["optimum_share"]
    progress(f"where nobody is in their way the jobs reach {share:.0%} of the best possible")
    return share


def summarise_arm(arm: Arm, runs: Sequence[dict[str, Any]], open_share: float) -> dict[str, Any]:
    """An arm over all its runs; `open_share` is what the jobs reach where no link between switches is full."""
    shares = [run["optimum_share"] for run in runs]
    return {
        "arm": str(arm),
        "runs": len(runs),
        "optimum_share_median": float(np.median(shares)),
        "optimum_share_min": min(shares),
        "optimum_share_max": max(shares),
        "of_open_median": float(np.median(shares)) / open_share if open_share else None,
        **{name: sum(run[name] for run in runs) for name in ("wrong_sums", "resets", "retransmitted_bytes")},
        "idle_share": float(np.median([run["idle_share"] for run in runs])),
    }


def _run(lab: Lab, setting: Setting, arm: Arm, seconds: float) -> dict[str, Any]:
    jobs = setting.jobs(arm.family)
    idle, before = IdleShare(), resets(lab)
    with Watch(lab, [setting.ports]) as watch:
        began_ns = time.monotonic_ns()
        results = allreduce.run(lab, jobs, seconds)
    after = resets(lab)
    return summarise(setting, arm, results, began_ns) | {
        "resets": sum(after.values()) - sum(before.values()),
        "retransmitted_bytes": watch.retransmitted_bytes(),
        "idle_share": idle.read(),
    }


def _render(result: dict[str, Any]) -> RenderableType:
    table = new_table(
        "ARM", ("RUNS", "OPEN", "BEST", "LEAST", "MOST", "MEAN MS", "P99 MS", "RESETS", "WRONG", "IDLE")
    )
    for row in result["arms"]:
        jobs = [job for run in result["runs"] if run["arm"] == row["arm"] for job in run["jobs"]]
        table.add_row(
            row["arm"],
            str(row["runs"]),
            share(row["of_open_median"]),
            *(share(row[f"optimum_share_{name}"]) for name in ("median", "min", "max")),
            *(ms(max((job[name] or 0.0) for job in jobs)) for name in ("mean_ns", "p99_ns")),
            str(row["resets"]),
            str(row["wrong_sums"]),
            share(row["idle_share"]),
        )
    lab = result["lab"]
    return Group(
        table,
        f"OPEN: what the slower job reaches at the median, of what it does where no link between switches is ever full, which is "
        f"{share(result['open_share'])} of the best possible",
        f"all-reduces of {result['size_bytes']} bytes, at best {ms(result['best_ns'])} ms each: BEST, LEAST, MOST: what of that "
        "the slower job reaches, at the median and in the worst and the best run; MEAN and P99 of the slowest job",
        "RESETS: connections reset while established; WRONG: sums that were not right; IDLE: the machine's processors",
        f"links {format_rate(lab['rate_bps'])}, spines {format_rate(lab['spine_rate_bps'])}; clocks {lab['clocks']}",
    )
