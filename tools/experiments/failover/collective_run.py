"""`cwdp lab run failover --collective`: every arm with jobs that a cut hits, and what their iterations lost by it."""

import random
from collections.abc import Sequence
from functools import partial

from rich.console import Group, RenderableType

from cwdp.shared.rates import format_rate
from tools.experiments.collectives.jobs import SETTLE_S, Json
from tools.experiments.collectives.options import describe_jobs
from tools.experiments.failover.collective import BEFORE_S, PARTS, Setting, summarise_arm, summarise_cut
from tools.experiments.failover.cutting import Case, Taken, run_cuts, send_through_cut
from tools.experiments.failover.model import DARK_S, Cut, Kind, draw_cut
from tools.experiments.report import describe_lab, ms, new_table, share
from tools.experiments.taken import links_taken
from tools.lab import Lab


def run_collectives(setting: Setting, arms: Sequence[str], kind: Kind, cuts: int, seed: int) -> Json:
    """Run the experiment; what `--json` prints.

    Args:
        setting: of all runs.
        arms: to compare.
        kind: how links die.
        cuts: for each arm.
        seed: draws the same queue pairs for each.

    Raises:
        LabError: the lab or its processes failed.
    """
    case = Case("", partial(_cut_once, setting=setting, kind=kind), _shown)
    lab, runs = run_cuts(setting.spec, arms, [case], cuts, seed)
    return {
        "lab": describe_lab(lab, setting.spec, spine_rate_bps=setting.spec.spine_rate_bps),
        "kind": str(kind),
        **setting.jobs.describe(),
        "arms": [summarise_arm(arm, [run for run in runs if run["arm"] == arm]) for arm in arms],
        "runs": runs,
    }


def render(result: Json) -> RenderableType:
    """A line an arm: what jobs lost, then how long iterations took."""
    columns = ("HIT", "STOPPED", "LOSS", "MAX", "LONGEST", "BEFORE", "CUT", "AFTER", "AGAIN", "MOVES", "IDLE")
    table = new_table("ARM", columns)
    for row in result["arms"]:
        table.add_row(
            row["arm"],
            str(row["jobs_hit"]),
            str(row["jobs_stopped"]),
            ms(row["excess_p50_ns"]),
            ms(row["excess_max_ns"]),
            ms(row["longest_max_ns"]),
            *(ms(row[f"{part}_p50_ns"]) for part in PARTS),
            str(row["retransmitted_packets"]),
            str(row["moves"]),
            share(row["idle_share"]),
        )
    lab = result["lab"]
    return Group(
        table,
        f"HIT: jobs with queue pairs whose path died, in {result['arms'][0]['cuts']} cuts ({result['kind']}) of "
        f"{DARK_S:.0f} s; STOPPED: those of them that complete no iteration any more; of the others LOSS, MAX: by how "
        "much the longest iteration of the cut exceeds the median before it, at the median and at most; LONGEST of "
        "all; medians BEFORE, of the CUT and AFTER it; all in ms; AGAIN: packets sent again; IDLE: the machine's "
        "processors",
        f"links {format_rate(lab['rate_bps'])}, spines {format_rate(lab['spine_rate_bps'])}; "
        f"{describe_jobs(result)}; clocks {lab['clocks']}",
    )


def _cut_once(lab: Lab, seed: int, *, setting: Setting, kind: Kind) -> Json:
    """New queue pairs, one cut, one mending."""
    rng = random.Random(seed)
    plan = setting.plan(seed)

    def draw() -> tuple[Cut, Taken]:
        taken = links_taken(lab, plan.flows)
        return draw_cut(kind, list(frozenset().union(*taken.values())), lab.topology, rng), taken

    result, cut, taken, span_ns = send_through_cut(
        lab, plan.flows, SETTLE_S + BEFORE_S, draw, ranks=plan.ranks
    )
    return summarise_cut(plan, cut, taken, result, span_ns)


def _shown(run: Json) -> str:
    hit = [job for job in run["jobs"] if job["queue_pairs_hit"]]
    lost = ", ".join("a job stopped" if job["stopped"] else f"{ms(job['excess_ns'])} ms lost" for job in hit)
    return f"{run['cut']} {run['kind']}: {lost}"
