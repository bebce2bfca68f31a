"""The support-vector fit: offset and relative frequency of one clock against another, per edge.

Bounds from requests lie above the true line, bounds from replies below it. The slope sought
separates the two clouds by the widest margin, as Huygens does with a linear SVM (Geng et al.,
NSDI 2018); here in the nu-SVM form. For a slope a, the mean of the few lowest residuals of each
cloud is concave in a, so the widest margin is one concave maximisation, solved for all edges at
once by bisection on its subgradient. A slope known from before enters as a Gaussian prior.

The stamping points of the two directions differ by a constant (requests are stamped at tc egress,
replies in XDP). It enters the offset of A to B and that of B to A alike, and cancels where
`graph.pairs.merge_directed` takes half their difference.
"""

import itertools
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from enum import IntEnum

import numpy as np
import numpy.typing as npt

from cwdp.shared.clocksync._types import F64, I64, NS_PER_S, U8, WANDER, Bool, split_ns
from cwdp.shared.clocksync.edge.floors import queued_sigma
from cwdp.shared.clocksync.edge.samples import Clouds, Exchanges, clouds

LEAST_POINTS = 8
LEAST_SPAN_S = 0.05
MAX_SLOPE = 990e-6
_BLOCKS = 32
_KEPT_PER_BLOCK = 4
_SLOPE_SUPPORT = 8
_SUPPORTS = (1, 2, 4, 8, 16, 32)
_KNOWN_SLOPE_SIGMA = 50e-9
_BISECTIONS = 24
_SLOPE_RESOLUTION = 2e-11
_SIGMA_FLOOR_NS = 0.2
_LEAST_SEEN = 4
_TOGETHER = 0.1  # of the mean gap
_FEW_SURCHARGE = 1.4
_SLOPE_SIGMA_FACTOR = 1.5
_TORN_SIGMAS = 8.0
_TORN_NS = 200.0


class FitReason(IntEnum):
    """Why a fit is not to be used."""

    OK = 0
    TOO_FEW = 1
    TOO_SHORT = 2
    TORN = 3  # the clouds overlap: a clock stepped or lied within the window
    WILD_SLOPE = 4
    CUT = 5  # a clock has just changed, and too little was measured since


@dataclass(frozen=True, slots=True)
class EdgeFits:
    """When A's clock shows a, B's shows a + offset + slope * (a - ref).

    Attributes:
        ref_ns: int64 [edges], on A's local clock, where offset and slope are about uncorrelated.
        offset_ns, offset_frac_ns: int64 and float64 [edges], B minus A at ref is their sum.
        slope: float64 [edges], B's rate over A's minus one, dimensionless.
        margin_ns: float64 [edges], half the gap between the clouds: the one-way floor.
        sigma_offset_ns: float64 [edges], standard error of the offset at ref.
        sigma_out_ns, sigma_back_ns: float64 [edges], standard errors of the two lines alone, requests'
            (offset + margin) and replies' (margin - offset); a queue that stood all the time is in neither.
        sigma_slope: float64 [edges], standard error of the slope.
        points: float64 [edges], the weight of the points that the lines rest on.
        pure_share: float64 [edges], mean weight of all points.
        reason: uint8 [edges], a `FitReason`; where it is not OK, numbers are finite but void.
    """

    ref_ns: I64
    offset_ns: I64
    offset_frac_ns: F64
    slope: F64
    margin_ns: F64
    sigma_offset_ns: F64
    sigma_out_ns: F64
    sigma_back_ns: F64
    sigma_slope: F64
    points: F64
    pure_share: F64
    reason: U8

    @property
    def valid(self) -> Bool:
        """Bool [edges]."""
        return np.asarray(self.reason == FitReason.OK)


