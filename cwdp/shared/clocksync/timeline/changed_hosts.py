"""Hosts whose clocks have changed, placed against the others from what was measured since.

The others are solved as ever and stand still here: they are one node. Offsets and rates of those that have changed come
from two small least-squares problems at the newest instant, anew each round, since windows that grow share their data.
"""

from dataclasses import dataclass, replace

import numpy as np

from cwdp.shared.clocksync._types import F64, NS_PER_S, Bool
from cwdp.shared.clocksync.graph.laplacian import Laplacian
from cwdp.shared.clocksync.graph.pairs import PairFloors
from cwdp.shared.clocksync.graph.propagate import components, sigma_at
from cwdp.shared.clocksync.graph.robust import RobustSolution, robust_solve
from cwdp.shared.clocksync.graph.solve import GraphEdges, OwnFits, Prediction, measured
from cwdp.shared.clocksync.timeline.hostlines import HostLines

_LEAST_SIGMA_NS = 1.0
_LEAST_SIGMA_DRIFT_NS = 1.0
_EXACT_UP_TO = 512
SPREAD_NS = 150.0
"""How far a clock may have gone before it is seen to go."""

_JUMP_SIGMAS = 4.0
_WILDEST_NS = 100e-6 * NS_PER_S


@dataclass(frozen=True, slots=True)
class Placed:
    """Where hosts are instead of where they were predicted.

    Attributes:
        found: bool [hosts], edges tie the host to those that have not changed, or to most of all if all have.
        ahead_ns, sigma_ns: float64 [hosts], global - local less the prediction, and its standard error.
        drift, sigma_drift: float64 [hosts], d(global - local) / d(global), ns per s, and its standard error.
    """

    found: Bool
    ahead_ns: F64
    sigma_ns: F64
    drift_ns: F64
    sigma_drift_ns: F64

    def against(self, more_ns: F64) -> "Placed":
        """The same, where the prediction is float64 [hosts] ns further back."""
        return replace(self, ahead_ns=self.ahead_ns + more_ns)


def place(
    edges: GraphEdges,
    own: OwnFits,
    changed: Bool,
    *,
    prediction: Prediction,
    before: HostLines,
    floors: PairFloors,
) -> Placed | None:
    """Place the changed hosts.

    Args:
        edges: fits of data from after the changes, each with at least one end that has changed.
        own: what changed hosts say of themselves.
        changed: bool [hosts].
        prediction: of all hosts at the newest instant; of the changed ones as last found.
        before: all hosts at the newest instant; where the changed ones would be had they not.
        floors: of all pairs, from before: what stamping points differ by. The ends of a pair notice a change one after
            the other, so each directed fit is taken for itself.

    Returns:
        Of use where `found`; None where there is no fit at all.
    """
    if prediction.instant_ns is None:
        return None
    good = edges.where(edges.fits.valid)
    if len(good.src) + len(own.host) == 0:
        return None
    node = np.where(changed, np.cumsum(changed), 0)
    instant = prediction.instant_ns
    others_ns = np.where(changed, 0.0, np.sqrt(before.var))
    bias_ns, sigma_bias_ns = floors.bias(good.src, good.dst, good.path)
    sigma = sigma_at(good.fits, instant - prediction.g_ns[good.src], 0.0)
    sigma = np.hypot(np.hypot(sigma, sigma_bias_ns), np.hypot(others_ns[good.src], others_ns[good.dst]))
    y = measured(good, prediction.g_ns, instant) - bias_ns
    guess = -np.log1p(-prediction.drift) * NS_PER_S
    slope = np.log1p(np.clip(good.fits.slope, -0.5, 0.5)) * NS_PER_S - (guess[good.src] - guess[good.dst])
    sigma_slope = np.maximum(good.fits.sigma_slope * NS_PER_S, _LEAST_SIGMA_DRIFT_NS)
    own_y, own_sigma, own_slope, own_sigma_slope = _of_own(own, prediction, before)
    ground = np.zeros(len(own.host), np.int64)
    lap = Laplacian(
        int(changed.sum()) + 1,
        np.append(node[good.src], node[own.host]),
        np.append(node[good.dst], ground),
    )
    offsets = _solve(lap, np.append(y, own_y), np.maximum(np.append(sigma, own_sigma), _LEAST_SIGMA_NS))
    drifts = _solve(lap, np.append(slope, own_slope), np.append(sigma_slope, own_sigma_slope))
    rate = guess + drifts.x_ns[node]
    return Placed(
        found=changed & offsets.found[node] & drifts.found[node],
        ahead_ns=offsets.x_ns[node],
        sigma_ns=offsets.sigma_ns[node],
        drift_ns=-np.expm1(-rate / NS_PER_S) * NS_PER_S,
        sigma_drift_ns=drifts.sigma_ns[node],
    )


