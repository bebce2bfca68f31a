"""`cwdp lab run failover`: links die under load, with cwdp and without it."""

import random
from collections.abc import Sequence
from functools import partial
from typing import Any

import click
import numpy as np
from rich.console import Group, RenderableType

from cwdp.cli.output import emit
from cwdp.shared.rates import format_rate
from tools.experiments import measure
from tools.experiments.collectives import options as of_collectives
from tools.experiments.failover import collective_run
from tools.experiments.failover.collective import make_setting as make_collective
from tools.experiments.failover.cutting import Case, Taken, run_cuts, send_through_cut
from tools.experiments.failover.model import (
    GRACE_S,
    HEALED_S,
    STEERED_S,
    Cut,
    Kind,
    Setting,
    draw_cut,
    make_setting,
    summarise_cut,
)
from tools.experiments.options import JSON, arm_option, chosen, fabric_options
from tools.experiments.report import describe_lab, ms, new_table, share
from tools.experiments.runs import links_in_use
from tools.experiments.taken import links_taken
from tools.lab import Lab, LabSpec
from tools.lab.params import CLOCKS, RATE, SHARE, refuse_options

NAME = "failover"
ARMS = ("ecmp", "cwdp")
CUTS = 5
LOADS = ("0.3", "0.6", "0.8")
HOSTS = 2
JOBS = 1
"""Of collectives: all hosts in one."""

RATE_BPS = 60_000_000
"""With less, pulses take so much of a spine's link that goodput after a cut is theirs to lose: a quarter at 20 Mbit/s."""


@click.command()
@click.option("--seed", default=1, show_default=True, help="Draws queue pairs and links.")
@click.option("--cuts", type=click.IntRange(min=1), default=CUTS, show_default=True, help="For each arm.")
@click.option(
    "--kind",
    type=click.Choice([str(kind) for kind in Kind]),
    default=str(Kind.SILENT),
    show_default=True,
    help="A link goes silent, or one direction of it, or loses its carrier; or all links of a spine go silent.",
)
@click.option(
    "--load",
    "loads",
    type=SHARE,
    multiple=True,
    default=LOADS,
    show_default=True,
    help="Each host's, of its link; more than once for one after the other.",
)
@fabric_options(NAME, hosts=HOSTS, rate_bps=RATE_BPS)
@click.option("--spine-rate", type=RATE, help="Of links between switches.  [default: not oversubscribed]")
@of_collectives.options("queue pairs that always send", jobs=JOBS, compute="100ms")
@arm_option(ARMS)
@CLOCKS
@JSON
@click.pass_context
def failover(
    ctx: click.Context,
    /,
    *,
    spec: LabSpec,
    seed: int,
    cuts: int,
    kind: str,
    loads: tuple[float, ...],
    spine_rate: int | None,
    collective: str | None,
    arms: tuple[str, ...],
    as_json: bool,
    **of_jobs: Any,
) -> None:
    """Let links that carry data die under load, and mend them; with cwdp and without it.

    With --collective, jobs whose steps wait for their inputs; what counts then is what their iterations lose.
    """
    compared, way = chosen(ARMS, arms), Kind(kind)
    if collective is None:
        refuse_options(ctx, of_collectives.OPTION_NAMES, "--collective")
        settings = [make_setting(spec, load, spine_rate) for load in loads]
        result = run_failover(settings, compared, way, cuts, seed)
        emit(result, as_json=as_json, render=lambda: _render(result))
    else:
        refuse_options(ctx, ("loads",), "queue pairs that always send")
        jobs = make_collective(spec, collective, spine_rate, **of_jobs)
        result = collective_run.run_collectives(jobs, compared, way, cuts, seed)
        emit(result, as_json=as_json, render=lambda: collective_run.render(result))


def run_failover(
    settings: Sequence[Setting], arms: Sequence[str], kind: Kind, cuts: int, seed: int
) -> dict[str, Any]:
    """Run the experiment; what `--json` prints.

    Args:
        settings: one for each load, with the same lab.
        arms: some of ARMS.
        kind: how links die.
        cuts: for each arm and load.
        seed: draws the same queue pairs for each.

    Raises:
        LabError: the lab or its processes failed.
    """
    spec = settings[0].spec
    cases = [
        Case(f"load {one.load}, ", partial(_cut_once, setting=one, kind=kind), _shown) for one in settings
    ]
    lab, runs = run_cuts(spec, arms, cases, cuts, seed)
    return {
        "lab": describe_lab(lab, spec, spine_rate_bps=spec.spine_rate_bps),
        "kind": str(kind),
        "queue_pairs": len(settings[0].pairs),
        "arms": [
            summarise_arm(
                arm, setting.load, [r for r in runs if (r["arm"], r["load"]) == (arm, setting.load)]
            )
            for arm in arms
            for setting in settings
        ],
        "runs": runs,
    }


