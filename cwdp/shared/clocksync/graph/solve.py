"""One solution of all clocks from all edge fits, at a common instant.

Unknown per node is g = global - local. An edge from A to B measures g_A - g_B. Predictions, in whole
nanoseconds, are taken off first, so that clocks may differ by years; the rest is least squares on
the graph (`laplacian`), robust against edges that lie (`robust`); hosts that most of their edges
speak against are named (`blame`).
"""

from dataclasses import dataclass, fields, replace

import numpy as np

from cwdp.shared.clocksync._types import F64, I64, LONG_AGO, NS_PER_S, WANDER, Bool, split_ns
from cwdp.shared.clocksync.edge.fit import EdgeFits, FitReason
from cwdp.shared.clocksync.graph.blame import blame
from cwdp.shared.clocksync.graph.laplacian import Laplacian
from cwdp.shared.clocksync.graph.pairs import PairEdges, PairFloors, Ways, merge_directed, surely_queued
from cwdp.shared.clocksync.graph.propagate import components, line_at, propagate, sigma_at
from cwdp.shared.clocksync.graph.robust import RobustSolution, robust_solve

_STALE_NS = 50e3
_STALE_SIGMAS = 8.0
_LEAST_SIGMA_NS = 0.2
_LEAST_SIGMA_DRIFT_NS = 1e-3  # per second
_PRIOR_EDGES = 10.0


@dataclass(frozen=True, slots=True)
class GraphEdges:
    """Directed fits with their ends.

    Attributes:
        src, dst: int64 [fits], initiator and responder, nodes 0 to n - 1.
        path: int64 [fits], which of several paths between the two; 0 where there is one.
        fits: one per directed edge, valid or not.
        since_ns: int64 [fits], on the initiator's clock, when either clock was last found to have changed: the fit rests
            on what came later. LONG_AGO where neither was.
        young: bool [fits], that was less than some seconds ago.
        own: bool [fits], and the initiator says that it was its own clock.
        apart: float64 [fits], how fast the clocks were seen to move apart then, dimensionless.
    """

    src: I64
    dst: I64
    path: I64
    fits: EdgeFits
    since_ns: I64
    young: Bool
    own: Bool
    apart: F64

    @classmethod
    def settled(cls, src: I64, dst: I64, path: I64, fits: EdgeFits) -> "GraphEdges":
        """Edges none of whose clocks has changed of late."""
        no = np.zeros(len(src), bool)
        return cls(src, dst, path, fits, np.full(len(src), LONG_AGO), no, no.copy(), np.zeros(len(src)))

    def where(self, keep: Bool) -> "GraphEdges":
        """Those of a bool [fits] mask."""
        chosen = EdgeFits(*(getattr(self.fits, f.name)[keep] for f in fields(EdgeFits)))
        return replace(
            self,
            src=self.src[keep],
            dst=self.dst[keep],
            path=self.path[keep],
            fits=chosen,
            since_ns=self.since_ns[keep],
            young=self.young[keep],
            own=self.own[keep],
            apart=self.apart[keep],
        )


@dataclass(frozen=True, slots=True)
class OwnFits:
    """What hosts whose clocks have changed say of themselves: ahead of where they would be otherwise, and gaining.

    Attributes:
        host: int64 [fits], nodes.
        ref_ns: int64 [fits], on the host's clock.
        ahead_ns, sigma_ns: float64 [fits], at ref.
        rate, sigma_rate: float64 [fits], per unit of the host's time.
    """

    host: I64
    ref_ns: I64
    ahead_ns: F64
    sigma_ns: F64
    rate: F64
    sigma_rate: F64

    @classmethod
    def nothing(cls) -> "OwnFits":
        """Nobody says anything."""
        none = np.zeros(0)
        return cls(none.astype(np.int64), none.astype(np.int64), none, none, none, none)

    def where(self, keep: Bool) -> "OwnFits":
        """Those of a bool [fits] mask."""
        return OwnFits(*(getattr(self, field.name)[keep] for field in fields(self)))


