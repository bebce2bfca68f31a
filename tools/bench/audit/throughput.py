"""How well rounds of flows find what is slow: over fabrics in arithmetic, and once in a lab."""

import random
import time
from collections.abc import Iterator, Mapping
from typing import Any

from manager.audit.throughput.judged import BISECTION, judged
from tools.bench.figures import Figure, figure
from tools.sim.audit.carrying import NIC_BPS, Fabric, run

SHAPES: tuple[Mapping[str, Any], ...] = (
    {},
    {"hosts": 1},
    {"hosts": 2},
    {"leaves": 3, "spines": 5, "hosts": 3},
    {"leaves": 8, "spines": 2, "hosts": 6},
    {"uplink_bps": 4 * NIC_BPS},
    {"uplink_bps": 2 * NIC_BPS},
    {"leaves": 2, "hosts": 3, "pods": 2, "cores": 2, "spines": 2},
)
CASES = 400
MOST_ROUNDS = 12
LARGE: Mapping[str, Any] = {"leaves": 32, "spines": 16, "hosts": 32}


def figures() -> Iterator[Figure]:
    """Half a minute."""
    cases = [_case(seed) for seed in range(CASES)]
    missed = sum(not named for named, _, _ in cases)
    others = sum(other for _, other, _ in cases)
    yield figure("audit.throughput.slow_links_missed", missed / CASES, "share", {"cases": CASES}, 0.0)
    yield figure("audit.throughput.others_accused", others, "results", {"cases": CASES}, 0)
    rounds = max(filled_after for _, _, filled_after in cases)
    yield figure(
        "audit.throughput.rounds_until_filled", rounds, "rounds", {"fabrics": len(SHAPES)}, MOST_ROUNDS
    )
    well = sum(_accused(seed) for seed in range(CASES))
    reference = {"cases": CASES, "flows_that_get_half_once": 0.02}
    yield figure("audit.throughput.accused_where_all_is_well", well, "results", reference, 0)
    fabric = Fabric(**LARGE)
    began_s = time.process_time()
    course, _ = run(fabric)
    took_s = time.process_time() - began_s
    nics = {"nics": len(fabric.nics), "rounds": course.done}
    yield figure("audit.throughput.planning", took_s, "s of one core", nics, None)


def _case(seed: int) -> tuple[bool, int, int]:
    """Whether a link at half its rate is named, how many results are about others, and after how many rounds all links were filled."""
    draw, shape = random.Random(seed), SHAPES[seed % len(SHAPES)]
    well = Fabric(**shape, seed=seed)
    link = draw.choice(well.ways(seed).links)
    course, _ = run(Fabric(**shape, seed=seed, slow_bps={(link.a, link.b): 0.5 * well.capacity(link)}), seed)
    results = [one for one in judged(course, {}, 0)[0] if one.check != BISECTION]
    named = [f"{link.a} > {link.b}" in one.subject + one.found for one in results]
    return any(named), len(named) - sum(named), course.filled_after


def _accused(seed: int) -> int:
    """How many results fail in a fabric that is well, in which a flow gets half of what it should now and then."""
    course, _ = run(Fabric(**SHAPES[seed % len(SHAPES)], seed=seed, accidents=0.02), seed)
    return sum(one.verdict == "fail" for one in judged(course, {}, 0)[0])
