"""Two clocks over a path whose queues may be full most of the time: the design's model.

Nothing but the fit and the filters: that a clock has changed unannounced is for the agents of a fleet to notice
(`tools.sim.fleet.simulation`).
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from cwdp.shared.clocksync import EdgeMemory, Exchanges, fit_edges, pair_purity
from cwdp.shared.clocksync._types import F64, I64, NS_PER_S
from cwdp.shared.clocksync.graph.solve import GraphEdges
from cwdp.shared.clocksync.timeline.track import HostState, Tracks
from tools.clocks import ClockKind
from tools.sim.clocks.disciplined import as_stamped
from tools.sim.clocks.manoeuvres import of_kind
from tools.sim.clocks.oscillators import Oscillators

BASE_DELAY_NS = 5000.0
JITTER_NS = 5.0
QUEUE_NS = 20_000.0
PAIR_SPACING_NS = 10_000.0
WANDER = 1e-9
WINDOW_S = 2.0
STEP_S = 0.25
_SETTLE_S = 10.0
_TURNAROUND_NS = 1000.0

_Claim = tuple[float, float, float, float]


@dataclass(frozen=True, slots=True)
class TwoNodeResult:
    """Absolute errors of the offset, ns, after settling, at the end of each window in which both hosts are synced.

    The plain filters are given the frequency that the tracks have learnt. `synced` is the share of such windows.
    """

    clocks: ClockKind
    queued_share: float
    pairs_per_s: float
    fit_p50_ns: float
    fit_p99_ns: float
    minimum_delay_p99_ns: float
    two_way_median_p99_ns: float
    bound_held: float
    synced: float


@dataclass(frozen=True, slots=True)
class _Trace:
    """True times at which probes left and were answered, float64 [probes]; the four stamps, int64 [4, probes]."""

    sent_ns: F64
    back_ns: F64
    stamps_ns: I64


def two_node(
    queued_share: float, pairs_per_s: float, seconds: float, seed: int, kind: ClockKind = "steady"
) -> TwoNodeResult:
    """Run the model for `seconds` of simulated time and measure every filter on the same trace.

    Raises:
        ValueError: the hosts were never synced.
    """
    rng = np.random.default_rng(seed)
    steady = Oscillators.random(2, seconds + 1, rng, drift_ppm=0.0, wander=WANDER / np.sqrt(2))
    clocks = as_stamped(steady, of_kind(kind), seed, rng)
    trace = _trace(clocks, queued_share, pairs_per_s, seconds, rng)
    claims = [claim for end_s, claim in _follow(clocks, trace, seconds) if end_s >= _SETTLE_S]
    errors = [claim for claim in claims if claim is not None]
    if not errors:
        raise ValueError("the hosts were never synced")
    ours, bound, least, median = np.abs(np.array(errors)).T
    return TwoNodeResult(
        kind,
        queued_share,
        pairs_per_s,
        float(np.median(ours)),
        float(np.quantile(ours, 0.99)),
        float(np.quantile(least, 0.99)),
        float(np.quantile(median, 0.99)),
        float(np.mean(ours <= bound)),
        len(errors) / len(claims),
    )


def _follow(clocks: Oscillators, trace: _Trace, seconds: float) -> Iterator[tuple[float, _Claim | None]]:
    """Fit window after window: its end, and the errors there, None where a host is not synced."""
    memory, tracks = EdgeMemory(1), Tracks(2, window_s=WINDOW_S)
    for end_s in np.arange(0.5, seconds, STEP_S).tolist():
        window, true_ns = _window(clocks, trace, end_s)
        fits = fit_edges(window, memory.prior(int(window.t4_ns[-1])))
        memory.update(fits)
        tracks.step(GraphEdges.settled(np.array([0]), np.array([1]), np.array([0]), fits))
        yield end_s, _errors(clocks, tracks, window, true_ns)


def _trace(
    clocks: Oscillators, queued_share: float, pairs_per_s: float, seconds: float, rng: np.random.Generator
) -> _Trace:
    """Second probes lie behind first ones."""
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
    stamps = (
        clocks.stamp(a, sent),
        clocks.stamp(b, arrived),
        clocks.stamp(b, returned),
        clocks.stamp(a, back),
    )
    return _Trace(sent, back, np.stack(stamps))


def _window(clocks: Oscillators, trace: _Trace, end_s: float) -> tuple[Exchanges, float]:
    """The exchanges of a window, and the true time at which the last one was answered."""
    begin, end = np.searchsorted(trace.sent_ns, ((end_s - WINDOW_S) * NS_PER_S, end_s * NS_PER_S))
    begin += begin % 2
    end -= end % 2
    stamps = trace.stamps_ns[:, begin:end]
    t1, t2, t3, t4 = stamps
    out = np.repeat(pair_purity(t1[1::2] - t1[::2], t2[1::2] - t2[::2]).weight, 2)
    back = np.repeat(pair_purity(t3[1::2] - t3[::2], t4[1::2] - t4[::2]).weight, 2)
    right = clocks.right(np.zeros(1, np.int64), stamps[:, None], end_s)[0]
    t1, t2, t3, t4 = stamps[:, right]
    starts = np.array([0, len(t1)])
    last = begin + int(np.flatnonzero(right)[-1])
    return Exchanges(t1, t2, t3, t4, starts, out[right], back[right]), float(trace.back_ns[last])


def _errors(clocks: Oscillators, tracks: Tracks, window: Exchanges, true_ns: float) -> _Claim | None:
    """Errors of B minus A at a true time: by the tracks, their bound, and by the two plain filters."""
    state = tracks.clocks()
    if state is None or (state.state != HostState.SYNCED).any():
        return None
    local, rest = clocks.local(np.arange(2), np.full(2, true_ns))
    difference, rest_difference = int(local[1] - local[0]), float(rest[1] - rest[0])
    elapsed = (local - state.ref_local_ns) + rest
    ahead = state.offset_frac_ns + state.drift * elapsed
    ours = (difference - int(state.offset_ns[0] - state.offset_ns[1])) + (
        rest_difference - (ahead[0] - ahead[1])
    )
    bound = state.bound_ns + state.bound_growth * np.maximum(elapsed, 0.0) / NS_PER_S
    truth = difference + rest_difference
    slope, now = float(state.drift[0] - state.drift[1]), int(window.t4_ns[-1])
    return (
        float(ours),
        float(bound.sum()),
        minimum_delay(window, slope, now) - truth,
        two_way_median(window, slope, now) - truth,
    )


def _detrended(exchanges: Exchanges, slope: float, now_ns: int) -> tuple[F64, F64]:
    """Offset of every exchange, brought to `now_ns` by the slope, and its round trip, ns."""
    up = (exchanges.t2_ns - exchanges.t1_ns).astype(np.float64)
    low = (exchanges.t3_ns - exchanges.t4_ns).astype(np.float64)
    middle = (exchanges.t1_ns + (exchanges.t4_ns - exchanges.t1_ns) // 2 - now_ns).astype(np.float64)
    return (up + low) / 2 - slope * middle, up - low


def minimum_delay(exchanges: Exchanges, slope: float, now_ns: int) -> float:
    """Offset of the exchange of least round trip, as NTP's clock filter takes it; slope as known."""
    offset, trip = _detrended(exchanges, slope, now_ns)
    return float(offset[np.argmin(trip)])


def two_way_median(exchanges: Exchanges, slope: float, now_ns: int) -> float:
    """Median offset of all exchanges; slope as known."""
    offset, _ = _detrended(exchanges, slope, now_ns)
    return float(np.median(offset))
