"""How well jobs are inferred: drawn jobs of all kinds, told as hosts would, and what `manager.jobs` makes of them. Pure."""

import random
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, Literal

import numpy as np

from manager.jobs.inference import Job, infer
from manager.jobs.steps import finish
from manager.jobs.windows import LONG, SHORT, Window
from manager.queue_pairs.bursts import BurstStore
from tools.sim.jobs.world import EPOCH_NS, World, ends_of, job, play, spoiled, with_noise

KINDS = ("ring", "all-to-all", "pipeline", "tree")
NICS_A_JOB = 8
LATE = 0.2
NOTABLE = 0.02
"""By less than this share longer iterations make nobody wait."""

NOISE_A_NIC = 2


@dataclass(frozen=True)
class Pace:
    """How long jobs compute in an iteration and how much they send, and in which window they are seen.

    Attributes:
        compute_ms: the least and the most.
        buffer_bytes: of a rank; one of these is drawn.
    """

    compute_ms: tuple[float, float]
    buffer_bytes: tuple[int, ...]
    window: Window

    @property
    def now_ns(self) -> int:
        """When they are looked at."""
        return EPOCH_NS + self.window.length_ns + 10**9

    @property
    def seconds(self) -> float:
        """For so long they run."""
        return self.window.length_ns / 1e9 + 2


QUICK = Pace((80, 900), (10**7, 5 * 10**7, 2 * 10**8), SHORT)
SLOW = Pace((4_000, 15_000), (10**8, 5 * 10**8, 2 * 10**9), LONG)
"""As large models train: some ten iterations to a few dozen in all that is looked at."""

NOW_NS = QUICK.now_ns

Place = Literal["apart", "shared"]
Trouble = Literal["none", "spoiled", "noise", "both"]
PLACES: tuple[Place, ...] = "apart", "shared"
TROUBLES: tuple[Trouble, ...] = "none", "spoiled", "noise", "both"


def many_jobs(seed: int, place: Place, trouble: Trouble = "none", pace: Pace = QUICK) -> World:
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
                rng.uniform(*pace.compute_ms),
                jitter=rng.choice([0.0, 0.002, rng.uniform(0.01, 0.08)]),
                seed=100 * seed + number,
                buffer_bytes=pace.buffer_bytes[1],
            )
        )
    return _troubled(play(plans, ends, pace.seconds, seed=seed), seed, trouble, pace)


@dataclass(frozen=True)
class Drawn:
    """A job.

    Attributes:
        world: what was sent, every second time told of badly.
        straggler: which of its ranks computes a fifth longer; empty for none.
        delayed: by what share its iterations are longer for that; 0 where nobody waits for it, as others send for longer.
    """

    world: World
    straggler: str
    delayed: float


def one_job(seed: int, kind: str, *, is_late: bool, pace: Pace = QUICK) -> Drawn:
    """A job on hosts of its own."""
    rng = random.Random(f"{seed} {kind} {is_late}")
    ends = ends_of([(f"h{i}", "nic0") for i in range(1, rng.choice([5, 6, 8]) + 1)])
    names = list(ends)
    straggler = rng.choice(names) if is_late else ""
    ranks, compute_ms = rng.sample(names, len(names)), rng.uniform(*pace.compute_ms)
    jitter, buffer_bytes = rng.choice([0.0, 0.02, 0.05]), rng.choice(pace.buffer_bytes)

    def played(late: float) -> World:
        plan = job(
            ends,
            kind,
            ranks,
            compute_ms,
            jitter=jitter,
            seed=seed,
            stragglers={straggler: late} if late else {},
            buffer_bytes=buffer_bytes,
        )
        return play([plan], ends, pace.seconds, seed=seed)

    world = played(LATE if is_late else 0.0)
    delayed = _iteration_ns(world) / _iteration_ns(played(0.0)) - 1 if is_late else 0.0
    return Drawn(_troubled(world, seed, "spoiled" if seed % 2 else "none", pace), straggler, delayed)


def _iteration_ns(world: World) -> float:
    return float(np.diff(world.starts_ns[0]).mean())


def members_right(world: World, pace: Pace = QUICK) -> tuple[int, int]:
    """How many flows are in a job with just those that they belong to, and how many there are."""
    found = {frozenset(tuple(flow) for flow in one.flows) for one in inferred(world, pace)}
    found |= {frozenset([flow]) for flow in _flows(world) - frozenset().union(*found)}
    return sum(len(mine) for mine in world.jobs if frozenset(mine) in found), len(_flows(world))


