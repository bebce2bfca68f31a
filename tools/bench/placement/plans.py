"""Placement of queue pairs over a fabric of 8,192 NICs: how long it takes, and how far it is from the bound."""

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from manager.placement import (
    Demand,
    Fabric,
    PathSet,
    fullest,
    improve,
    place,
    replace_lost,
)
from manager.placement.bounds import lower_bound, optimum
from manager.planner.candidates import MOST_CANDIDATES
from tools.bench.figures import Figure, figure

LEAVES, HOSTS, SPINES, QUEUE_PAIRS = 128, 64, 64, 100_000
FULL_TARGET_S, INCREMENTAL_TARGET_S = 2.0, 0.1
OVER_BOUND = 1.05
CLOSE_ENOUGH = 1.03
LINK_BPS = 400e9
SMALL = ((4, 3), (8, 8), (6, 4))
PODS, POD_LEAVES, POD_SPINES, CORES = 16, 8, 8, 8
"""Of the fabric with three tiers, which has as many NICs as the large one."""

Indices = NDArray[np.intp]
_T = TypeVar("_T")


def figures() -> Iterator[Figure]:
    """A full plan, plans after failures, and small fabrics against the linear program."""
    for name, spread in (("equal rates", 0.0), ("rates within a factor of 3", 0.5)):
        yield from _large(name, spread)
    yield from _pods()
    for leaves, spines in SMALL:
        yield _small(leaves, spines)


def _pods() -> Iterator[Figure]:
    """Three tiers, of whose many paths each pair has as many candidates as a planner looks at."""
    rng = np.random.default_rng(2)
    fabric = _three_tiers(rng)
    demand = _everybody_to_strangers(PODS * POD_LEAVES, HOSTS, QUEUE_PAIRS, 0.5, rng)
    bound = lower_bound(fabric, demand)
    took_s, choice = _timed(lambda: _plan(fabric, demand, bound))
    reference = {"queue_pairs": len(demand.pair), "pods": PODS, "spines": POD_SPINES, "cores": CORES}
    yield figure("placement, three tiers: full plan", took_s, "s", reference, FULL_TARGET_S)
    over = fullest(fabric, demand, choice) / bound
    name = "placement, three tiers: fullest link over its lower bound"
    yield figure(name, over, "", {"bound": round(bound, 4)}, OVER_BOUND)


def _large(name: str, spread: float) -> Iterator[Figure]:
    rng = np.random.default_rng(1)
    fabric = _leaf_spine(LEAVES, SPINES)
    demand = _everybody_to_strangers(LEAVES, HOSTS, QUEUE_PAIRS, spread, rng)
    bound = lower_bound(fabric, demand)
    took_s, choice = _timed(lambda: _plan(fabric, demand, bound))
    reference = {"queue_pairs": len(demand.pair), "nics": LEAVES * HOSTS, "spines": SPINES}
    yield figure(f"placement, {name}: full plan", took_s, "s", reference, FULL_TARGET_S)
    over = fullest(fabric, demand, choice) / bound
    yield figure(
        f"placement, {name}: fullest link over its lower bound",
        over,
        "",
        {"bound": round(bound, 4)},
        OVER_BOUND,
    )
    yield from _failures(name, fabric, demand, choice, rng)


def _failures(
    name: str, fabric: Fabric, demand: Demand, choice: Indices, rng: np.random.Generator
) -> Iterator[Figure]:
    took, over, moved = [], [], []
    for _ in range(10):
        leaf, spine = int(rng.integers(LEAVES)), int(rng.integers(SPINES))
        dead = [leaf * SPINES + spine, LEAVES * SPINES + leaf * SPINES + spine]
        capacity = fabric.capacity_bps.copy()
        capacity[dead] = 0.0
        broken = Fabric(capacity, fabric.paths)
        took_s, after = _timed(partial(_replan, broken, demand, choice))
        took.append(took_s)
        over.append(fullest(broken, demand, after) / lower_bound(broken, demand))
        moved.append(int(np.count_nonzero(after != choice)))
    reference = {"queue_pairs_moved": [min(moved), max(moved)], "failures": len(took)}
    yield figure(
        f"placement, {name}: plan after a link died, worst", max(took), "s", reference, INCREMENTAL_TARGET_S
    )
    yield figure(
        f"placement, {name}: fullest link over its lower bound after that, worst",
        max(over),
        "",
        None,
        OVER_BOUND,
    )