@dataclass(frozen=True, slots=True)
class EdgePrior:
    """What is known of the edges beforehand.

    Attributes:
        slope, sigma_slope: float64 [edges]; sigma inf where nothing is known.
        floor_ns: float64 [edges], one-way floor; NaN where it is not known.
        sigma_floor_ns: float64 [edges].
        wander: float64 [edges], random walk of the relative frequency, per sqrt(s).
    """

    slope: F64
    sigma_slope: F64
    floor_ns: F64
    sigma_floor_ns: F64
    wander: F64

    def of(self, edges: npt.NDArray[np.integer]) -> "EdgePrior":
        """What is known of some edges, by index."""
        return EdgePrior(*(getattr(self, field.name)[edges] for field in fields(self)))

    @classmethod
    def of_floor(cls, floor_ns: float) -> "EdgePrior":
        """Nothing is known of one edge but its one-way floor."""
        return replace(cls.unknown(1), floor_ns=np.array([floor_ns]), sigma_floor_ns=np.zeros(1))

    @classmethod
    def unknown(cls, n_edges: int) -> "EdgePrior":
        """Nothing is known."""
        nothing = np.full(n_edges, np.nan)
        return cls(
            np.zeros(n_edges), np.full(n_edges, np.inf), nothing, nothing.copy(), np.full(n_edges, WANDER)
        )


def fit_edges(exchanges: Exchanges, prior: EdgePrior | None = None) -> EdgeFits:
    """Fit every edge over the exchanges given, usually the last two seconds.

    Args:
        exchanges: the probes of all edges.
        prior: from `memory.EdgeMemory`; None at the first fit.

    Returns:
        One fit per edge; those without enough to go on carry a reason.
    """
    n_edges = len(exchanges.starts) - 1
    if exchanges.starts[-1] == 0:
        return _no_fits(n_edges)
    if prior is None:
        prior = EdgePrior.unknown(n_edges)
    cloud = clouds(exchanges, prior.wander)
    slope = np.where(np.isfinite(prior.sigma_slope), prior.slope, 0.0)
    # Rows of few points hold infinities; what comes of them is marked void by its reason.
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        if np.any(prior.sigma_slope > _KNOWN_SLOPE_SIGMA):
            slope = _steepest(cloud, _coarse_slope(cloud, slope, prior), prior)
        slope = np.nan_to_num(_steepest(cloud, slope, prior))
        return _measure(cloud, slope, prior)


def _no_fits(n_edges: int) -> EdgeFits:
    zero, whole = np.zeros(n_edges), np.zeros(n_edges, np.int64)
    reason = np.full(n_edges, FitReason.TOO_FEW, np.uint8)
    void = zero + np.inf
    return EdgeFits(whole, whole, zero, zero, zero, void, void, void, void, zero, zero, reason)


def _coarse_slope(cloud: Clouds, slope: F64, prior: EdgePrior) -> F64:
    """Slope through the exchange of least round trip of each eighth; drift hardly shows in a round trip."""
    blocks = _blocks(cloud.value_ns.shape[2], 8)
    round_trip = cloud.value_ns[0] + cloud.value_ns[1]
    best = np.stack([s.start + np.argmin(round_trip[:, s], axis=1) for s in blocks], axis=1)
    trip = np.take_along_axis(round_trip, best, axis=1)
    excess = trip - np.min(trip, axis=1, keepdims=True)
    x = np.take_along_axis(cloud.x_s[0], best, axis=1)
    offset = (
        np.take_along_axis(cloud.value_ns[0], best, axis=1)
        - np.take_along_axis(cloud.value_ns[1], best, axis=1)
    ) / 2
    usable = np.isfinite(trip)
    excess = np.where(usable, excess, 0.0)
    weight = np.where(usable, (excess + np.median(excess, axis=1, keepdims=True) + 10.0) ** -2.0, 0.0)
    offset = np.where(usable, offset, 0.0)
    total = np.maximum(weight.sum(axis=1, keepdims=True), 1e-30)
    x = x - (weight * x).sum(axis=1, keepdims=True) / total
    fitted = (weight * x * offset).sum(axis=1) / np.maximum((weight * x * x).sum(axis=1), 1e-30) / NS_PER_S
    return np.where(prior.sigma_slope > _KNOWN_SLOPE_SIGMA, np.clip(fitted, -1e-3, 1e-3), slope)


