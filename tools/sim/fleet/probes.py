"""Every probe of a fleet, drawn beforehand: when it left, what it met on its way, what the four stamps say.

A direction of a path is busy or idle by a two-state Markov process; while it is busy probes wait for an exponential
time, and the two of a pair mostly for the same.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cwdp.shared.clocksync._types import NS_PER_S
from tools.sim.clocks.oscillators import Oscillators

PAIR_SPACING_NS = 10_000.0
TURNAROUND_NS = 20_000.0
BASE_DELAY_NS = 30_000.0
STAMP_BIAS_NS = 1_000.0
SAME_QUEUE = 0.8
_FULL = 0.95

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True)
class SlowWay:
    """What arrives at host `host` waits in a queue of up to `queue_ns` that does not drain, from one time to another."""

    host: int
    queue_ns: float
    from_s: float
    until_s: float


@dataclass(frozen=True, kw_only=True)
class FleetOptions:
    """What to simulate.

    Attributes:
        hosts, peers: how many hosts, and how many of them each probes.
        pairs_per_s: coded pairs per directed edge.
        seconds: from the first probe.
        seed: of all randomness.
        jitter_ns: mean of what every probe waits each way.
        queued: share of the time that a direction of a path is busy, below 1.
        queue_ns: mean of what a probe waits then.
        busy_s: mean length of a busy time.
        drift_ppm: clocks' rates are uniform within plus or minus this.
        wander: random walk of each clock's rate, per sqrt(s).
        slow: a queue that stands at one host; None for none.
    """

    hosts: int = 8
    peers: int = 4
    pairs_per_s: float = 25.0
    seconds: float = 20.0
    seed: int = 0
    jitter_ns: float = 500.0
    queued: float = 0.6
    queue_ns: float = 100_000.0
    busy_s: float = 0.05
    drift_ppm: float = 50.0
    wander: float = 1e-9
    slow: SlowWay | None = None


@dataclass(frozen=True)
class Probes:
    """What a host sends in its life, in order of sending, both probes of a pair side by side.

    Attributes:
        edge: index of the peer, shape (n,).
        sent_s: true time, shape (n,).
        stamps_ns: t1 to t4, each by the clock that it was taken with, shape (4, n).
    """

    edge: NDArray[np.intp]
    sent_s: Floats
    stamps_ns: Ints


def draw_probes(
    options: FleetOptions,
    clocks: Oscillators,
    host: int,
    peers: Ints,
    *,
    start_s: float,
    rng: np.random.Generator,
) -> Probes:
    """Everything that a host sends its peers from a true time on, answered without loss."""
    n = max(1, int((options.seconds - start_s) * options.pairs_per_s))
    spread = np.arange(n) + rng.random((len(peers), n))
    first_s = start_s + spread / options.pairs_per_s
    sent = np.stack((first_s * NS_PER_S, first_s * NS_PER_S + PAIR_SPACING_NS), axis=2)
    arrived = sent + _delay_ns(options, first_s, rng) + _stands_ns(options.slow, peers[:, None], first_s, rng)
    returned = arrived + TURNAROUND_NS
    back = returned + _delay_ns(options, first_s, rng) + _stands_ns(options.slow, host, first_s, rng)
    mine, theirs = np.full((1, 1, 1), host), peers[:, None, None]
    # The request is stamped at tc egress, this much before it leaves.
    stamped = ((mine, sent - STAMP_BIAS_NS), (theirs, arrived), (theirs, returned), (mine, back))
    stamps = np.stack([clocks.stamp(whose, when).reshape(-1, 2) for whose, when in stamped])
    order = np.argsort(first_s, axis=None, kind="stable")
    edge = np.repeat(np.arange(len(peers)), n)[order]
    sent_s = sent.reshape(-1, 2)[order].ravel() / NS_PER_S
    return Probes(np.repeat(edge, 2), sent_s, stamps[:, order].reshape(4, -1))


def _stands_ns(slow: SlowWay | None, at: Ints | int, first_s: Floats, rng: np.random.Generator) -> Floats:
    """What a queue that stands adds to pairs that arrive at some hosts: (edges, pairs, 1), nothing without one."""
    if slow is None:
        return np.zeros((*first_s.shape, 1))
    meets = (at == slow.host) & (first_s >= slow.from_s) & (first_s < slow.until_s)
    waits_ns = slow.queue_ns * rng.uniform(_FULL, 1.0, first_s.shape)
    return np.where(meets, waits_ns, 0.0)[..., None]


def _delay_ns(options: FleetOptions, first_s: Floats, rng: np.random.Generator) -> Floats:
    """One way, of both probes of pairs that leave at times of shape (edges, pairs): (edges, pairs, 2)."""
    shape = (*first_s.shape, 2)
    waiting = rng.exponential(options.queue_ns, shape)
    same = rng.random(first_s.shape) < SAME_QUEUE
    waiting[..., 1] = np.where(same, waiting[..., 0], waiting[..., 1])
    busy = _busy(first_s, options.queued, options.busy_s, rng)
    jitter = rng.exponential(options.jitter_ns, shape)
    return np.asarray(BASE_DELAY_NS + busy[..., None] * waiting + jitter)


def _busy(time_s: Floats, share: float, mean_s: float, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Whether the way is busy at ascending times, row by row."""
    rate_per_s = 1 / (mean_s * (1 - share))
    kept = np.exp(-rate_per_s * np.diff(time_s, axis=1, prepend=-np.inf))
    fresh = rng.random(time_s.shape) < share
    redrawn = rng.random(time_s.shape) >= kept
    last = np.maximum.accumulate(np.where(redrawn, np.arange(time_s.shape[1]), 0), axis=1)
    return np.asarray(np.take_along_axis(fresh, last, axis=1))