def summarise_arm(arm: str, load: float, runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """An arm over all its cuts at one load."""
    stalls = [stall for run in runs for stall in run["stalls_ns"]]
    outages = [outage for run in runs for outage in run["outages_ns"]]
    return {
        "arm": arm,
        "load": load,
        "cuts": len(runs),
        "queue_pairs_hit": len(stalls),
        **_spread("stall", stalls),
        "queue_pairs_with_losses": len(outages),
        **_spread("outage", outages),
        "queue_pairs_died": sum(run["queue_pairs_died"] for run in runs),
        **{
            f"{name}_{what}": float(of([run[name] for run in runs]))
            for name in ("dark_share", "placed_share", "healed_share")
            for what, of in (("median", np.median), ("min", np.min))
        },
        "retransmitted_packets": sum(run["retransmitted_packets"] for run in runs),
        "moves": sum(run["moves"] for run in runs),
        "idle_share": float(np.median([run["idle_share"] for run in runs])),
    }


def _spread(name: str, durations_ns: Sequence[int]) -> dict[str, float | None]:
    """Median, 99th percentile and maximum; None where there are none."""
    return {
        f"{name}_p50_ns": measure.quantile(durations_ns, 0.5),
        f"{name}_p99_ns": measure.quantile(durations_ns, 0.99),
        f"{name}_max_ns": max(durations_ns, default=None),
    }


def _cut_once(lab: Lab, seed: int, *, setting: Setting, kind: Kind) -> dict[str, Any]:
    """New queue pairs, one cut, one mending."""
    rng = random.Random(seed)
    flows = setting.flows(seed)

    def draw() -> tuple[Cut, Taken]:
        cut = draw_cut(kind, links_in_use(lab, setting.flow_bps / 2), lab.topology, rng)
        return cut, links_taken(lab, flows)

    result, cut, taken, span_ns = send_through_cut(lab, flows, STEERED_S, draw)
    return summarise_cut(setting, cut, taken, result, span_ns)


def _shown(run: dict[str, Any]) -> str:
    return (
        f"{run['cut']} {run['kind']}: the path of {len(run['stalls_ns'])} queue pairs died, they stood still for "
        f"{ms(max(run['stalls_ns'], default=None))} ms at most; {run['queue_pairs_died']} died; "
        f"{share(run['placed_share'])} after {GRACE_S:.0f} s"
    )


def _render(result: dict[str, Any]) -> RenderableType:
    table = new_table(
        "ARM",
        (
            "LOAD",
            "CUTS",
            "HIT",
            "P50",
            "P99",
            "MAX",
            "LOST P99",
            "DIED",
            "SPLIT",
            "WHOLE",
            "LEAST",
            "HEALED",
            "IDLE",
        ),
    )
    for row in result["arms"]:
        table.add_row(
            row["arm"],
            f"{row['load']:g}",
            str(row["cuts"]),
            str(row["queue_pairs_hit"]),
            ms(row["stall_p50_ns"]),
            ms(row["stall_p99_ns"]),
            ms(row["stall_max_ns"]),
            ms(row["outage_p99_ns"]),
            str(row["queue_pairs_died"]),
            share(row["dark_share_median"]),
            share(row["placed_share_median"]),
            share(row["placed_share_min"]),
            share(row["healed_share_median"]),
            share(row["idle_share"]),
        )
    lab = result["lab"]
    return Group(
        table,
        "HIT: queue pairs whose path died, or that of their acknowledgements; P50, P99, MAX: their longest time without "
        "a delivery, in ms, retransmission included; LOST: from the cut to the last packet lost, in ms; DIED for good; "
        f"goodput {GRACE_S:.0f} s after the cut of what the surviving links carry at best, of queue pairs that are SPLIT "
        "over paths and of WHOLE ones, at the median and the LEAST, and of what it was before, "
        f"{HEALED_S:.0f} s after the link HEALED; IDLE: the machine's processors",
        f"links {format_rate(lab['rate_bps'])}, spines {format_rate(lab['spine_rate_bps'])}; "
        f"{result['queue_pairs']} queue pairs; clocks {lab['clocks']}",
    )
