"""Two clocks over a path whose queues may be full most of the time: the design's model."""

from dataclasses import dataclass

import numpy as np

from cwdp.shared.clocksync import EdgeMemory, Exchanges, fit_edges, pair_purity
from cwdp.shared.clocksync._types import F64, I64, NS_PER_S
from cwdp.shared.clocksync.graph import GraphEdges
from cwdp.shared.clocksync.track import Tracks
from tools.sim.filters import minimum_delay, two_way_median
from tools.sim.oscillators import Oscillators

BASE_DELAY_NS = 5000.0
JITTER_NS = 5.0
QUEUE_NS = 20_000.0
PAIR_SPACING_NS = 10_000.0
WANDER = 1e-9
WINDOW_S = 2.0
STEP_S = 0.25
_SETTLE_S = 10.0
_TURNAROUND_NS = 1000.0


@dataclass(frozen=True, slots=True)
class TwoNodeResult:
    """Absolute errors of the offset, ns, after settling, at the end of each window.

    The plain filters are given the frequency that the tracks have learnt.
    """

    queued_share: float
    pairs_per_s: float
    fit_p50_ns: float
    fit_p99_ns: float
    minimum_delay_p99_ns: float
    two_way_median_p99_ns: float
    bound_held: float


def two_node(queued_share: float, pairs_per_s: float, seconds: float, seed: int) -> TwoNodeResult:
    """Run the model for `seconds` of simulated time and measure every filter on the same trace."""
    rng = np.random.default_rng(seed)
    clocks = Oscillators.random(2, seconds + 1, rng, drift_ppm=0.0, wander=WANDER / np.sqrt(2))
    trace = _trace(clocks, queued_share, pairs_per_s, seconds, rng)
    memory, tracks = EdgeMemory(1), Tracks(2, window_s=WINDOW_S)
    errors: list[tuple[float, float, float, float]] = []
    for end_s in np.arange(0.5, seconds, STEP_S):
        window = _window(trace, end_s)
        now = int(window.t4_ns[-1])
        fits = fit_edges(window, memory.prior(now))
        memory.update(fits)
        tracks.step(GraphEdges.settled(np.array([0]), np.array([1]), np.array([0]), fits))
        if end_s >= _SETTLE_S:
            errors.append(_errors(clocks, tracks, window))
    ours, bound, least, median = np.abs(np.array(errors)).T
    return TwoNodeResult(
        queued_share,
        pairs_per_s,
        float(np.median(ours)),
        float(np.quantile(ours, 0.99)),
        float(np.quantile(least, 0.99)),
        float(np.quantile(median, 0.99)),
        float(np.mean(ours <= bound)),
    )


def _trace(
    clocks: Oscillators, queued_share: float, pairs_per_s: float, seconds: float, rng: np.random.Generator
) -> tuple[F64, I64]:
    """True send times, and the four stamps int64 [4, probes], second probes behind first ones."""
    n = int(pairs_per_s * seconds)
    first = (np.arange(n) + rng.random(n)) * NS_PER_S / pairs_per_s
    sent = np.stack((first, first + PAIR_SPACING_NS), axis=1).ravel()

    def delay() -> F64:
        queued = rng.random(2 * n) < queued_share
        jitter = rng.exponential(JITTER_NS, 2 * n)
        return BASE_DELAY_NS + jitter + queued * rng.exponential(QUEUE_NS, 2 * n)

    arrived = sent + delay()
    returned = arrived + _TURNAROUND_NS
    back = returned + delay()
    a, b = np.zeros(1, np.int64), np.ones(1, np.int64)
    return sent, np.stack(
        (clocks.stamp(a, sent), clocks.stamp(b, arrived), clocks.stamp(b, returned), clocks.stamp(a, back))
    )


def _window(trace: tuple[F64, I64], end_s: float) -> Exchanges:
    sent, stamps = trace
    begin, end = np.searchsorted(sent, ((end_s - WINDOW_S) * NS_PER_S, end_s * NS_PER_S))
    begin += begin % 2
    end -= end % 2
    t1, t2, t3, t4 = stamps[:, begin:end]
    out = pair_purity(t1[1::2] - t1[::2], t2[1::2] - t2[::2]).weight
    back = pair_purity(t3[1::2] - t3[::2], t4[1::2] - t4[::2]).weight
    starts = np.array([0, end - begin])
    return Exchanges(t1, t2, t3, t4, starts, np.repeat(out, 2), np.repeat(back, 2))


def _errors(clocks: Oscillators, tracks: Tracks, window: Exchanges) -> tuple[float, float, float, float]:
    """Errors of B minus A now: by the tracks, their bound, and by the two plain filters."""
    state = tracks.clocks()
    assert state is not None
    now = int(window.t4_ns[-1])
    true_ns = np.array([_true_time(clocks, now)])
    (a_whole, a_rest), (b_whole, b_rest) = (clocks.local(np.array([i]), true_ns) for i in (0, 1))
    difference_whole, rest = int(b_whole[0] - a_whole[0]), float(b_rest[0] - a_rest[0])
    local = np.array([a_whole[0], b_whole[0]])
    ahead = state.offset_frac_ns + state.drift * (local - state.ref_local_ns)
    ours = (difference_whole - int(state.offset_ns[0] - state.offset_ns[1])) + (rest - (ahead[0] - ahead[1]))
    bound = float(state.bound_ns.sum())
    truth = difference_whole + rest
    slope = float(state.drift[0] - state.drift[1])
    return (
        float(ours),
        bound,
        minimum_delay(window, slope, now) - truth,
        two_way_median(window, slope, now) - truth,
    )


def _true_time(clocks: Oscillators, local_ns: int) -> float:
    """True time at which A's clock shows `local_ns`; two rounds do, drifts being small."""
    true = float(local_ns - clocks.offset_ns[0])
    for _ in range(2):
        _, rest = clocks.local(np.array([0]), np.array([np.rint(true)]))
        true = float(local_ns - clocks.offset_ns[0]) - float(rest[0])
    return true
