"""`cwdp lab run contention`: every arm of the experiment with the queue pairs of every seed, and what came of it."""

from collections.abc import Iterable, Sequence
from typing import Any

import click
import msgspec
from rich.console import Group, RenderableType

from cwdp.cli.output import emit, progress
from cwdp.shared.rates import format_rate
from tools.experiments import measure
from tools.experiments.collectives import options as of_collectives
from tools.experiments.collectives.jobs import SETTLE_S as COLLECTIVE_SETTLE_S
from tools.experiments.contention import collective_run
from tools.experiments.contention.collective import SECONDS as COLLECTIVE_SECONDS
from tools.experiments.contention.collective import make_setting as make_collective
from tools.experiments.contention.model import (
    QUEUE_BYTES,
    RATE_BPS,
    SECONDS,
    SETTLE_S,
    Arm,
    Setting,
    make_setting,
    run_arm,
)
from tools.experiments.fleets import RARE_PULSES, running_fleet
from tools.experiments.options import JSON, arm_option, chosen, fabric_options
from tools.experiments.report import describe_lab, mbit, ms, new_table, share
from tools.lab import Lab, LabSpec, faults
from tools.lab.fleet.session import lab_for_run
from tools.lab.params import CLOCKS, RATE, SHARE, refuse_options

NAME = "contention"
MEDIANS = (
    "slowest_member_bps",
    "slowest_host_bps",
    "sum_bps",
    "optimum_share",
    "completion_p50_ns",
    "completion_p99_ns",
    "owd_p99_ns",
    "outage_ns",
    "retransmitted_packets",
    "moves",
    "idle_share",
)


@click.command()
@click.option(
    "--seed", default=1, show_default=True, help="Draws the queue pairs, and so their source ports."
)
@click.option(
    "--seeds",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="How many seeds, from --seed on.",
)
@fabric_options(NAME, hosts=LabSpec().hosts_per_leaf, rate_bps=RATE_BPS)
@click.option(
    "--spine-rate",
    type=RATE,
    help="Of links between switches.  [default: where the best placement just fits]",
)
@click.option(
    "--slow-spine",
    type=SHARE,
    default="1",
    show_default=True,
    help="What the first spine's links carry of the others' rate.",
)
@click.option(
    "--seconds",
    type=click.FloatRange(min=SETTLE_S + 1),
    help=f"Of traffic a run; the first {SETTLE_S:.0f}, of collectives {COLLECTIVE_SETTLE_S:.0f}, do not count.  "
    f"[default: {SECONDS:.0f}, of collectives {COLLECTIVE_SECONDS:.0f}]",
)
@of_collectives.options("queue pairs that always send")
@arm_option(Arm, "Only this one; may be repeated.")
@CLOCKS
@JSON
@click.pass_context
def contention(
    ctx: click.Context,
    /,
    *,
    spec: LabSpec,
    seed: int,
    seeds: int,
    spine_rate: int | None,
    slow_spine: float,
    seconds: float | None,
    collective: str | None,
    arms: tuple[str, ...],
    as_json: bool,
    **of_collective: Any,
) -> None:
    """Have two all-to-all jobs collide, and place them by ECMP, by PLB's and Hopper's ideas, and by cwdp.

    With --collective, jobs whose steps wait for their inputs; what counts then is how long iterations take.
    """
    spec = msgspec.structs.replace(spec, queue_bytes=QUEUE_BYTES, spine_queue_bytes=QUEUE_BYTES)
    drawn, compared = range(seed, seed + seeds), chosen(Arm, arms)
    if collective is None:
        refuse_options(ctx, of_collectives.OPTION_NAMES, "--collective")
        setting = make_setting(spec, spine_rate_bps=spine_rate, slow_share=slow_spine)
        result = run_contention(setting, compared, drawn, seconds or SECONDS)
        emit(result, as_json=as_json, render=lambda: _render(result))
    else:
        refuse_options(ctx, ("slow_spine",), "queue pairs that always send")
        jobs = make_collective(
            spec,
            collective,
            seconds=of_collectives.settled_seconds(seconds, COLLECTIVE_SECONDS),
            spine_rate_bps=spine_rate,
            **of_collective,
        )
        result = collective_run.run_collectives(NAME, jobs, compared, drawn)
        emit(result, as_json=as_json, render=lambda: collective_run.render(result))


