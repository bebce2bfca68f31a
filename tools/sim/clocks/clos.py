"""Many NICs in a Clos under load, some of whose paths are asymmetric and some of whose hosts lie.

Feeds the same functions as an agent and a manager do: `fit_edges` with an `EdgeMemory` per agent
(here per chunk of edges) and `Tracks`. Of the samples, half a window is kept: 6.4 kB per directed edge at
100 pairs/s. That a clock has changed unannounced is for the agents of a fleet to notice
(`tools.sim.fleet.simulation`), not here.
"""

from dataclasses import dataclass, fields

import numpy as np

from cwdp.shared.clocksync import EdgeFits, EdgeMemory, Exchanges, fit_edges, pair_purity
from cwdp.shared.clocksync._types import F64, I64, NS_PER_S, Bool
from cwdp.shared.clocksync.graph.solve import GraphEdges
from cwdp.shared.clocksync.timeline.track import HostState, Tracks
from tools.clocks import ClockKind
from tools.sim.clocks.clos_fabric import Fabric
from tools.sim.clocks.disciplined import as_stamped
from tools.sim.clocks.manoeuvres import of_kind
from tools.sim.clocks.oscillators import Oscillators

STEP_S = 1.0
STEPS_PER_WINDOW = 2
PAIR_SPACING_NS = 10_000.0
_SAME_QUEUE = 0.5
_TURNAROUND_NS = 500.0
_COMMON_STAMP_BIAS_NS = 300.0
_EDGES_PER_CHUNK = 2000
_SETTLE_ROUNDS = 12


@dataclass(frozen=True, slots=True)
class ClosOptions:
    """What to simulate.

    Attributes:
        nics: how many.
        load: mean load of every link, 0 to 0.95.
        seconds: simulated time.
        seed: of all randomness.
        peers: undirected probing partners per NIC.
        pairs_per_s: coded pairs per directed edge.
        rate_bps: of every link.
        stamp_noise_ns: standard deviation of each stamp.
        asymmetric: share of probed pairs with a constant extra delay in one direction.
        liars: share of NICs that lie about their time once all have settled.
        stamp_bias_ns: spread of per-NIC stamping constants.
        clocks: what they do beside drifting by up to 50 ppm and swinging by 0.05 ppm.
    """

    nics: int = 248
    load: float = 0.4
    seconds: float = 30.0
    seed: int = 0
    peers: int = 10
    pairs_per_s: float = 100.0
    rate_bps: float = 400e9
    stamp_noise_ns: float = 5.0
    asymmetric: float = 0.0
    liars: float = 0.0
    stamp_bias_ns: float = 0.0
    clocks: ClockKind = "steady"


@dataclass(frozen=True, slots=True)
class ClosResult:
    """Over honest NICs and the rounds after settling.

    Attributes:
        p50_ns, p99_ns, max_ns: absolute error against the honest NICs' median, at the end of the window.
        bound_held: share of claims within which the truth lay.
        bound_p50_ns: median bound.
        bound_over_p99: that over p99_ns.
        synced_share: of honest NICs and rounds.
        liars_named: share of liars set aside in the last round.
        liar_rounds: most rounds until a liar of 100 us or more was set aside; None without any.
        honest_named: share of honest NICs and rounds set aside.
    """

    p50_ns: float
    p99_ns: float
    max_ns: float
    bound_held: float
    bound_p50_ns: float
    bound_over_p99: float
    synced_share: float
    liars_named: float
    liar_rounds: int | None
    honest_named: float


