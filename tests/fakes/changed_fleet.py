"""A fleet some of whose clocks change their rates, as the manager hears of it: fits round after round."""

from dataclasses import replace

import numpy as np

from cwdp.shared.clocksync import EdgeFits, FitReason
from cwdp.shared.clocksync._types import F64, I64, LONG_AGO, NS_PER_S, Bool
from cwdp.shared.clocksync.graph.solve import GraphEdges
from cwdp.shared.clocksync.timeline.track import HostClocks

S = 1_000_000_000
BEGIN_NS = 10**12
SIGMA_NS = 3.0
WINDOW_S, YOUNG_S, CUT_S, TOLD_S = 2.0, 3.0, 0.2, 12.0
NOTICED_S, SHOWS_S = 0.1, 0.02


class ChangedFleet:
    """Hosts of which each may change its rate once.

    Attributes:
        src, dst: int64 [fits], rings in both directions.
        at_s, by: float64 [hosts], when a clock changes, inf for never; by how much its g grows faster then.
        noticed_s: float64 [fits], how long after it the ends of an edge notice a change.
    """

    def __init__(self, n: int = 12, rings: int = 3, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        self.n, self._seed = n, seed
        orders = [rng.permutation(n) for _ in range(rings)]
        a, b = np.concatenate(orders), np.concatenate([np.roll(order, 1) for order in orders])
        pairs = np.unique(np.sort(np.stack((a, b)), axis=0), axis=1)
        self.src, self.dst = np.concatenate((pairs, pairs[::-1]), axis=1)
        self.g0_ns = rng.integers(-3 * S, 3 * S, n)
        self.drift = rng.uniform(-50e-6, 50e-6, n)
        self.at_s, self.by = np.full(n, np.inf), np.zeros(n)
        self.noticed_s = np.full(len(self.src), NOTICED_S)

    def change(self, hosts: list[int] | I64, at_s: float, by: float | F64) -> None:
        """Have some hosts change their rates."""
        self.at_s[hosts], self.by[hosts] = at_s, by

    def g_ns(self, host: I64, time_s: F64) -> tuple[I64, F64]:
        """Global less local of hosts at times: whole and rest."""
        since = np.maximum(time_s - self.at_s[host], 0.0)
        rest = (self.drift[host] * time_s + self.by[host] * since) * NS_PER_S
        whole = np.rint(rest)
        return self.g0_ns[host] + whole.astype(np.int64), rest - whole

    def local_ns(self, host: I64, time_s: F64) -> I64:
        """What hosts' clocks show at times, to a nanosecond."""
        return BEGIN_NS + np.rint(time_s * NS_PER_S).astype(np.int64) - self.g_ns(host, time_s)[0]

    def edges(self, now_s: float) -> GraphEdges:
        """The newest fit of every edge."""
        rng = np.random.default_rng((self._seed, round(now_s * 1000)))
        changed_s = np.minimum(self.at_s[self.src], self.at_s[self.dst])
        last_s = np.where(
            np.maximum(self.at_s[self.src], self.at_s[self.dst]) + self.noticed_s <= now_s,
            np.maximum(self.at_s[self.src], self.at_s[self.dst]),
            changed_s,
        )
        known = last_s + self.noticed_s <= now_s
        begin_s = np.where(known, np.maximum(last_s + SHOWS_S, now_s - WINDOW_S), now_s - WINDOW_S)
        age_s = np.where(known, now_s - last_s, np.inf)
        ref_s = (begin_s + now_s) / 2
        span_s = now_s - begin_s
        sigma = SIGMA_NS * WINDOW_S / span_s
        sigma_slope = sigma / span_s / NS_PER_S
        young = age_s < YOUNG_S
        (src_ns, src_rest), (dst_ns, dst_rest) = self.g_ns(self.src, ref_s), self.g_ns(self.dst, ref_s)
        rate_src, rate_dst = (
            self.drift[end] + self.by[end] * (ref_s > self.at_s[end]) for end in (self.src, self.dst)
        )
        noise, noise_slope = rng.normal(0, 1, (2, len(self.src)))
        fits = EdgeFits(
            ref_ns=self.local_ns(self.src, ref_s),
            offset_ns=src_ns - dst_ns,
            offset_frac_ns=src_rest - dst_rest + sigma * noise,
            slope=(1 - rate_dst) / (1 - rate_src) - 1 + sigma_slope * noise_slope,
            margin_ns=np.full(len(sigma), 500.0),
            sigma_offset_ns=sigma,
            sigma_out_ns=sigma * np.sqrt(2),
            sigma_back_ns=sigma * np.sqrt(2),
            sigma_slope=sigma_slope,
            points=np.full(len(sigma), 10.0),
            pure_share=np.ones(len(sigma)),
            reason=np.where(age_s < CUT_S, FitReason.CUT, FitReason.OK).astype(np.uint8),
        )
        told = np.where(np.isfinite(last_s), last_s + SHOWS_S, 0.0)
        since_ns = np.where(age_s < TOLD_S, self.local_ns(self.src, told), LONG_AGO)
        apart = np.abs(self.by[self.src]) + np.abs(self.by[self.dst])
        return replace(
            GraphEdges.settled(self.src, self.dst, np.zeros(len(self.src), np.int64), fits),
            since_ns=since_ns,
            young=young,
            own=young & (self.at_s[self.src] + self.noticed_s <= now_s),
            apart=np.where(young, apart, 0.0),
        )

    def touching(self, host: int) -> Bool:
        """Bool [fits], those with an end there."""
        return np.asarray((self.src == host) | (self.dst == host))

    def shown_ns(self, clocks: HostClocks, now_s: float) -> F64:
        """What every host's timeline shows at a time, less `BEGIN_NS` and that time."""
        host, now = np.arange(self.n), np.full(self.n, now_s)
        local_ns = self.local_ns(host, now)
        whole = local_ns + clocks.offset_ns - BEGIN_NS - round(now_s * NS_PER_S)
        rest = clocks.offset_frac_ns + clocks.drift * (local_ns - clocks.ref_local_ns)
        return np.asarray(whole - self.g_ns(host, now)[1] + rest)

    def error_ns(self, clocks: HostClocks, now_s: float) -> F64:
        """Distance of every host's timeline from the median one."""
        shown = self.shown_ns(clocks, now_s)
        return np.asarray(shown - np.median(shown))