@dataclass(frozen=True, slots=True)
class Prediction:
    """Where the clocks should be by what was known before.

    Attributes:
        instant_ns: global time; None where there is no timeline yet.
        g_ns: int64 [nodes], global - local at the instant.
        known: bool [nodes], False where g is to be found from the edges.
        drift: float64 [nodes], d(global - local) / d(global), up to one constant.
        sigma_drift: float64 [nodes], its standard error; inf where nothing is known.
    """

    instant_ns: int | None
    g_ns: I64
    known: Bool
    drift: F64
    sigma_drift: F64

    @classmethod
    def nothing(cls, n_nodes: int) -> "Prediction":
        """No timeline yet."""
        return cls.of_offsets(None, np.zeros(n_nodes, np.int64), np.zeros(n_nodes, bool))

    @classmethod
    def of_offsets(cls, instant_ns: int | None, g_ns: I64, known: Bool) -> "Prediction":
        """Nothing is known of the drifts."""
        return cls(instant_ns, g_ns, known, np.zeros(len(known)), np.full(len(known), np.inf))


@dataclass(frozen=True, slots=True)
class Solution:
    """All clocks at one instant, up to one constant (`timeline.track.Tracks` keeps the timeline).

    Attributes:
        instant_ns: global time that all of it is for.
        g_ns, g_frac_ns: int64 and float64 [nodes], global - local is their sum.
        sigma_ns: float64 [nodes], standard error against the mean; inf where there is nothing.
        queued_ns: float64 [nodes], by how much of late queues may have moved all that was measured of it; the same way
            each time, so that looking again makes it no smaller.
        reached: bool [nodes], in the main component of edges that agree.
        liar: bool [nodes], set aside because most of its edges speak against it.
        restarted: bool [nodes], was predicted but is found elsewhere by more than 50 us, and by more than queues explain.
        rejected: bool [fits], valid fits that were not believed.
        residual_ns: float64 [fits], measured minus solved; NaN for fits that are not valid.
        inflation: by how much all claimed errors were widened, >= 1.
        drift, sigma_drift: float64 [nodes], d(global - local) / d(global), up to one constant, and its
            standard error, inf where nothing is known; None unless asked for.
    """

    instant_ns: int
    g_ns: I64
    g_frac_ns: F64
    sigma_ns: F64
    queued_ns: F64
    reached: Bool
    liar: Bool
    restarted: Bool
    rejected: Bool
    residual_ns: F64
    inflation: float
    drift: F64 | None = None
    sigma_drift: F64 | None = None

    @classmethod
    def nothing(cls, instant_ns: int, g_ns: I64, n_fits: int) -> "Solution":
        """Nobody is reached, no fit is judged."""
        n = len(g_ns)
        none, unknown = np.zeros(n, bool), np.full(n, np.inf)
        return cls(
            instant_ns,
            g_ns,
            np.zeros(n),
            unknown,
            np.zeros(n),
            none,
            none,
            none,
            np.zeros(n_fits, bool),
            np.full(n_fits, np.nan),
            inflation=1.0,
        )


def solve_graph(
    edges: GraphEdges,
    prediction: Prediction,
    *,
    wander: F64 | None = None,
    with_drift: bool = False,
    floors: PairFloors | None = None,
) -> Solution | None:
    """Solve all clocks at the instant of the prediction.

    Args:
        edges: the newest fit of every directed edge.
        prediction: for `n` nodes.
        wander: float64 [nodes], random walk of frequency, per sqrt(s); WANDER unless given.
        with_drift: solve for relative frequencies too.
        floors: least margins of the pairs, kept from solution to solution; None weighs requests and
            replies alike.

    Returns:
        The solution, or None where no fit is valid.
    """
    valid = edges.fits.valid
    if not valid.any():
        return None
    n = len(prediction.known)
    torn = edges.fits.reason == FitReason.TORN
    good = edges if valid.all() else edges.where(valid)
    carried = _with_known_slopes(good, prediction)
    walks = np.full(n, WANDER) if wander is None else wander
    walk = np.sqrt((walks[good.src] ** 2 + walks[good.dst] ** 2) / 2)
    g_base, y, instant, restarted = _bases(carried, prediction, walk)
    sigma = np.maximum(sigma_at(carried.fits, instant - g_base[good.src], walk), _LEAST_SIGMA_NS)
    ways = None if floors is None else _ways(good.fits, sigma, floors, instant)
    pairs = merge_directed(good.src, good.dst, good.path, y_ns=y, sigma_ns=sigma, n_nodes=n, ways=ways)
    liar = _torn_hosts(n, edges, torn, valid) | _two_faced(n, pairs)
    solved, liar, lap = _solve_without_liars(n, pairs, liar)
    rejected, residual = _per_fit(good, valid, pairs, solved, y)
    reached = _main_component(lap, solved.weight > 0) & ~liar
    variance = lap.variance(solved.weight) * _local_inflation(lap, solved)
    whole, frac = split_ns(g_base, solved.x_ns)
    drift, sigma_drift = (
        _drift(prediction, good, (solved.weight > 0)[pairs.of_fit]) if with_drift else (None, None)
    )
    return Solution(
        instant_ns=instant,
        g_ns=whole,
        g_frac_ns=frac,
        sigma_ns=np.sqrt(variance),
        queued_ns=_node_mean(lap, solved.weight, pairs.queued_ns),
        reached=reached,
        liar=liar,
        restarted=restarted,
        rejected=rejected,
        residual_ns=residual,
        inflation=solved.inflation,
        drift=drift,
        sigma_drift=sigma_drift,
    )