class ClosSimulation:
    """State of one run."""

    def __init__(self, options: ClosOptions) -> None:
        self.options = options
        rng = np.random.default_rng(options.seed)
        n = options.nics
        steady = Oscillators.random(n, options.seconds + STEP_S, rng, temperature=50e-9)
        self.oscillators = as_stamped(steady, of_kind(options.clocks), options.seed, rng)
        self.fabric = Fabric.random(n, options.seconds + STEP_S, options.load, options.rate_bps, rng)
        a, b = random_pairs(n, options.peers, rng)
        self.src, self.dst = np.concatenate((a, b)), np.concatenate((b, a))
        spine = rng.integers(0, self.fabric.n_spines, len(a))
        spine = np.concatenate((spine, spine))
        self.out = self.fabric.route(self.src, self.dst, spine)
        self.back = self.fabric.route(self.dst, self.src, spine)
        self.out_ns = self.fabric.propagation_ns(self.out)
        self.back_ns = self.fabric.propagation_ns(self.back)
        self._make_asymmetric(len(a), rng)
        self.liar, self.lie_ns, self.wavering = self._make_liars(rng)
        self.tc_ns = _COMMON_STAMP_BIAS_NS + options.stamp_bias_ns * rng.standard_normal(n)
        self.tracks = Tracks(n, window_s=STEP_S * STEPS_PER_WINDOW)
        cuts = np.arange(0, len(self.src), _EDGES_PER_CHUNK)
        self.chunks = [slice(c, min(c + _EDGES_PER_CHUNK, len(self.src))) for c in cuts]
        self.previous: list[I64] = []
        self.memories = [EdgeMemory(len(self.src[c])) for c in self.chunks]

    def _make_asymmetric(self, n_pairs: int, rng: np.random.Generator) -> None:
        """Extra delay from a to b, seen by both initiators, from 50 ns to 10 us."""
        chosen = rng.random(n_pairs) < self.options.asymmetric
        extra = np.where(chosen, np.exp(rng.uniform(np.log(50), np.log(10_000), n_pairs)), 0.0)
        self.out_ns[:n_pairs] += extra
        self.back_ns[n_pairs:] += extra

    def _make_liars(self, rng: np.random.Generator) -> tuple[Bool, F64, Bool]:
        """Who lies, by how much in the replies, and who tells every peer something else."""
        n = self.options.nics
        liar = np.zeros(n, bool)
        liar[rng.permutation(n)[: round(self.options.liars * n)]] = True
        size = np.where(rng.random(n) < 0.5, 1e6, np.exp(rng.uniform(np.log(300), np.log(1e5), n)))
        return liar, np.where(liar, size, 0.0), rng.random(n) < 0.5

    def run(self) -> ClosResult:
        """All rounds."""
        rounds = []
        n_rounds = int(self.options.seconds / STEP_S) - STEPS_PER_WINDOW + 1
        for number in range(n_rounds):
            fits = self._fit_round(number)
            edges = GraphEdges.settled(self.src, self.dst, np.zeros(len(self.src), np.int64), fits)
            self.tracks.step(edges)
            rounds.append(self._errors((number + STEPS_PER_WINDOW) * STEP_S))
        return self._summary(rounds)

    def _fit_round(self, number: int) -> EdgeFits:
        parts = []
        for index, chunk in enumerate(self.chunks):
            newest = self._half_window(index, chunk, number + 1)
            if number == 0:
                self.previous.append(self._half_window(index, chunk, 0))
            steps, self.previous[index] = [self.previous[index], newest], newest
            stamps = np.concatenate(steps, axis=2)
            right = self.oscillators.right(self.src[chunk], stamps, (number + STEPS_PER_WINDOW) * STEP_S)
            exchanges = _join(stamps, right, self.options.stamp_noise_ns)
            ends = np.maximum.reduceat(exchanges.t4_ns, exchanges.starts[:-1])
            fits = fit_edges(exchanges, self.memories[index].prior(ends))
            self.memories[index].update(fits)
            parts.append(fits)
        return EdgeFits(*(np.concatenate([getattr(p, f.name) for p in parts]) for f in fields(EdgeFits)))

    def _half_window(self, index: int, chunk: slice, step: int) -> I64:
        """Stamps int64 [4, edges, probes] of one step."""
        o = self.options
        rng = np.random.default_rng((o.seed, index, step))
        src, dst = self.src[chunk, None], self.dst[chunk, None]
        n = int(o.pairs_per_s * STEP_S)
        first = (step + (np.arange(n) + rng.random((len(src), n))) / n) * STEP_S * NS_PER_S
        sent = np.stack((first, first + PAIR_SPACING_NS), axis=2).reshape(len(src), 2 * n)
        arrived = sent + self.out_ns[chunk, None] + self._queueing(self.out[:, chunk], sent, rng)
        returned = arrived + _TURNAROUND_NS
        back = returned + self.back_ns[chunk, None] + self._queueing(self.back[:, chunk], returned, rng)
        lie = self._lie(chunk, dst, step)
        # The request is stamped at tc egress, this much before it leaves; the reply in XDP.
        stamps = [
            self._stamp(src, sent - self.tc_ns[src], rng),
            self._stamp(dst, arrived, rng) + lie,
            self._stamp(dst, returned, rng) + lie,
            self._stamp(src, back, rng),
        ]
        return np.stack(stamps)

    def _lie(self, chunk: slice, dst: I64, step: int) -> I64:
        if step < _SETTLE_ROUNDS:
            return np.zeros(dst.shape, np.int64)
        peer = np.random.default_rng(self.options.seed).normal(0, 1, len(self.src))[chunk, None]
        return np.rint(self.lie_ns[dst] * np.where(self.wavering[dst], peer, 1.0)).astype(np.int64)

    def _queueing(self, route: I64, when_ns: F64, rng: np.random.Generator) -> F64:
        waiting = self.fabric.queueing_ns(route, when_ns / NS_PER_S, rng)
        same = rng.random(waiting[:, 1::2].shape) < _SAME_QUEUE
        waiting[:, 1::2] = np.where(same, waiting[:, ::2], waiting[:, 1::2])
        return waiting

    def _stamp(self, host: I64, true_ns: F64, rng: np.random.Generator) -> I64:
        noise = rng.normal(0, self.options.stamp_noise_ns, true_ns.shape)
        return self.oscillators.stamp(host, true_ns + noise)

    def _errors(self, now_s: float) -> tuple[F64, F64, I64]:
        """Signed error and bound of every NIC at a true time, and its state."""
        clocks = self.tracks.clocks()
        assert clocks is not None
        host = np.arange(self.options.nics)
        local, rest = self.oscillators.local(host, np.full(len(host), now_s * NS_PER_S))
        elapsed = (local - clocks.ref_local_ns) + rest
        ahead = clocks.offset_frac_ns + clocks.drift * elapsed + rest
        whole = local + clocks.offset_ns
        synced = (clocks.state == HostState.SYNCED) & ~self.liar
        among = synced if synced.any() else ~self.liar
        error = (whole - whole[among][0]) + ahead
        bound = clocks.bound_ns + clocks.bound_growth * np.maximum(elapsed, 0.0) / NS_PER_S
        return error - np.median(error[among]), bound, clocks.state.astype(np.int64)

    def _summary(self, rounds: list[tuple[F64, F64, I64]]) -> ClosResult:
        signed, bound, state = (np.array(x) for x in zip(*rounds, strict=True))
        lying_from = _SETTLE_ROUNDS - STEPS_PER_WINDOW + 1
        settled = slice(_SETTLE_ROUNDS, None)
        honest = np.broadcast_to(~self.liar, signed.shape)[settled]
        used = honest & (state[settled] == HostState.SYNCED)
        error, limit = np.abs(signed[settled][used]), bound[settled][used]
        aside = state == HostState.SET_ASIDE
        gross = aside[lying_from:, self.lie_ns >= 1e5]
        first = np.where(gross.any(axis=0), gross.argmax(axis=0) + 1, len(gross) + 1)
        p99 = float(np.quantile(error, 0.99))
        return ClosResult(
            p50_ns=float(np.median(error)),
            p99_ns=p99,
            max_ns=float(error.max()),
            bound_held=float(np.mean(error <= limit)),
            bound_p50_ns=float(np.median(limit)),
            bound_over_p99=float(np.median(limit)) / p99,
            synced_share=float(used.sum() / honest.sum()),
            liars_named=float(aside[-1, self.liar].mean()) if self.liar.any() else 1.0,
            liar_rounds=int(first.max()) if first.size else None,
            honest_named=float(aside[settled][honest].mean()),
        )


def random_pairs(n: int, peers: int, rng: np.random.Generator) -> tuple[I64, I64]:
    """A connected random graph in which every node has about `peers` partners: rings of random order."""
    rings = [rng.permutation(n) for _ in range(max(1, peers // 2))]
    a = np.concatenate(rings)
    b = np.concatenate([np.roll(r, 1) for r in rings])
    low, high = np.minimum(a, b), np.maximum(a, b)
    unique = np.unique(low[low < high] * n + high[low < high])
    return unique // n, unique % n


def _join(stamps: I64, right: Bool, noise_ns: float) -> Exchanges:
    """What is right, bool [edges, probes], of stamps int64 [4, edges, probes]."""
    flat, kept = stamps.reshape(4, -1), right.ravel()
    spacing = flat[:, 1::2] - flat[:, ::2]
    out, back = (
        np.repeat(pair_purity(spacing[tx], spacing[rx], noise_ns).weight, 2)[kept]
        for tx, rx in ((0, 1), (2, 3))
    )
    t1, t2, t3, t4 = flat[:, kept]
    starts = np.concatenate(([0], np.cumsum(np.count_nonzero(right, axis=1))))
    return Exchanges(t1, t2, t3, t4, starts, out, back)
