"""The clock's figures in simulation, and the graph solve at fleet size."""

from collections.abc import Iterator
from typing import Any

from tools.sim.clocks.clos import ClosOptions, ClosSimulation
from tools.sim.clocks.solve import solve
from tools.sim.clocks.two_node import two_node

SEED = 20
TWO_NODE_S = 60.0
CLOS_S = {248: 24.0, 1000: 17.0}
SOLVE_RUNS = 3

Figure = dict[str, Any]


def figures() -> Iterator[Figure]:
    """Two nodes, the Clos, and the solve; about two minutes."""
    for pairs_per_s, targets in ((128, (2.0, 2.0, 5.0)), (1000, (2.0, 2.0, 2.0))):
        for queued, target in zip((0.0, 0.4, 0.9), targets, strict=True):
            yield from _two_node(queued, pairs_per_s, target)
    for nics in CLOS_S:
        yield from _clos(nics)
    yield _solve(100_000, 1_000_000, 0.5)
    yield _solve(1_000_000, 5_000_000, 5.0)


def _figure(name: str, value: float, unit: str, target: float, reference: Any = None, *, met: bool) -> Figure:
    return {"name": name, "value": value, "unit": unit, "reference": reference, "target": target, "met": met}


def _two_node(queued: float, pairs_per_s: int, target: float) -> Iterator[Figure]:
    """Error beside the two plain filters'; under heavy queueing it must also beat them."""
    result = two_node(queued, pairs_per_s, TWO_NODE_S, SEED)
    error = result.fit_p99_ns
    reference = {
        "minimum_delay_p99_ns": result.minimum_delay_p99_ns,
        "two_way_median_p99_ns": result.two_way_median_p99_ns,
    }
    met = error <= target
    if queued >= 0.9:
        met &= error <= result.minimum_delay_p99_ns and 50 * error <= result.two_way_median_p99_ns
    yield _figure(f"two_node_q{queued:g}_{pairs_per_s}pps_p99", error, "ns", target, reference, met=met)


def _clos(nics: int) -> Iterator[Figure]:
    """Error at two loads; then with asymmetric paths and liars, against what it was without."""
    for load, target in ((0.4, 10.0), (0.8, 30.0)):
        plain = ClosSimulation(ClosOptions(nics=nics, load=load, seconds=CLOS_S[nics], seed=SEED)).run()
        name = f"clos_{nics}_load{load:g}"
        yield _figure(f"{name}_p99", plain.p99_ns, "ns", target, met=plain.p99_ns <= target)
        yield _figure(f"{name}_bound_held", plain.bound_held, "ratio", 0.999, met=plain.bound_held >= 0.999)
        width = plain.bound_over_p99
        yield _figure(f"{name}_bound_over_p99", width, "ratio", 5.0, met=width <= 5)
        if nics == min(CLOS_S):
            options = ClosOptions(
                nics=nics, load=load, seconds=CLOS_S[nics], seed=SEED, asymmetric=0.02, liars=0.01
            )
            bad = ClosSimulation(options).run()
            met = bad.p99_ns <= 2 * plain.p99_ns
            yield _figure(f"{name}_liars_p99", bad.p99_ns, "ns", 2 * plain.p99_ns, plain.p99_ns, met=met)


def _solve(nodes: int, edges: int, target_s: float) -> Figure:
    """Best of a few runs: the machine's other work only ever adds to a time."""
    runs = [solve(nodes, edges, SEED) for _ in range(SOLVE_RUNS if edges <= 1_000_000 else 1)]
    best = min(runs, key=lambda run: run.seconds)
    reference = {"peak_mib": best.peak_mib, "error_over_least_squares": best.error_ratio}
    met = best.seconds <= target_s
    return _figure(f"solve_{nodes}_nodes_{edges}_edges", best.seconds, "s", target_s, reference, met=met)
