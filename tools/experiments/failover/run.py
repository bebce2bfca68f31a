"""`cwdp lab run failover`: links die under load, with cwdp and without it."""

import random
import time
from collections.abc import Sequence
from typing import Any

import click
import numpy as np
from rich.console import Group, RenderableType

from cwdp.cli.output import emit, progress
from cwdp.shared.rates import format_rate
from tools.experiments import measure
from tools.experiments.failover.model import (
    DARK_S,
    GRACE_S,
    HEALED_S,
    MENDED_S,
    STEERED_S,
    Cut,
    Kind,
    Setting,
    draw_cut,
    make_setting,
    summarise_cut,
)
from tools.experiments.fleets import PulseSettings, running_fleet
from tools.experiments.options import JSON, arm_option, chosen, fabric_options
from tools.experiments.report import describe_lab, ms, new_table, share
from tools.experiments.runs import interrupt, links_in_use, send
from tools.experiments.taken import links_taken
from tools.lab import Lab, LabSpec, faults
from tools.lab.fleet.session import lab_for_run
from tools.lab.params import CLOCKS, RATE, SHARE
from tools.roce import Generator

NAME = "failover"
ARMS = ("ecmp", "cwdp")
CUTS = 5
LOADS = ("0.3", "0.6", "0.8")
HOSTS = 2
RATE_BPS = 60_000_000
"""With less, pulses take so much of a spine's link that goodput after a cut is theirs to lose: a quarter at 20 Mbit/s."""

PULSES = PulseSettings(interval_ms=3.0, dead_after_ms=10.0)
"""Rarer than usual: a small machine has one processor for the hosts of a whole lab."""

HOLD_DOWN_MS = 500.0
"""Each cut is a case of its own: a path that another cut took is not left alone for longer."""


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
@arm_option(ARMS)
@CLOCKS
@JSON
def failover(
    *,
    spec: LabSpec,
    seed: int,
    cuts: int,
    kind: str,
    loads: tuple[float, ...],
    spine_rate: int | None,
    arms: tuple[str, ...],
    as_json: bool,
) -> None:
    """Let links that carry data die under load, and mend them; with cwdp and without it."""
    settings = [make_setting(spec, load, spine_rate) for load in loads]
    result = run_failover(settings, chosen(ARMS, arms), Kind(kind), cuts, seed)
    emit(result, as_json=as_json, render=lambda: _render(result))


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
    runs: list[dict[str, Any]] = []
    spec = settings[0].spec
    with lab_for_run(NAME, spec) as lab:
        faults.prepare_silence(NAME, lab.topology)
        for arm in arms:
            with running_fleet(
                lab, planner=arm == "cwdp", pulses=PULSES, hold_down_max_ms=HOLD_DOWN_MS
            ) as fleet:
                for setting in settings:
                    rng = random.Random(seed)
                    for number in range(cuts):
                        run = _one_cut(lab, setting, kind, rng.randrange(2**32))
                        runs.append({"arm": arm} | run)
                        progress(f"{arm}, load {setting.load}, cut {number + 1} of {cuts}: {_shown(run)}")
                        fleet.check()
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


def _one_cut(lab: Lab, setting: Setting, kind: Kind, seed: int) -> dict[str, Any]:
    """New queue pairs, one cut, one mending."""
    rng = random.Random(seed)
    flows = setting.flows(seed)
    made: list[tuple[Cut, dict[int, frozenset[str]], tuple[int, int]]] = []

    def during(_: Generator) -> None:
        time.sleep(STEERED_S)
        cut = draw_cut(kind, links_in_use(lab, setting.flow_bps / 2), lab.topology, rng)
        taken = links_taken(lab, flows)
        times = interrupt(cut, lab.name, DARK_S)
        made.append((cut, taken, times))
        time.sleep(MENDED_S)

    result = send(lab, flows, 0.0, during=during)
    cut, taken, times = made[0]
    if kind is Kind.CARRIER:
        for link in cut.links:
            faults.drop(lab.name, link, 0.0)
    return summarise_cut(setting, cut, taken, result, times)


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