def _of_own(own: OwnFits, prediction: Prediction, before: HostLines) -> tuple[F64, F64, F64, F64]:
    """As if an edge led to those that stand still: offset and rate against the prediction, and their standard errors.

    A clock that is ahead by x stands x less below the timeline.
    """
    host, instant = own.host, before.ref_ns[own.host]
    since_s = (instant - prediction.g_ns[host] - own.ref_ns) / NS_PER_S
    g_before = (before.g_ns - prediction.g_ns)[host] + before.frac_ns[host]
    y = g_before - (own.ahead_ns + own.rate * NS_PER_S * since_s)
    guess = -np.log1p(-prediction.drift[host]) * NS_PER_S
    was = -np.log1p(-before.drift_ns[host] / NS_PER_S) * NS_PER_S
    sigma_rate = np.maximum(own.sigma_rate * NS_PER_S, _LEAST_SIGMA_DRIFT_NS)
    return y, np.hypot(own.sigma_ns, sigma_rate * since_s), was - own.rate * NS_PER_S - guess, sigma_rate


@dataclass(frozen=True, slots=True)
class _Nodes:
    found: Bool
    x_ns: F64
    sigma_ns: F64


def _solve(lap: Laplacian, y: F64, sigma: F64) -> _Nodes:
    """Values of the nodes against node 0; where that has no edge, against the median of the largest component."""
    solved = robust_solve(lap, y, sigma, np.ones(len(y), bool))
    used = solved.weight > 0
    number = components(lap.n_nodes, lap.a[used], lap.b[used])
    has_edge = lap.node_sum(solved.weight) > 0
    anchored = bool(has_edge[0])
    main = number[0] if anchored else np.argmax(np.bincount(number[has_edge])) if has_edge.any() else -1
    found = has_edge & (number == main)
    middle = solved.x_ns[0] if anchored else float(np.median(solved.x_ns[found])) if found.any() else 0.0
    variance = _variance(lap, solved) if anchored else lap.variance(solved.weight)
    sigma = np.where(found, np.sqrt(np.where(found, variance, 1.0)) * solved.inflation, np.inf)
    return _Nodes(found, solved.x_ns - middle, np.maximum(sigma, _LEAST_SIGMA_NS))


def _variance(lap: Laplacian, solved: RobustSolution) -> F64:
    """Of each node against node 0: exact for few, else as of a well-connected graph."""
    if lap.n_nodes > _EXACT_UP_TO:
        return lap.variance(solved.weight)
    matrix = np.diag(lap.node_sum(solved.weight))
    np.add.at(matrix, (lap.a, lap.b), -solved.weight)
    np.add.at(matrix, (lap.b, lap.a), -solved.weight)
    kept = np.arange(lap.n_nodes) != 0
    variance = np.zeros(lap.n_nodes)
    variance[kept] = np.diag(np.linalg.pinv(matrix[np.ix_(kept, kept)], hermitian=True))
    return np.maximum(variance, 0.0)


@dataclass(frozen=True, slots=True)
class Fused:
    """State against the prediction, and its covariance: float64 [hosts], ns, ns per s, and products of these."""

    ahead_ns: F64
    drift_ns: F64
    var: F64
    cov: F64
    var_drift: F64


def fuse(placed: Placed, predicted_drift_ns: F64, var_before: F64, since_s: F64, wildest_ns: F64) -> Fused:
    """What was placed, with what was known when the clock changed: its line goes through there, at whatever rate.

    A clock that has jumped instead shows in that it does not.

    Args:
        placed: against the prediction.
        predicted_drift_ns: float64 [hosts], as before the change, ns per s.
        var_before: float64 [hosts], variance of where the clock stood when it changed, ns**2.
        since_s: float64 [hosts], how long ago that was.
        wildest_ns: float64 [hosts], standard deviation of the change of drift, ns per s, above 0.
    """
    since_s = np.maximum(since_s, 0.0)
    v = var_before + SPREAD_NS**2
    drift = placed.drift_ns - predicted_drift_ns
    of_offset, of_drift = placed.sigma_ns**-2.0, placed.sigma_drift_ns**-2.0
    sure = of_drift + np.maximum(wildest_ns, 1.0) ** -2.0
    off = placed.ahead_ns - since_s * drift * of_drift / sure
    jumped = off**2 > _JUMP_SIGMAS**2 * (v + since_s**2 / sure + placed.sigma_ns**2)
    through = np.where(jumped, 0.0, 1 / v)
    a = through + of_offset
    b = -since_s * through
    c = since_s**2 * through + of_drift + np.where(jumped, _WILDEST_NS, np.maximum(wildest_ns, 1.0)) ** -2.0
    det = a * c - b * b
    x, z = of_offset * placed.ahead_ns, of_drift * drift
    return Fused((c * x - b * z) / det, (a * z - b * x) / det, c / det, -b / det, a / det)
