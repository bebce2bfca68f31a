"""Probe exchanges as arrays: the input of the edge fit, and its two clouds of points."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from cwdp.shared.clocksync._types import F64, I64, NS_PER_S, Bool

_AGEING = 2.0


@dataclass(frozen=True, slots=True)
class Exchanges:
    """Answered probes, all those of edge 0 first, then edge 1, ..., each edge in order of time.

    Attributes:
        t1_ns, t4_ns: int64 [probes], sent and answered, on the initiator's local clock.
        t2_ns, t3_ns: int64 [probes], received and returned, on the responder's local clock.
        starts: int64 [edges + 1], edge e owns probes starts[e] to starts[e + 1].
        weight_out, weight_back: float64 [probes], purity of the two directions (`coded.pair_purity`).
    """

    t1_ns: I64
    t2_ns: I64
    t3_ns: I64
    t4_ns: I64
    starts: I64
    weight_out: F64
    weight_back: F64


def group_by_edge(edge: npt.NDArray[np.integer], n_edges: int) -> tuple[I64, I64]:
    """Order for `Exchanges` of probes that came interleaved.

    Args:
        edge: integers [probes], the edge of each probe, 0 to n_edges - 1.
        n_edges: how many edges there are, with or without probes.

    Returns:
        (order int64 [probes] that keeps time order within an edge, starts int64 [n_edges + 1]).
    """
    order = np.argsort(edge, kind="stable")
    counts = np.bincount(edge, minlength=n_edges)
    return order, np.concatenate(([0], np.cumsum(counts))).astype(np.int64)


@dataclass(frozen=True, slots=True)
class Clouds:
    """Bounds on the offset, folded so that the lowest points of both clouds are the informative ones.

    Row 0 holds t2 - t1 over t1, upper bounds; row 1 the negated t3 - t4 over the negated t4. For a
    slope a, `value - a * x` are residuals whose lower envelope is sought in both rows. The points of every
    edge are spread over the whole row, so that a block of columns is the same share of each edge's time.

    Attributes:
        ref_ns: int64 [edges], the initiator's time at x = 0.
        base_ns: int64 [edges], taken off every offset.
        x_s: float64 [2, edges, points], seconds.
        value_ns: float64 [2, edges, points], +inf where there is no point.
        weight: float64 [2, edges, points], 0 where there is no point.
        count: int64 [edges], points of one cloud.
        span_s: float64 [edges], from the first to the last probe.
    """

    ref_ns: I64
    base_ns: I64
    x_s: F64
    value_ns: F64
    weight: F64
    count: I64
    span_s: F64


def clouds(exchanges: Exchanges, wander: F64) -> Clouds:
    """Stretch the ragged exchanges to the longest edge and fold them into clouds.

    Args:
        exchanges: the probes of all edges.
        wander: float64 [edges], random walk of the relative frequency, per sqrt(s).
    """
    index, present = _stretched(exchanges.starts)
    t1, t4 = exchanges.t1_ns[index], exchanges.t4_ns[index]
    up = exchanges.t2_ns[index] - t1
    low = exchanges.t3_ns[index] - t4
    count = np.diff(exchanges.starts)
    last = exchanges.t1_ns[np.clip(exchanges.starts[1:] - 1, exchanges.starts[:-1], len(exchanges.t1_ns) - 1)]
    span = last - t1[:, 0]
    ref = t1[:, 0] + span // 2
    base = up[:, 0]
    x = np.stack((t1 - ref[:, None], ref[:, None] - t4)) / NS_PER_S
    value = np.stack((up - base[:, None], base[:, None] - low)).astype(np.float64)
    value += _ageing_ns(last[:, None] - t1, wander[:, None])
    value[:, ~present] = np.inf
    weight = np.stack((exchanges.weight_out[index], exchanges.weight_back[index]))
    weight[:, ~present] = 0.0
    return Clouds(ref, base, x, value, weight, count, span / NS_PER_S)


def _ageing_ns(age_ns: I64, wander: F64) -> F64:
    """How far bounds are moved out for their age: twice the wander of a clock since then.

    So recent probes decide where there are enough good ones, and older ones step in under load.
    """
    age_s = np.maximum(age_ns, 0) / NS_PER_S
    moved: F64 = _AGEING * (wander * NS_PER_S / np.sqrt(3)) * age_s * np.sqrt(age_s)
    return moved


def _stretched(starts: I64) -> tuple[I64, Bool]:
    """The probe of each column of each edge, and whether it is the first column of that probe."""
    counts = np.diff(starts)[:, None]
    columns = max(int(counts.max(initial=0)), 1)
    turn = np.arange(-1, columns) * counts // columns
    index = np.minimum(starts[:-1, None] + turn[:, 1:], max(int(starts[-1]) - 1, 0))
    return index, turn[:, 1:] > turn[:, :-1]
