"""The graph solve at the size of a large fleet: time on one core, and memory."""

import time
import tracemalloc
from dataclasses import dataclass

import numpy as np

from cwdp.shared.clocksync import EdgeFits
from cwdp.shared.clocksync._types import F64, I64
from cwdp.shared.clocksync.graph.solve import GraphEdges, Prediction, solve_graph

_INSTANT_NS = 10**15
_SIGMA_NS = 3.0
_PREDICTED_WITHIN_NS = 20


@dataclass(frozen=True, slots=True)
class SolveResult:
    """One solve of a random graph, from edge fits to clocks, assembly and error bounds included.

    `error_ratio` is the RMS error of the solved edges over sigma * sqrt((n - 1) / edges), what least
    squares reaches with independent errors.
    """

    nodes: int
    edges: int
    seconds: float
    peak_mib: float
    error_ratio: float


def solve(n_nodes: int, n_edges: int, seed: int) -> SolveResult:
    """Solve a random graph of distinct edges, each seen from one end, the costliest case."""
    rng = np.random.default_rng(seed)
    rings = max(1, n_edges // n_nodes)
    src = np.concatenate([rng.permutation(n_nodes) for _ in range(rings)]).astype(np.int64)
    dst = np.roll(src.reshape(rings, n_nodes), 1, axis=1).ravel()
    g_ns = rng.integers(-(10**9), 10**9, n_nodes)
    edges = GraphEdges.settled(src, dst, np.zeros(len(src), np.int64), _fits(src, dst, g_ns, rng))
    near = g_ns + rng.integers(-_PREDICTED_WITHIN_NS, _PREDICTED_WITHIN_NS, n_nodes)
    prediction = Prediction.of_offsets(_INSTANT_NS, near, np.ones(n_nodes, bool))
    begin = time.perf_counter()
    solution = solve_graph(edges, prediction)
    seconds = time.perf_counter() - begin
    assert solution is not None
    error = (solution.g_ns - g_ns) + solution.g_frac_ns
    of_edges = error[src] - error[dst]
    ideal = _SIGMA_NS * np.sqrt((n_nodes - 1) / len(src))
    peak = _peak_mib(edges, prediction)
    return SolveResult(n_nodes, len(src), seconds, peak, float(of_edges.std() / ideal))


def _fits(src: I64, dst: I64, g_ns: I64, rng: np.random.Generator) -> EdgeFits:
    zero: F64 = np.zeros(len(src))
    return EdgeFits(
        ref_ns=_INSTANT_NS - g_ns[src],
        offset_ns=g_ns[src] - g_ns[dst],
        offset_frac_ns=rng.normal(0, _SIGMA_NS, len(src)),
        slope=zero,
        margin_ns=zero,
        sigma_offset_ns=zero + _SIGMA_NS,
        sigma_out_ns=zero + _SIGMA_NS * np.sqrt(2),
        sigma_back_ns=zero + _SIGMA_NS * np.sqrt(2),
        sigma_slope=zero + 1e-9,
        points=zero + 10,
        pure_share=zero + 1,
        reason=np.zeros(len(src), np.uint8),
    )


def _peak_mib(edges: GraphEdges, prediction: Prediction) -> float:
    """Memory that a solve allocates at its peak; a run of its own, since tracing takes time."""
    tracemalloc.start()
    solve_graph(edges, prediction)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return peak / 2**20
