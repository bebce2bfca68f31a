"""How well jobs are inferred: drawn jobs of all kinds, told as hosts would, and what `manager.jobs` makes of them. Pure."""

import random
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from manager.jobs.inference import WINDOW_NS, Job, infer
from tools.sim.jobs.world import EPOCH_NS, World, ends_of, job, play, spoiled, with_noise

KINDS = ("ring", "all-to-all", "pipeline", "tree")
NICS_A_JOB = 8
SECONDS = 32
NOW_NS = EPOCH_NS + WINDOW_NS + 10**9
LATE = 0.2
NOISE_A_NIC = 2

Place = Literal["apart", "shared"]
Trouble = Literal["none", "spoiled", "noise", "both"]
PLACES: tuple[Place, ...] = "apart", "shared"
TROUBLES: tuple[Trouble, ...] = "none", "spoiled", "noise", "both"


def many_jobs(seed: int, place: Place, trouble: Trouble = "none") -> World:
    """One to eight jobs of all kinds, on hosts of their own, or each two on NICs that they share."""
    rng, count = random.Random(f"{seed} {place}"), 1 + seed % 8
    ends = ends_of([(f"h{i}", "nic0") for i in range(1, NICS_A_JOB * count + 1)])
    names, plans = list(ends), []
    for number in range(count):
        first = NICS_A_JOB * (number // 2 if place == "shared" else number)
        plans.append(
            job(
                ends,
                rng.choice(KINDS),
                rng.sample(names[first : first + NICS_A_JOB], rng.choice([4, 8])),
                rng.uniform(80, 900),
                jitter=rng.choice([0.0, 0.002, rng.uniform(0.01, 0.08)]),
                seed=100 * seed + number,
            )
        )
    return _troubled(play(plans, ends, SECONDS, seed=seed), seed, trouble)


def one_job(seed: int, kind: str, *, is_late: bool) -> tuple[World, str]:
    """A job, every second time told of badly, and which of its ranks computes a fifth longer; empty for none."""
    rng = random.Random(f"{seed} {kind} {is_late}")
    ends = ends_of([(f"h{i}", "nic0") for i in range(1, rng.choice([5, 6, 8]) + 1)])
    names = list(ends)
    straggler = rng.choice(names) if is_late else ""
    plan = job(
        ends,
        kind,
        rng.sample(names, len(names)),
        rng.uniform(100, 900),
        jitter=rng.choice([0.0, 0.02, 0.05]),
        seed=seed,
        stragglers={straggler: LATE} if is_late else {},
        buffer_bytes=rng.choice([10**7, 5 * 10**7, 2 * 10**8]),
    )
    return _troubled(
        play([plan], ends, SECONDS, seed=seed), seed, "spoiled" if seed % 2 else "none"
    ), straggler


def members_right(world: World) -> tuple[int, int]:
    """How many flows are in a job with just those that they belong to, and how many there are."""
    found = {frozenset(tuple(flow) for flow in one.flows) for one in inferred(world)}
    found |= {frozenset([flow]) for flow in _flows(world) - frozenset().union(*found)}
    return sum(len(mine) for mine in world.jobs if frozenset(mine) in found), len(_flows(world))


def inferred(world: World) -> list[Job]:
    """What the manager makes of it."""
    return infer(world.rings, world.owners, {}, NOW_NS)


def period_error(world: World, found: Job) -> float:
    """By what share the mean iteration is off that of the same iterations in truth."""
    if found.period_ns is None:
        return float("inf")
    starts = world.starts_ns[0]
    first, last = (int(np.argmin(abs(starts - at))) for at in (found.starts_ns[0], found.starts_ns[-1]))
    truth = float(starts[last] - starts[first]) / (len(found.starts_ns) - 1)
    return abs(found.period_ns / truth - 1)


@dataclass(frozen=True)
class Verdict:
    """Of one job: how far its period is off, and whether the straggler is `right`, `missed` or `wrong`."""

    period_error: float
    straggler: str


def judge(seed: int, kind: str, *, is_late: bool) -> Verdict:
    """Infer a drawn job and compare."""
    world, straggler = one_job(seed, kind, is_late=is_late)
    jobs = inferred(world)
    if len(jobs) != 1:
        return Verdict(float("inf"), "missed")
    named = [one.nic for one in jobs[0].stragglers]
    truth = [straggler] if straggler else []
    return Verdict(
        period_error(world, jobs[0]), "right" if named == truth else "wrong" if named else "missed"
    )


def figures(seeds: Iterable[int]) -> list[dict[str, Any]]:
    """Members by where jobs are and what trouble there is; periods and stragglers by kind."""
    seeds, rows = list(seeds), list[dict[str, Any]]()
    for place in PLACES:
        for trouble in TROUBLES:
            counts = [members_right(many_jobs(seed, place, trouble)) for seed in seeds]
            good, total = (sum(each) for each in zip(*counts, strict=True))
            rows.append(_row(f"{place}_{trouble}", members_right=good / total))
    for kind in KINDS:
        verdicts = [judge(seed, kind, is_late=is_late) for seed in seeds for is_late in (False, True)]
        late = Counter(each.straggler for each in verdicts[1::2])
        well = Counter(each.straggler for each in verdicts[::2])
        rows.append(
            _row(
                f"job_{kind}",
                period_right=float(np.mean([each.period_error <= 0.01 for each in verdicts])),
                straggler_right=late["right"] / len(seeds),
                straggler_wrong=late["wrong"] / len(seeds),
                healthy_wrong=well["wrong"] / len(seeds),
            )
        )
    return rows


def _row(name: str, **shares: float) -> dict[str, Any]:
    """Shares of 1; those that are not asked for are None."""
    names = "members_right", "period_right", "straggler_right", "straggler_wrong", "healthy_wrong"
    return {"name": name, **{each: shares.get(each) for each in names}}


def _troubled(world: World, seed: int, trouble: Trouble) -> World:
    rng = np.random.default_rng(seed)
    if trouble in ("noise", "both"):
        world = with_noise(world, rng, NOISE_A_NIC, SECONDS)
    return spoiled(world, rng) if trouble in ("spoiled", "both") else world


def _flows(world: World) -> frozenset[tuple[str, str, int]]:
    return frozenset().union(*world.jobs)