def run_contention(
    setting: Setting, arms: Sequence[Arm], seeds: Sequence[int], seconds: float = SECONDS
) -> dict[str, Any]:
    """Run the experiment; what `--json` prints.

    Raises:
        LabError: the lab or its processes failed.
    """
    runs: list[dict[str, Any]] = []
    with lab_for_run(NAME, setting.spec) as lab:
        for link, rate_bps in setting.slow_bps.items():
            faults.slow(NAME, link, round(rate_bps))
        for planner, group in ((False, [arm for arm in arms if arm is not Arm.CWDP]), (True, [Arm.CWDP])):
            wanted = [arm for arm in group if arm in arms]
            if wanted:
                runs += _run_group(lab, setting, wanted, seeds, seconds, planner=planner)
    return {
        "lab": describe_lab(
            lab, setting.spec, spine_rate_bps=setting.spec.spine_rate_bps, slow_links_bps=setting.slow_bps
        ),
        "queue_pairs": len(setting.pairs),
        "seconds": seconds,
        "settle_s": SETTLE_S,
        "offered_bps": setting.flow_bps,
        "optimum": {
            "queue_pair_bps": setting.optimum_bps,
            "slowest_member_bps": setting.optimum_bps * setting.transfers,
        },
        "arms": [summarise_arm(arm, runs) for arm in arms],
        "runs": runs,
    }


def summarise_arm(arm: Arm, runs: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """An arm over all seeds: medians, the least share of the optimum, and how it compares with ECMP by seed."""
    by_seed = {(run["arm"], run["seed"]): run for run in runs}
    mine = [run for run in by_seed.values() if run["arm"] == arm]
    gains = [
        run["slowest_member_bps"] / ecmp["slowest_member_bps"]
        for run in mine
        if (ecmp := by_seed.get((Arm.ECMP, run["seed"])))
    ]
    return {
        "arm": str(arm),
        "seeds": len(mine),
        **{name: measure.median([run[name] for run in mine]) for name in MEDIANS},
        "optimum_share_min": min(run["optimum_share"] for run in mine),
        "over_ecmp_median": measure.median(gains),
        "over_ecmp_min": min(gains, default=None),
        "queue_pairs_died": sum(run["queue_pairs_died"] for run in mine),
    }


def _run_group(
    lab: Lab, setting: Setting, arms: Sequence[Arm], seeds: Sequence[int], seconds: float, *, planner: bool
) -> list[dict[str, Any]]:
    """Arms that share a fleet."""
    runs = []
    with running_fleet(lab, planner=planner, pulses=RARE_PULSES) as fleet:
        for seed in seeds:
            for arm in arms:
                run = run_arm(lab, setting, arm, seed, seconds)
                progress(
                    f"seed {seed}, {arm}: slowest member {run['slowest_member_bps'] / 1e6:.1f} Mbit/s, "
                    f"{run['optimum_share']:.0%} of the best possible"
                )
                runs.append(run)
                fleet.check()
    return runs


def _render(result: dict[str, Any]) -> RenderableType:
    table = new_table(
        "ARM",
        ("SLOWEST", "BEST", "LEAST", "GAIN", "SUM", "P50", "P99", "OWD", "AGAIN", "MOVES", "IDLE"),
    )
    for row in result["arms"]:
        gain = row["over_ecmp_median"]
        table.add_row(
            row["arm"],
            mbit(row["slowest_member_bps"]),
            share(row["optimum_share"]),
            share(row["optimum_share_min"]),
            "-" if gain is None else f"{gain:.2f}",
            mbit(row["sum_bps"]),
            ms(row["completion_p50_ns"]),
            ms(row["completion_p99_ns"]),
            ms(row["owd_p99_ns"]),
            f"{row['retransmitted_packets']:.0f}",
            f"{row['moves']:.0f}",
            share(row["idle_share"]),
        )
    lab, best = result["lab"], result["optimum"]
    return Group(
        table,
        f"SLOWEST member's goodput and SUM in Mbit/s; BEST, LEAST: of the {best['slowest_member_bps'] / 1e6:.1f} "
        "Mbit/s that the linear program allows each member, at the median and for the worst of "
        f"{result['arms'][0]['seeds']} seeds; GAIN over ecmp; P50, P99 of a message and P99 of the OWD in ms; "
        "AGAIN: packets sent again; IDLE: the machine's processors",
        f"links {format_rate(lab['rate_bps'])}, spines {format_rate(lab['spine_rate_bps'])}; "
        f"{result['queue_pairs']} queue pairs offer {result['offered_bps'] / 1e6:.1f} Mbit/s each; "
        f"clocks {lab['clocks']}",
    )