def inferred(world: World, pace: Pace = QUICK) -> Sequence[Job]:
    """What the manager makes of what it keeps of it."""
    bursts = BurstStore()
    for nic, rows in world.rings.items():
        over = rows[rows["end_ns"] < pace.now_ns]
        bursts.hear([nic], over[np.argsort(over["end_ns"], kind="stable")], [len(over)], pace.now_ns)
    return finish(infer(bursts.since(pace.now_ns - LONG.length_ns), world.owners, {}, pace.now_ns)).jobs


def period_error(world: World, found: Job) -> float:
    """By what share the mean iteration is off that in truth at the same time."""
    if len(found.starts_ns) < 2:
        return float("inf")
    starts_ns = world.starts_ns[0]
    first, last = (int(np.argmin(abs(starts_ns - at))) for at in found.starts_ns[[0, -1]])
    return abs(float(np.diff(found.starts_ns).mean() / np.diff(starts_ns[first : last + 1]).mean()) - 1)


@dataclass(frozen=True)
class Verdict:
    """Of one job: how far its period is off, and whether the straggler is `right`, `missed`, `hidden` or `wrong`.

    It is hidden where none is named and nobody waits for it.
    """

    period_error: float
    straggler: str


def judge(seed: int, kind: str, *, is_late: bool, pace: Pace = QUICK) -> Verdict:
    """Infer a drawn job and compare."""
    drawn = one_job(seed, kind, is_late=is_late, pace=pace)
    jobs = inferred(drawn.world, pace)
    unnamed = "hidden" if drawn.straggler and drawn.delayed < NOTABLE else "missed"
    if len(jobs) != 1:
        return Verdict(float("inf"), unnamed)
    named = [one.nic for one in jobs[0].stragglers]
    truth = [drawn.straggler] if drawn.straggler else []
    return Verdict(
        period_error(drawn.world, jobs[0]), "right" if named == truth else "wrong" if named else unnamed
    )


def figures(seeds: Iterable[int]) -> list[dict[str, Any]]:
    """Members by where jobs are and what trouble there is; periods and stragglers by kind; also of jobs of long iterations."""
    seeds, rows = list(seeds), list[dict[str, Any]]()
    for place in PLACES:
        for trouble in TROUBLES:
            rows.append(_members(f"{place}_{trouble}", seeds, place, trouble, QUICK))
        rows.append(_members(f"{place}_both_slow", seeds, place, "both", SLOW))
    for (ending, pace), kind in product((("", QUICK), ("_slow", SLOW)), KINDS):
        verdicts = [
            judge(seed, kind, is_late=is_late, pace=pace) for seed in seeds for is_late in (False, True)
        ]
        late = Counter(each.straggler for each in verdicts[1::2])
        well = Counter(each.straggler for each in verdicts[::2])
        rows.append(
            _row(
                f"job_{kind}{ending}",
                period_right=float(np.mean([each.period_error <= 0.01 for each in verdicts])),
                straggler_right=late["right"] / max(len(seeds) - late["hidden"], 1),
                straggler_hidden=late["hidden"] / len(seeds),
                straggler_wrong=late["wrong"] / len(seeds),
                healthy_wrong=well["wrong"] / len(seeds),
            )
        )
    return rows


def _members(name: str, seeds: Sequence[int], place: Place, trouble: Trouble, pace: Pace) -> dict[str, Any]:
    counts = [members_right(many_jobs(seed, place, trouble, pace), pace) for seed in seeds]
    good, total = (sum(each) for each in zip(*counts, strict=True))
    return _row(name, members_right=good / total)


def _row(name: str, **shares: float) -> dict[str, Any]:
    """Shares of 1; those that are not asked for are None."""
    names = (
        *("members_right", "period_right", "straggler_right", "straggler_hidden"),
        *("straggler_wrong", "healthy_wrong"),
    )
    return {"name": name, **{each: shares.get(each) for each in names}}


def _troubled(world: World, seed: int, trouble: Trouble, pace: Pace) -> World:
    rng = np.random.default_rng(seed)
    if trouble in ("noise", "both"):
        world = with_noise(world, rng, NOISE_A_NIC, pace.seconds)
    return spoiled(world, rng) if trouble in ("spoiled", "both") else world


def _flows(world: World) -> frozenset[tuple[str, str, int]]:
    return frozenset().union(*world.jobs)