def _with_known_slopes(good: GraphEdges, prediction: Prediction) -> GraphEdges:
    """Fits with the slopes by which they are carried to the instant: the predicted ones where those are surer.

    A slope from a window of some 50 ms, as after a restart of an agent, is off by what one queue that drains
    makes of it, and by more than it says; the clocks themselves have gone on as before.
    """
    a, b = good.src, good.dst
    sigma = np.hypot(prediction.sigma_drift[a], prediction.sigma_drift[b])
    surer = sigma < good.fits.sigma_slope
    if not surer.any():
        return good
    predicted = (1 - prediction.drift[b]) / (1 - prediction.drift[a]) - 1
    slope, sigma = np.where(surer, (predicted, sigma), (good.fits.slope, good.fits.sigma_slope))
    return replace(good, fits=replace(good.fits, slope=slope, sigma_slope=sigma))


def _bases(good: GraphEdges, prediction: Prediction, wander: F64) -> tuple[I64, F64, int, Bool]:
    """First guesses of g, what was measured less those, the instant, and whose prediction proved void.

    The guesses are right to within microseconds.
    """
    known, n, instant = prediction.known, len(prediction.known), prediction.instant_ns
    restarted = np.zeros(n, bool)
    if instant is not None and known.any():
        both = known[good.src] & known[good.dst]
        y = measured(good, prediction.g_ns, instant)
        off = both & (np.abs(y) > _STALE_NS)
        if off.any():
            sigma = sigma_at(good.fits, instant - prediction.g_ns[good.src], wander)
            off &= np.abs(y) - surely_queued(good.fits.margin_ns, good.fits.margin_ns) > _STALE_SIGMAS * sigma
            restarted = blame(n, good.src[both], good.dst[both], off[both])
        known = known & ~restarted
        if known[good.src].all() and known[good.dst].all():
            return prediction.g_ns, y, instant, restarted
    g_base, _, instant = propagate(good.src, good.dst, good.fits, prediction.g_ns, known, instant_ns=instant)
    return g_base, measured(good, g_base, instant), instant, restarted


def measured(edges: GraphEdges, g_base: I64, instant: int) -> F64:
    """Measured minus predicted g_src - g_dst: float64 [fits]."""
    of_src = g_base[edges.src]
    whole, rest = line_at(edges.fits, instant - of_src)
    return np.asarray((whole - (of_src - g_base[edges.dst])) + rest)


def _ways(fits: EdgeFits, sigma_ns: F64, floors: PairFloors, instant: int) -> Ways:
    """The lines' errors at the instant, which lies as far from their references as the offsets' does."""
    since = np.maximum(sigma_ns**2 - fits.sigma_offset_ns**2, 0.0)
    lines = (np.maximum(s, _LEAST_SIGMA_NS) for s in (fits.sigma_out_ns, fits.sigma_back_ns))
    out, back = (np.sqrt(s * s + since) for s in lines)
    return Ways(fits.margin_ns, out, back, floors, instant)