def _blocks(n: int, parts: int) -> list[slice]:
    cuts = np.linspace(0, n, min(parts, n) + 1).astype(int)
    return [slice(a, b) for a, b in itertools.pairwise(cuts)]


def _thin(cloud: Clouds, slope: F64) -> tuple[F64, F64, F64]:
    """Keep the lowest residuals of each block of time: (x, value, weight), each [2, edges, kept]."""
    n = cloud.value_ns.shape[2]
    size = -(-n // _BLOCKS)
    if size <= _KEPT_PER_BLOCK:
        return cloud.x_s, cloud.value_ns, cloud.weight
    residual = _residual(cloud.x_s, cloud.value_ns, slope)
    rows = residual.shape[:2]
    padded = np.full((*rows, _BLOCKS * size), np.inf)
    padded[..., :n] = residual
    lowest = np.argpartition(padded.reshape(*rows, _BLOCKS, size), _KEPT_PER_BLOCK - 1, axis=-1)
    index = lowest[..., :_KEPT_PER_BLOCK] + (np.arange(_BLOCKS) * size)[:, None]
    flat = np.minimum(index.reshape(*rows, -1), n - 1)
    padding = index.reshape(*rows, -1) >= n
    value = np.take_along_axis(cloud.value_ns, flat, axis=2)
    weight = np.take_along_axis(cloud.weight, flat, axis=2)
    value[padding], weight[padding] = np.inf, 0.0
    return np.take_along_axis(cloud.x_s, flat, axis=2), value, weight


def _residual(x_s: F64, value_ns: F64, slope: F64) -> F64:
    return value_ns - (slope * NS_PER_S)[:, None] * x_s


def _steepest(cloud: Clouds, start: F64, prior: EdgePrior) -> F64:
    """Slope of the widest margin, searched around `start`."""
    x, value, weight = _thin(cloud, start)
    support = min(_SLOPE_SUPPORT, x.shape[2])
    precision = np.where(np.isfinite(prior.sigma_slope), (NS_PER_S * prior.sigma_slope) ** -2.0, 0.0)
    density = _density(_residual(x, value, start), support)
    centre = np.where(precision > 0, prior.slope, 0.0)
    row = (np.arange(x.size // x.shape[2]) * x.shape[2]).reshape(2, -1, 1)

    def gradient(slope: F64) -> F64:
        """Of the log posterior, density times the gap, per ns/s."""
        chosen = np.argpartition(_residual(x, value, slope), support - 1, axis=-1)[..., :support] + row
        w = np.take(weight, chosen)
        mean_x = (w * np.take(x, chosen)).sum(-1) / np.maximum(w.sum(-1), 1e-12)
        pull: F64 = -density * mean_x.sum(axis=0) - precision * (slope - centre) * NS_PER_S
        return pull

    half = np.clip(4 / (density * np.maximum(cloud.span_s, 1e-3)) / NS_PER_S, 1e-9, 1e-4)
    low, high = _bracket(gradient, start, half)
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        rising = gradient(middle) > 0
        low, high = np.where(rising, middle, low), np.where(rising, high, middle)
        if np.max(high - low) < _SLOPE_RESOLUTION:
            break
    return (low + high) / 2


def _bracket(gradient: Callable[[F64], F64], start: F64, half: F64) -> tuple[F64, F64]:
    """Widen [start - half, start + half] until the gradient changes sign within."""
    below, above = half.copy(), half.copy()
    for _ in range(6):
        short_below = gradient(start - below) <= 0
        short_above = gradient(start + above) > 0
        if not (short_below.any() or short_above.any()):
            break
        below, above = np.where(short_below, 4 * below, below), np.where(short_above, 4 * above, above)
    return start - below, start + above


def _density(residual: F64, support: int) -> F64:
    """Points per nanosecond near the floor, the poorer cloud deciding: [edges]."""
    lowest = np.partition(residual, (0, support - 1), axis=-1)
    spread = np.max(lowest[..., support - 1] - lowest[..., 0], axis=0)
    density: F64 = (support - 1) / np.clip(np.nan_to_num(spread, nan=1e9, posinf=1e9), 0.01, 1e9)
    return density


def _measure(cloud: Clouds, slope: F64, prior: EdgePrior) -> EdgeFits:
    x, value, weight = _thin(cloud, slope)
    residual = _residual(x, value, slope)
    order = np.argsort(residual, axis=-1)[..., : max(_SUPPORTS)]
    residual, x, weight = (np.take_along_axis(a, order, axis=-1) for a in (residual, x, weight))
    floors, ways, centre, spread_x, points = _supports(residual, x, weight)
    offset, margin = (floors[0] - floors[1]) / 2, (floors[0] + floors[1]) / 2
    offset += slope * NS_PER_S * centre
    ways = np.maximum(ways, _errors_of_blocks(cloud, slope))
    sigma = _with_floor(np.hypot(ways[0], ways[1]) / 2, margin, prior)
    sigma_slope = _SLOPE_SIGMA_FACTOR * sigma / np.maximum(spread_x, 0.01) / NS_PER_S
    sigma_slope = 1 / np.hypot(1 / sigma_slope, 1 / prior.sigma_slope)
    reason = _reason(cloud, slope, margin, sigma)
    shift = np.rint(centre * NS_PER_S)
    whole, frac = split_ns(cloud.base_ns, np.nan_to_num(offset, posinf=0.0, neginf=0.0))
    share = cloud.weight.sum(axis=(0, 2)) / np.maximum(2 * cloud.count, 1)
    return EdgeFits(
        ref_ns=cloud.ref_ns + np.nan_to_num(shift, posinf=0.0, neginf=0.0).astype(np.int64),
        offset_ns=whole,
        offset_frac_ns=frac,
        slope=slope,
        margin_ns=np.nan_to_num(margin, posinf=0.0, neginf=0.0),
        sigma_offset_ns=np.nan_to_num(sigma, nan=1e9, posinf=1e9),
        sigma_out_ns=np.nan_to_num(ways[0], nan=1e9, posinf=1e9),
        sigma_back_ns=np.nan_to_num(ways[1], nan=1e9, posinf=1e9),
        sigma_slope=np.nan_to_num(sigma_slope, nan=1e-3, posinf=1e-3),
        points=points,
        pure_share=share,
        reason=reason,
    )


def _supports(residual: F64, x: F64, weight: F64) -> tuple[F64, F64, F64, F64, F64]:
    """Rest each edge on as many points as its own order statistics say is best.

    With n points of local density r above the floor, the mean of the lowest k has standard error
    sqrt(k / 3) / r and the k-th lies (k - 1) / r above the first. Many points average stamp noise,
    few keep queues out; queues also show as unequal spreads of the two clouds.

    Args:
        residual: float64 [2, edges, kept], ascending.
        x: float64 [2, edges, kept], folded time in the same order.
        weight: float64 [2, edges, kept].

    Returns:
        (floors [2, edges], their errors [2, edges], centre of the support, its spread, its weight),
        the rest [edges].
    """
    kept = residual.shape[-1]
    mass = np.cumsum(weight, axis=-1)
    rank = np.arange(kept)
    options = sorted({min(k, kept) for k in _SUPPORTS})
    with np.errstate(invalid="ignore"):
        means = np.cumsum(np.where(weight > 0, weight * residual, 0.0), axis=-1) / np.maximum(mass, 1e-12)
        spreads = residual - residual[..., :1]
    errors = np.stack([_errors(spreads, k) for k in options])
    best = np.argmin(np.square(errors).sum(axis=1), axis=0)
    k = np.asarray(options)[best]
    last = (k - 1)[None, :, None]
    floors = np.take_along_axis(means, np.broadcast_to(last, (2, *last.shape[1:])), axis=-1)[..., 0]
    w = np.where(rank < k[:, None], weight, 0.0)
    w = np.where(np.isfinite(residual), w, 0.0)
    total = np.maximum(w.sum(axis=(0, 2)), 1e-12)
    time = x * np.array([1.0, -1.0])[:, None, None]
    centre = (w * time).sum(axis=(0, 2)) / total
    # The slope rested on more points than the offset may do.
    v = np.where(
        rank < np.maximum(k, _SLOPE_SUPPORT)[:, None], np.where(np.isfinite(residual), weight, 0.0), 0.0
    )
    spread_x = np.sqrt(
        (v * (time - centre[:, None]) ** 2).sum(axis=(0, 2)) / np.maximum(v.sum(axis=(0, 2)), 1e-12)
    )
    chosen = np.take_along_axis(errors, best[None, None], axis=0)[0]
    return floors, np.maximum(chosen, _SIGMA_FLOOR_NS), centre, spread_x, total


def _errors(spreads: F64, k: int) -> F64:
    """Standard errors of the two lines from a support of k points each: [2, edges].

    The gaps between fewer than four points tell too little, so four stand in for one and two, at a
    surcharge for the luck of the choice.
    """
    seen = min(max(k, _LEAST_SEEN), spreads.shape[-1])
    spread = spreads[..., seen - 1]
    few = k < _LEAST_SEEN
    scale = (_FEW_SURCHARGE * np.sqrt((k + 2) / 3) if few else np.sqrt(k / 3)) / max(seen - 1, 1)
    unequal = min(k / _LEAST_SEEN, 1.0) * (spread[0] - spread[1]) / np.sqrt(8)
    errors: F64 = np.hypot(scale * spread, unequal)
    errors[np.isnan(errors)] = np.inf
    return errors


def _errors_of_blocks(cloud: Clouds, slope: F64) -> F64:
    """Standard errors of the two lines by the least residuals of blocks of time: [2, edges].

    Probes that are close in time meet the same queue, so the gaps between the lowest of them are no measure of how
    near the floor they are; those of different blocks are. Without enough of them the error is not known: inf.
    """
    look = _looks(cloud)
    size = look[:, -1:] // _BLOCKS + 1
    block = (look // size + np.arange(len(look))[:, None] * _BLOCKS).ravel()
    begins = np.flatnonzero(np.diff(block, prepend=-1))
    residual = _residual(cloud.x_s, cloud.value_ns, slope).reshape(2, -1)
    least = np.full((2, len(look) * _BLOCKS), np.inf)
    least[:, block[begins]] = np.minimum.reduceat(residual, begins, axis=1)
    least = np.partition(least.reshape(2, -1, _BLOCKS), (0, _LEAST_SEEN - 1), axis=-1)
    spread = least[..., _LEAST_SEEN - 1] - least[..., 0]
    errors: F64 = np.nan_to_num(spread / (_LEAST_SEEN - 1), nan=np.inf, posinf=np.inf)
    return errors


def _looks(cloud: Clouds) -> I64:
    """Number the points in order, those that left together, as a pair does, alike: int64 [edges, points].

    A column without a point has the number of the point before it.
    """
    gap_s = np.diff(cloud.x_s[0], axis=1, prepend=-np.inf)
    together_s = _TOGETHER * cloud.span_s / np.maximum(cloud.count - 1, 1)
    looks: I64 = np.cumsum(gap_s > together_s[:, None], axis=1) - 1
    return looks


def _with_floor(sigma: F64, margin: F64, prior: EdgePrior) -> F64:
    """Claim no less than what queueing may have done, where the floor is known."""
    queued = queued_sigma(margin, prior.floor_ns, prior.sigma_floor_ns)
    return np.where(np.isfinite(queued), np.maximum(sigma, queued), sigma)


def _reason(cloud: Clouds, slope: F64, margin: F64, sigma: F64) -> U8:
    reason = np.zeros(len(slope), np.uint8)
    reason[np.abs(slope) > MAX_SLOPE] = FitReason.WILD_SLOPE
    reason[~(margin > -(_TORN_SIGMAS * np.minimum(sigma, _TORN_NS) + _TORN_NS))] = FitReason.TORN
    reason[cloud.span_s < LEAST_SPAN_S] = FitReason.TOO_SHORT
    reason[(cloud.count < LEAST_POINTS) | ~np.isfinite(sigma)] = FitReason.TOO_FEW
    return reason
