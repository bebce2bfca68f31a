"""`cwdp lab run contention --collective`: every arm with the queue pairs of every seed, and how long iterations took."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from rich.console import Group, RenderableType

from cwdp.cli.output import progress
from cwdp.shared.rates import format_rate
from tools.experiments import measure
from tools.experiments.collectives.iterations import over
from tools.experiments.collectives.jobs import SETTLE_S, Json
from tools.experiments.collectives.options import describe_jobs
from tools.experiments.contention.collective import Setting, summarise
from tools.experiments.contention.model import CHOOSERS, Arm
from tools.experiments.contention.rivals.hands import Hands
from tools.experiments.fleets import RARE_PULSES, running_fleet
from tools.experiments.report import describe_lab, ms, new_table, share
from tools.experiments.runs import send
from tools.lab import Lab, faults
from tools.lab.fleet.session import lab_for_run

OPEN = "open"
"""Not an arm: ECMP below spines that nobody can fill, which is as good as the best placement."""


def run_collectives(name: str, setting: Setting, arms: Sequence[Arm], seeds: Sequence[int]) -> Json:
    """Run the experiment; what `--json` prints.

    Args:
        name: of the lab.
        setting: of all runs.
        arms: to compare.
        seeds: of each arm.

    Raises:
        LabError: the lab or its processes failed.
    """
    runs: list[Json] = []
    with lab_for_run(name, setting.spec) as lab:
        with running_fleet(lab, planner=False, pulses=RARE_PULSES) as fleet:
            for seed in seeds:
                with _opened(lab, setting):
                    runs.append(_run(lab, setting, OPEN, seed))
                runs += [_run(lab, setting, arm, seed) for arm in arms if arm is not Arm.CWDP]
                fleet.check()
        if Arm.CWDP in arms:
            with running_fleet(lab, planner=True, pulses=RARE_PULSES) as fleet:
                for seed in seeds:
                    runs.append(_run(lab, setting, Arm.CWDP, seed))
                    fleet.check()
    _compare(runs)
    return {
        "lab": describe_lab(lab, setting.spec, spine_rate_bps=setting.spec.spine_rate_bps),
        **setting.jobs.describe(),
        "seconds": setting.seconds,
        "settle_s": SETTLE_S,
        "arms": [_summarise_arm(arm, runs) for arm in (OPEN, *arms)],
        "runs": runs,
    }


def render(result: Json) -> RenderableType:
    """A line an arm."""
    table = new_table("ARM", ("P50", "P99", "OVER", "MOST", "GAIN", "AGAIN", "MOVES", "IDLE"))
    for row in result["arms"]:
        gain = row["over_ecmp_median"]
        table.add_row(
            row["arm"],
            ms(row["p50_ns"]),
            ms(row["p99_ns"]),
            _times(row["over_open_median"]),
            _times(row["over_open_max"]),
            _times(gain),
            f"{row['retransmitted_packets']:.0f}",
            f"{row['moves']:.0f}",
            share(row["idle_share"]),
        )
    lab = result["lab"]
    return Group(
        table,
        f"P50, P99 of an iteration in ms, of the job that suffers most; OVER, MOST: P50 as so many times the one "
        f"below spines that nobody can fill, at the median and for the worst of {result['arms'][0]['seeds']} seeds; "
        "GAIN over ecmp; AGAIN: packets sent again; IDLE: the machine's processors",
        f"links {format_rate(lab['rate_bps'])}, spines {format_rate(lab['spine_rate_bps'])}; "
        f"{describe_jobs(result)}; clocks {lab['clocks']}",
    )


@contextmanager
def _opened(lab: Lab, setting: Setting) -> Iterator[None]:
    """The links between switches carry whatever hosts send."""
    switches = set(lab.topology.switches)
    between = [link.name for link in lab.topology.links.values() if {link.a.node, link.b.node} <= switches]
    try:
        for name in between:
            faults.slow(lab.name, name, setting.open_bps)
        yield
    finally:
        for name in between:
            faults.heal(lab.name, name)


def _run(lab: Lab, setting: Setting, arm: str, seed: int) -> Json:
    plan = setting.plan(seed)
    beside = None
    if arm in CHOOSERS:
        beside = Hands(lab, plan.flows, CHOOSERS[Arm(arm)], setting.base_ns, seed)
    found = summarise(plan, send(lab, plan.flows, setting.seconds, beside, ranks=plan.ranks))
    slowest = [ms(job["p50_ns"]) for job in found["jobs"]]
    progress(f"seed {seed}, {arm}: iterations of {', '.join(slowest)} ms, {found['moves']} moves")
    return {"arm": str(arm), "seed": seed} | found


def _compare(runs: Sequence[Json]) -> None:
    """Have each run tell how it compares with those of the same seed."""
    by_seed = {(run["arm"], run["seed"]): run for run in runs}
    for run in runs:
        run["over_open"] = over(run, by_seed[OPEN, run["seed"]])
        ecmp = by_seed.get((str(Arm.ECMP), run["seed"]))
        before, now = (_most(one, "p50_ns") if one else None for one in (ecmp, run))
        run["over_ecmp"] = before / now if before and now else None


def _summarise_arm(arm: str, runs: Iterable[Json]) -> Json:
    mine = [run for run in runs if run["arm"] == arm]
    over_open = [run["over_open"] for run in mine if run["over_open"] is not None]
    return {
        "arm": str(arm),
        "seeds": len(mine),
        "p50_ns": measure.median(_most(run, "p50_ns") for run in mine),
        "p99_ns": measure.median(_most(run, "p99_ns") for run in mine),
        "over_open_median": measure.median(over_open),
        "over_open_max": max(over_open, default=None),
        "over_ecmp_median": measure.median(run["over_ecmp"] for run in mine),
        "queue_pairs_died": sum(run["queue_pairs_died"] for run in mine),
        **{
            name: measure.median(run[name] for run in mine)
            for name in ("retransmitted_packets", "moves", "idle_share")
        },
    }


def _most(run: Json, name: str) -> float | None:
    return max((job[name] for job in run["jobs"] if job[name] is not None), default=None)


def _times(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
