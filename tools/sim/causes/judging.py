"""How well and how soon it is said why jobs are slow, and how seldom where they are not. Pure."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from statistics import median
from typing import Any

from tools.sim.causes.drawn import KINDS, RIGHT, Drawn, Pace
from tools.sim.causes.manager import LOOK_S, Manager, Told

WITHIN_S = 10.0
FIRST_S = 3.0
S_NS = 1_000_000_000

SLOWED: Mapping[str, Pace] = {"usual": Pace(), "jittery": Pace(jitter=0.08)}
"""Jobs to which something is done."""

WELL: Mapping[str, Drawn] = {
    name: Drawn(kind="healthy", seed=0, pace=pace, ends_s=max(75.0, 30 * pace.iteration_s))
    for name, pace in {
        "even": Pace(jitter=0.0),
        "usual": Pace(),
        "very_jittery": Pace(jitter=0.15),
        "all_to_all": Pace(collective="all-to-all"),
        "quick": Pace(iteration_s=0.3),
        "slow": Pace(iteration_s=3.0),
        "very_slow": Pace(iteration_s=10.0),
        "hardly_sending": Pace(sending=0.05),
        "long_checkpoints": Pace(checkpoint=(20, 4 * S_NS)),
        "short_checkpoints": Pace(checkpoint=(5, S_NS // 4)),
    }.items()
} | {
    "ending": Drawn(kind="healthy", seed=0, stops_s=40.0),
    "beside_one_that_begins": Drawn(kind="healthy", seed=0, beside_s=(25.0, 75.0)),
    "beside_one_that_ends": Drawn(kind="healthy", seed=0, beside_s=(0.0, 40.0)),
}
"""Jobs to which nothing is done."""

Json = dict[str, Any]


def figures(seeds: Iterable[int]) -> list[Json]:
    """A row for each kind of trouble, and for each kind of job that is well: inferred, with what ranks tell, and by that alone."""
    seeds = list(seeds)
    return [
        _row(name, [replace(drawn, seed=seed) for seed in seeds], plugged=plugged, seen=seen)
        for plugged, seen in ((False, True), (True, True), (True, False))
        for name, drawn in _cases().items()
    ]


def _cases() -> dict[str, Drawn]:
    """What is played with each seed, by name."""
    slowed = {
        f"{kind}_{name}": Drawn(kind=kind, seed=0, pace=pace)
        for name, pace in SLOWED.items()
        for kind in KINDS[1:]
    }
    return slowed | {f"healthy_{name}": drawn for name, drawn in WELL.items()}


def _row(name: str, cases: list[Drawn], *, plugged: bool, seen: bool) -> Json:
    outcomes, times = Counter[str](), list[float]()
    for drawn in cases:
        told = Manager(drawn, plugged=plugged, seen=seen).run(FIRST_S + drawn.seed * LOOK_S / len(cases))
        outcome, after_s = judged(drawn, told)
        outcomes[outcome] += 1
        times += [] if after_s is None else [after_s]
    return {
        "name": name,
        "plug_in": plugged,
        "bursts_seen": seen,
        "cases": len(cases),
        **{outcome: outcomes[outcome] for outcome in ("right", "late", "missed", "wrong")},
        "after_p50_s": round(median(times), 1) if times else None,
        "after_max_s": round(max(times), 1) if times else None,
    }


def judged(drawn: Drawn, told: Iterable[Told]) -> tuple[str, float | None]:
    """Whether it is `right`, `late`, `missed`, or `wrong`: another cause was told before; and how long after it began it was told.

    That no rule says why is no other cause, but of a job that is well.
    """
    known = [each for each in told if each.cause.kind != "unknown" or drawn.kind == "healthy"]
    right = [each for each in known if _is_right(drawn, each)]
    if known and known[:1] != right[:1]:
        return "wrong", None
    if not right:
        return ("right" if drawn.kind == "healthy" else "missed"), None
    after_s = right[0].at_s - drawn.since_s
    return ("right" if after_s <= WITHIN_S else "late"), after_s


def _is_right(drawn: Drawn, told: Told) -> bool:
    is_there = told.cause.subject == drawn.bad_name if drawn.kind == "rival" else told.cause.rank == drawn.nic
    return told.at_s >= drawn.since_s and told.cause.kind in RIGHT[drawn.kind] and is_there
