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
from tools.clocks import ClockKind
from tools.experiments.failover import (
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
from tools.experiments.report import ms, new_table, share
from tools.experiments.runs import links_in_use, send
from tools.lab import Lab, LabSpec, faults
from tools.lab.params import CLOCKS, RATE, SHARE
from tools.lab.session import lab_for_run
from tools.roce import Generator

NAME = "failover"
ARMS = ("ecmp", "cwdp")
CUTS = 5
HOSTS = 2
RATE_BPS = 20_000_000
PULSES = PulseSettings(interval_ms=3.0, dead_after_ms=10.0)
"""Those of a lab's slow links: at the usual 2 ms they would fill a fifth of them."""

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
@click.option("--load", type=SHARE, default="0.3", show_default=True, help="Each host's, of its link.")
@click.option("--leaves", default=LabSpec().leaves, show_default=True, help="Leaf switches.")
@click.option("--spines", default=LabSpec().spines, show_default=True, help="Spine switches.")
@click.option("--hosts", default=HOSTS, show_default=True, help="Hosts per leaf.")
@click.option("--rate", type=RATE, default=format_rate(RATE_BPS), show_default=True, help="Of hosts' links.")
@click.option("--spine-rate", type=RATE, help="Of leaf-spine links.  [default: not oversubscribed]")
@click.option("--arm", "arms", type=click.Choice(ARMS), multiple=True, help="Only this one.")
@CLOCKS
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def failover(
    *,
    seed: int,
    cuts: int,
    kind: str,
    load: float,
    leaves: int,
    spines: int,
    hosts: int,
    rate: int,
    spine_rate: int | None,
    arms: tuple[str, ...],
    clocks: ClockKind,
    as_json: bool,
) -> None:
    """Let links that carry data die under load, and mend them; with cwdp and without it."""
    spec = LabSpec(
        name=NAME,
        leaves=leaves,
        spines=spines,
        hosts_per_leaf=hosts,
        rate_bps=rate,
        seed=seed,
        clocks=clocks,
    )
    setting = make_setting(spec, load, spine_rate)
    chosen = [arm for arm in ARMS if not arms or arm in arms]
    result = run_failover(setting, chosen, Kind(kind), cuts, seed)
    emit(result, as_json=as_json, render=lambda: _render(result))


def run_failover(setting: Setting, arms: Sequence[str], kind: Kind, cuts: int, seed: int) -> dict[str, Any]:
    """Run the experiment; what `--json` prints.

    Raises:
        LabError: the lab or its processes failed.
    """
    runs: list[dict[str, Any]] = []
    with lab_for_run(NAME, setting.spec) as lab:
        for leaf in lab.topology.leaves:
            for spine in lab.topology.spines:
                faults.drop(NAME, f"{leaf}-{spine}", 0.0)
        for arm in arms:
            with running_fleet(
                lab, planner=arm == "cwdp", pulses=PULSES, hold_down_max_ms=HOLD_DOWN_MS
            ) as fleet:
                rng = random.Random(seed)
                for number in range(cuts):
                    run = _one_cut(lab, setting, kind, rng.randrange(2**32))
                    runs.append({"arm": arm} | run)
                    progress(f"{arm}, cut {number + 1} of {cuts}: {_shown(run)}")
                    fleet.check()
    return {
        "lab": {
            "leaves": setting.spec.leaves,
            "spines": setting.spec.spines,
            "hosts": len(lab.hosts),
            "rate_bps": setting.spec.rate_bps,
            "spine_rate_bps": setting.spec.spine_rate_bps,
            "clocks": lab.spec.clocks,
        },
        "kind": str(kind),
        "queue_pairs": len(setting.pairs),
        "offered_bps": setting.flow_bps,
        "arms": [summarise_arm(arm, [run for run in runs if run["arm"] == arm]) for arm in arms],
        "runs": runs,
    }


def summarise_arm(arm: str, runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """An arm over all its cuts."""
    outages = [outage for run in runs for outage in run["outages_ns"]]
    p50, p99 = (float(value) for value in np.quantile(outages, (0.5, 0.99))) if outages else (None, None)
    return {
        "arm": arm,
        "cuts": len(runs),
        "queue_pairs_hit": len(outages),
        "outage_p50_ns": p50,
        "outage_p99_ns": p99,
        "outage_max_ns": max(outages, default=None),
        "queue_pairs_died": sum(run["queue_pairs_died"] for run in runs),
        **{
            f"{name}_{what}": float(of([run[name] for run in runs]))
            for name in ("dark_share", "healed_share")
            for what, of in (("median", np.median), ("min", np.min))
        },
        "retransmitted_packets": sum(run["retransmitted_packets"] for run in runs),
        "moves": sum(run["moves"] for run in runs),
        "idle_share": float(np.median([run["idle_share"] for run in runs])),
    }


def _one_cut(lab: Lab, setting: Setting, kind: Kind, seed: int) -> dict[str, Any]:
    """New queue pairs, one cut, one mending."""
    rng = random.Random(seed)
    made: list[tuple[Cut, int, int]] = []

    def during(_: Generator) -> None:
        time.sleep(STEERED_S)
        cut = draw_cut(kind, links_in_use(lab, setting.flow_bps / 2), lab.topology, rng)
        cut_ns = time.monotonic_ns()
        cut.make(lab.name)
        try:
            time.sleep(DARK_S)
        finally:
            mended_ns = time.monotonic_ns()
            cut.mend(lab.name)
        made.append((cut, cut_ns, mended_ns))
        time.sleep(MENDED_S)

    result = send(lab, setting.flows(seed), 0.0, during=during)
    if kind is Kind.CARRIER:
        for link in made[0][0].links:
            faults.drop(lab.name, link, 0.0)
    return summarise_cut(setting, made[0][0], result, *made[0][1:])


def _shown(run: dict[str, Any]) -> str:
    worst = ms(max(run["outages_ns"], default=None))
    return (
        f"{run['cut']} {run['kind']}: {len(run['outages_ns'])} queue pairs hit, the longest outage {worst} ms, "
        f"{run['queue_pairs_died']} died; {share(run['dark_share'])} after {GRACE_S:.0f} s"
    )


def _render(result: dict[str, Any]) -> RenderableType:
    table = new_table(
        "ARM",
        ("CUTS", "HIT", "P50", "P99", "DIED", "AFTER", "LEAST", "HEALED", "LEAST", "AGAIN", "MOVES", "IDLE"),
    )
    for row in result["arms"]:
        table.add_row(
            row["arm"],
            str(row["cuts"]),
            str(row["queue_pairs_hit"]),
            ms(row["outage_p50_ns"]),
            ms(row["outage_p99_ns"]),
            str(row["queue_pairs_died"]),
            share(row["dark_share_median"]),
            share(row["dark_share_min"]),
            share(row["healed_share_median"]),
            share(row["healed_share_min"]),
            str(row["retransmitted_packets"]),
            str(row["moves"]),
            share(row["idle_share"]),
        )
    lab = result["lab"]
    return Group(
        table,
        "HIT: queue pairs that lost packets and sent on; P50, P99 from the cut to their last loss, in ms; DIED for "
        f"good; goodput AFTER {GRACE_S:.0f} s of what the surviving links can carry, and {HEALED_S:.0f} s after the "
        "link HEALED of what it was before, at the median and the least; AGAIN: packets sent again; IDLE: the "
        "machine's processors",
        f"links {format_rate(lab['rate_bps'])}, spines {format_rate(lab['spine_rate_bps'])}; "
        f"{result['queue_pairs']} queue pairs offer {result['offered_bps'] / 1e6:.1f} Mbit/s each; "
        f"clocks {lab['clocks']}",
    )