def _small(leaves: int, spines: int) -> Figure:
    """A fabric with one slow spine, against what would be possible if queue pairs could be split."""
    rng = np.random.default_rng(leaves * spines)
    fabric = _leaf_spine(leaves, spines, slow=0.5)
    demand = _everybody_to_strangers(leaves, 8, leaves * spines * 16, 0.5, rng)
    found = fullest(fabric, demand, _plan(fabric, demand, 0.0))
    best = optimum(fabric, demand)
    name = (
        f"placement, {leaves} leaves, {spines} spines, one at half rate: fullest link over the LP's optimum"
    )
    return figure(name, found / best, "", {"queue_pairs": len(demand.pair)}, OVER_BOUND)


def _plan(fabric: Fabric, demand: Demand, bound: float) -> Indices:
    return improve(fabric, demand, place(fabric, demand), target=bound * CLOSE_ENOUGH)


def _replan(fabric: Fabric, demand: Demand, choice: Indices) -> Indices:
    after = replace_lost(fabric, demand, choice)
    return improve(fabric, demand, after, target=lower_bound(fabric, demand) * CLOSE_ENOUGH)


def _timed(work: Callable[[], _T]) -> tuple[float, _T]:
    started = time.process_time()
    made = work()
    return time.process_time() - started, made


def _leaf_spine(leaves: int, spines: int, slow: float = 1.0) -> Fabric:
    """Pair a * leaves + b leads from leaf a to leaf b; the first spine's links have another rate."""
    up = np.arange(leaves * spines).reshape(leaves, spines)
    down = up + leaves * spines
    pair = np.arange(leaves * leaves)
    capacity = np.full(2 * leaves * spines, LINK_BPS)
    capacity[up[:, 0]] *= slow
    capacity[down[:, 0]] *= slow
    return Fabric(capacity, PathSet(np.stack([up[pair // leaves], down[pair % leaves]]), 2 * leaves * spines))


def _three_tiers(rng: np.random.Generator) -> Fabric:
    """Pair a * leaves + b leads from leaf a to leaf b over drawn spines and cores; no tier is oversubscribed."""
    leaves, spines = PODS * POD_LEAVES, PODS * POD_SPINES
    counts = (leaves * POD_SPINES, spines * CORES, spines * CORES, leaves * POD_SPINES)
    starts = np.cumsum([0, *counts])
    pair = np.arange(leaves * leaves)
    a, b = (each[:, None] for each in divmod(pair, leaves))
    up, core, down = rng.integers(
        0, [[[POD_SPINES]], [[CORES]], [[POD_SPINES]]], (3, len(pair), MOST_CANDIDATES)
    )
    is_near = a // POD_LEAVES == b // POD_LEAVES
    down = np.where(is_near, up, down)
    above = [(leaf // POD_LEAVES * POD_SPINES + spine) * CORES + core for leaf, spine in ((a, up), (b, down))]
    links = np.stack(
        [
            a * POD_SPINES + up,
            np.where(is_near, starts[-1], starts[1] + above[0]),
            np.where(is_near, starts[-1], starts[2] + above[1]),
            starts[3] + b * POD_SPINES + down,
        ]
    )
    to_spine_bps = LINK_BPS * HOSTS / POD_SPINES
    to_core_bps = to_spine_bps * POD_LEAVES / CORES
    capacity = np.repeat([to_spine_bps, to_core_bps, to_core_bps, to_spine_bps], counts)
    return Fabric(capacity, PathSet(links, int(starts[-1])))


def _everybody_to_strangers(
    leaves: int, hosts: int, queue_pairs: int, spread: float, rng: np.random.Generator
) -> Demand:
    """Every NIC sends to as many others, drawn as permutations; those under the same leaf cross no spine."""
    nics = leaves * hosts
    rounds = -(-queue_pairs // nics)
    src = np.tile(np.arange(nics), rounds)[:queue_pairs] // hosts
    dst = np.concatenate([rng.permutation(nics) for _ in range(rounds)])[:queue_pairs] // hosts
    crosses = src != dst
    count = int(np.count_nonzero(crosses))
    rate_bps = LINK_BPS / rounds * rng.uniform(1 - spread, 1 + spread, count)
    return Demand((src * leaves + dst)[crosses], rate_bps)