def _torn_hosts(n: int, edges: GraphEdges, torn: Bool, valid: Bool) -> Bool:
    if not torn.any():
        return np.zeros(n, bool)
    judged = torn | valid
    return blame(n, edges.src[judged], edges.dst[judged], torn[judged])


def _two_faced(n: int, pairs: PairEdges) -> Bool:
    """Hosts whose two directed fits disagree with most peers': one time told, another kept."""
    mutual = pairs.mutual
    if not mutual.any():
        return np.zeros(n, bool)
    return blame(n, pairs.a[mutual], pairs.b[mutual], pairs.disputed[mutual])


def _solve_without_liars(n: int, pairs: PairEdges, liar: Bool) -> tuple[RobustSolution, Bool, Laplacian]:
    lap = Laplacian(n, pairs.a, pairs.b)
    usable = ~(liar[pairs.a] | liar[pairs.b])
    solved = robust_solve(lap, pairs.y_ns, pairs.sigma_ns, usable)
    if solved.rejected.any():
        more = blame(n, pairs.a[usable], pairs.b[usable], solved.rejected[usable])
        if more.any():
            liar = liar | more
            usable = ~(liar[pairs.a] | liar[pairs.b])
            solved = robust_solve(lap, pairs.y_ns, pairs.sigma_ns, usable)
    return solved, liar, lap


def _per_fit(
    good: GraphEdges, valid: Bool, pairs: PairEdges, solved: RobustSolution, y: F64
) -> tuple[Bool, F64]:
    rejected = np.zeros(len(valid), bool)
    rejected[valid] = (solved.weight == 0)[pairs.of_fit]
    residual = np.full(len(valid), np.nan)
    residual[valid] = y - (solved.x_ns[good.src] - solved.x_ns[good.dst])
    return rejected, residual


def _main_component(lap: Laplacian, used: Bool) -> Bool:
    """The largest set of hosts that used edges connect."""
    a, b = (lap.a, lap.b) if used.all() else (lap.a[used], lap.b[used])
    number = components(lap.n_nodes, a, b)
    has_edge = np.zeros(lap.n_nodes, bool)
    has_edge[a] = has_edge[b] = True
    if not has_edge.any():
        return has_edge
    return np.asarray(has_edge & (number == np.argmax(np.bincount(number[has_edge]))))


def _node_mean(lap: Laplacian, weight: F64, per_edge: F64) -> F64:
    """The weighted mean of an edge value over the edges of each node, 0 for those without weight: float64 [nodes]."""
    total = lap.node_sum(weight)
    return np.divide(lap.node_sum(weight * per_edge), total, out=np.zeros_like(total), where=total > 0)


def _local_inflation(lap: Laplacian, solved: RobustSolution) -> F64:
    """By how much the residuals round each host exceed what was claimed: a variance factor >= 1."""
    used = (solved.weight > 0).astype(np.float64)
    squares = lap.node_sum(solved.weight * solved.residual_ns**2)
    count = lap.node_sum(used)
    prior = _PRIOR_EDGES * solved.inflation**2
    return np.maximum(1.0, (squares + prior) / (count + _PRIOR_EDGES))


def _drift(prediction: Prediction, good: GraphEdges, believed: Bool) -> tuple[F64, F64]:
    """Relative frequencies from the fitted slopes: log(1 + slope) = z_src - z_dst.

    The stamping points shift no slope, so either direction of a pair speaks for itself. A slope from few probes
    may be off by many of the errors that it claims, which only the others' disagreement shows.
    """
    lap = Laplacian(len(prediction.known), good.src, good.dst)
    guess = -np.log1p(-prediction.drift) * NS_PER_S
    y = np.log1p(np.clip(good.fits.slope, -0.5, 0.5)) * NS_PER_S - lap.differences(guess)
    sigma = np.maximum(good.fits.sigma_slope * NS_PER_S, _LEAST_SIGMA_DRIFT_NS)
    solved = robust_solve(lap, y, sigma, believed)
    variance = lap.variance(solved.weight) * _local_inflation(lap, solved)
    variance[~_main_component(lap, solved.weight > 0)] = np.inf
    return -np.expm1(-(guess + solved.x_ns) / NS_PER_S), np.sqrt(variance) / NS_PER_S
