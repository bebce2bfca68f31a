"""What became of the probes of one host of a swarm, by path and window, drawn from what its links do."""

from collections.abc import Sequence

import numpy as np

from cwdp.shared.bus.edges import FIT_ROW, NEVER_NS, NO_BOUND_NS, PATH_ROW, EdgeRows
from cwdp.shared.bus.messages import ProbeEdge
from cwdp.shared.bus.packing import row_bytes
from cwdp.shared.bus.records import NO_DELAY_NS, WINDOW_NS, WINDOW_ROW, packed_address, told_delays
from tools.swarm.fabric import SwarmFabric, nic_of
from tools.swarm.timelines import Clocks

HOP_NS = 600
BOUND_NS = 40
NOISE_NS = 5.0


class HostProbes:
    """The paths that a host probes.

    Args:
        fabric: over which they lead.
        edges: as the host's document has them.
        seed: of draws.
    """

    def __init__(self, fabric: SwarmFabric, edges: Sequence[ProbeEdge], seed: tuple[int, int]) -> None:
        self._fabric, self._rng = fabric, np.random.default_rng(seed)
        self.edges = list(edges)
        ports = [
            (e, s, r)
            for e, edge in enumerate(edges)
            for s, r in zip(edge.sports, edge.reply_sports, strict=True)
        ]
        self.edge = np.array([e for e, _, _ in ports], np.int64)
        self.sport, self.reply_sport = (np.array([port[i] for port in ports], np.int64) for i in (1, 2))
        peer = np.array([nic_of(edge.dst_addr) for edge in edges], np.int64)
        src = np.array([nic_of(edge.src_addr) for edge in edges], np.int64)[self.edge]
        dst = peer[self.edge]
        self.nic, self._pod = src, fabric.pod_of(dst)
        self.there, self.back = fabric.path(src, dst, self.sport), fabric.path(dst, src, self.reply_sport)
        hops = (self.there >= 0).sum(axis=1)
        self._base_ns = HOP_NS * hops + 37 * (src % 5 + dst % 7)
        pairs_per_s = np.array([edge.pairs_per_s / len(edge.sports) for edge in edges])[self.edge]
        self._period_ns = 1e9 / pairs_per_s
        self._phase = self._rng.random(len(ports))
        self._srcs, self._dsts = (
            list(dict.fromkeys(getattr(edge, end) for edge in edges)) for end in ("src", "dst")
        )
        self._src_place, self._dst_place = (
            np.array([{name: i for i, name in enumerate(names)}[getattr(edge, end)] for edge in edges])
            for end, names in (("src", self._srcs), ("dst", self._dsts))
        )
        self._peers = peer // fabric.size.nics_per_host
        self._addr = np.frombuffer(
            b"".join(packed_address(edge.dst_addr) for edge in edges), np.uint8
        ).reshape(-1, 16)

    def __len__(self) -> int:
        return len(self.edge)

    @property
    def between_pods(self) -> int:
        """How many of the paths lead to another pod."""
        return int(np.count_nonzero(self._fabric.pod_of(self.nic) != self._pod))

    @property
    def loses(self) -> bool:
        """Whether some probe may be lost."""
        return bool(self._fabric.loss.any() and self.loss.any())

    @property
    def loss(self) -> np.ndarray:
        """The share of probes that each path loses, there or back."""
        kept = np.prod(1 - self._fabric.loss[self.there], axis=1) * np.prod(
            1 - self._fabric.loss[self.back], axis=1
        )
        return np.asarray(1 - kept)

    def windows(self, first: int, end: int, ahead_ns: np.ndarray) -> np.ndarray:
        """WINDOW_ROWs of the windows from `first` to before `end`, those of quiet paths together.

        Args:
            first: its number.
            end: the number of the one behind the last.
            ahead_ns: by how much the timeline of each pod is ahead of the host's; NaN where it has none.
        """
        numbers = np.arange(first, end + 1)
        pairs = np.floor(numbers[None, :] * WINDOW_NS / self._period_ns[:, None] + self._phase[:, None])
        sent = 2 * np.diff(pairs, axis=1).astype(np.int64)
        queue_ns = [self._fabric.queue_ns[links].sum(axis=1) for links in (self.there, self.back)]
        all_loss = self.loss
        quiet = (all_loss == 0) & (queue_ns[0] + queue_ns[1] == 0) & (sent.sum(axis=1) > 0)
        path, column = np.nonzero(sent * ~quiet[:, None])
        together = np.flatnonzero(quiet)
        path, column = (
            np.concatenate([together, path]),
            np.concatenate([np.zeros(len(together), int), column]),
        )
        rows = np.zeros(len(path), WINDOW_ROW)
        rows["window"], rows["sent"] = numbers[column], sent[path, column]
        rows["further"][: len(together)] = end - first - 1
        rows["sent"][: len(together)] = sent[together].sum(axis=1)
        rows["nic"] = self.nic[path] % self._fabric.size.nics_per_host
        rows["dst_addr"] = self._addr[self.edge[path]]
        rows["sport"], rows["reply_sport"] = self.sport[path], self.reply_sport[path]
        loss = all_loss[path]
        lossy = np.flatnonzero(loss)
        rows["lost"][lossy] = self._rng.binomial(rows["sent"][lossy], loss[lossy])
        apart_ns = ahead_ns[self._pod[path]]
        timed = (rows["lost"] < rows["sent"]) & ~np.isnan(apart_ns)
        least_ns, mean_ns = [], []
        for queued, shown_ns in zip(queue_ns, (apart_ns, -apart_ns), strict=True):
            draws = self._rng.random((2, len(path)), np.float32)
            least_ns.append(self._base_ns[path] + 30 * draws[0] + queued[path] * draws[1] + shown_ns)
            mean_ns.append(least_ns[-1] + 40 * draws[1] + 0.2 * queued[path])
        _tell(rows, "min", least_ns, timed)
        _tell(rows, "mean", mean_ns, timed)
        rows["bound_ns"] = np.where(timed, BOUND_NS, 0)
        return rows

    def stats(self, seconds: float, ahead_ns: np.ndarray) -> EdgeRows:
        """What a report says of all paths; `ahead_ns` as for `windows`."""
        rows = np.zeros(len(self), PATH_ROW)
        rows["src"] = self._src_place[self.edge]
        rows["dst"] = self._dst_place[self.edge]
        rows["sport"], rows["reply_sport"] = self.sport, self.reply_sport
        rows["sent"] = np.maximum(1, 2 * np.round(seconds * 1e9 / self._period_ns))
        rows["lost"] = self._rng.binomial(rows["sent"], self.loss)
        apart_ns = ahead_ns[self._pod]
        timed = ~np.isnan(apart_ns)
        least = [
            self._base_ns + 0.3 * self._fabric.queue_ns[links].sum(axis=1)
            for links in (self.there, self.back)
        ]
        for quantile, more_ns in (("min", 0), ("p50", 30), ("p99", 90)):
            _tell(rows, quantile, [least[0] + more_ns + apart_ns, least[1] + more_ns - apart_ns], timed)
        rows["rtt_min_ns"], rows["bound_ns"] = sum(least), np.where(timed, BOUND_NS, NO_BOUND_NS)
        return EdgeRows(srcs=self._srcs, dsts=self._dsts, rows=row_bytes(rows))

    def fits(self, now_ns: int, host: int, clocks: Clocks) -> EdgeRows:
        """What a report says of all edges."""
        rows = np.zeros(len(self.edges), FIT_ROW)
        rows["src"], rows["dst"] = self._src_place, self._dst_place
        local_ns = clocks.local_ns(host, now_ns)
        rows["ref_local_ns"] = local_ns
        rows["offset_base_ns"] = clocks.all_ns(now_ns)[self._peers] - local_ns
        rows["offset_ns"] = self._rng.normal(0, NOISE_NS, len(rows))
        rows["slope"] = (1 + clocks.drift[self._peers]) / (1 + clocks.drift[host]) - 1
        rows["margin_ns"], rows["sigma_offset_ns"] = 5000.0, NOISE_NS
        rows["sigma_out_ns"] = rows["sigma_back_ns"] = NOISE_NS * 2**0.5
        rows["sigma_slope"], rows["points"], rows["pure_share"] = 2e-9, 16.0, 0.9
        rows["since_local_ns"] = NEVER_NS
        return EdgeRows(srcs=self._srcs, dsts=self._dsts, rows=row_bytes(rows))


def _tell(rows: np.ndarray, what: str, delays_ns: Sequence[np.ndarray], timed: np.ndarray) -> None:
    """Have rows say what delays are there and back, as agents' rows have it."""
    whole = [np.nan_to_num(each).astype(np.int64) for each in delays_ns]
    for way, told_ns in zip(("fwd", "rev"), told_delays(*whole), strict=True):
        rows[f"{way}_{what}_ns"] = np.where(timed, told_ns, NO_DELAY_NS)
