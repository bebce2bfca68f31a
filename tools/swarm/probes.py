"""What became of the probes of one host of a swarm, by path and window, drawn from what its links do."""

import time
from collections.abc import Sequence

import numpy as np

from cwdp.shared.bus.edges import FIT_ROW, NEVER_NS, PATH_ROW, EdgeRows
from cwdp.shared.bus.messages import ProbeEdge
from cwdp.shared.bus.packing import row_bytes
from cwdp.shared.bus.records import WINDOW_NS, WINDOW_ROW, packed_address
from tools.swarm.fabric import SwarmFabric, nic_of

HOP_NS = 600
BOUND_NS = 40
MOST_OFFSET_NS, MOST_DRIFT = 5 * 10**9, 5e-5
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
        src = np.array([nic_of(edge.src_addr) for edge in edges], np.int64)[self.edge]
        dst = np.array([nic_of(edge.dst_addr) for edge in edges], np.int64)[self.edge]
        self.nic = src
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
        self._peers = np.array([int(edge.dst.partition("/")[0][1:]) for edge in edges])
        self._addr = np.frombuffer(
            b"".join(packed_address(edge.dst_addr) for edge in edges), np.uint8
        ).reshape(-1, 16)

    def __len__(self) -> int:
        return len(self.edge)

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

    def windows(self, first: int, end: int) -> np.ndarray:
        """WINDOW_ROWs of the windows from `first` to before `end`, those of quiet paths together."""
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
        answered = rows["lost"] < rows["sent"]
        for way, queued in zip(("fwd", "rev"), queue_ns, strict=True):
            draws = self._rng.random((2, len(path)), np.float32)
            least = self._base_ns[path] + 30 * draws[0] + queued[path] * draws[1]
            rows[f"{way}_min_ns"] = np.where(answered, least, -(2**31))
            rows[f"{way}_mean_ns"] = np.where(answered, least + 40 * draws[1] + 0.2 * queued[path], -(2**31))
        rows["bound_ns"] = np.where(answered, BOUND_NS, 0)
        return rows

    def stats(self, seconds: float) -> EdgeRows:
        """What a report says of all paths."""
        rows = np.zeros(len(self), PATH_ROW)
        rows["src"] = self._src_place[self.edge]
        rows["dst"] = self._dst_place[self.edge]
        rows["sport"], rows["reply_sport"] = self.sport, self.reply_sport
        rows["sent"] = np.maximum(1, 2 * np.round(seconds * 1e9 / self._period_ns))
        rows["lost"] = self._rng.binomial(rows["sent"], self.loss)
        both = 0
        for way, links in (("fwd", self.there), ("rev", self.back)):
            least = self._base_ns + 0.3 * self._fabric.queue_ns[links].sum(axis=1)
            both = both + least
            for quantile, more_ns in (("min", 0), ("p50", 30), ("p99", 90)):
                rows[f"{way}_{quantile}_ns"] = least + more_ns
        rows["rtt_min_ns"], rows["bound_ns"] = both, BOUND_NS
        return EdgeRows(srcs=self._srcs, dsts=self._dsts, rows=row_bytes(rows))

    def fits(self, now_ns: int, host: int, clocks: "Clocks") -> EdgeRows:
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


class Clocks:
    """The clocks of all hosts: seconds off, and drifting."""

    def __init__(self, hosts: int, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self._origin_ns = time.monotonic_ns()
        self._offset_ns = rng.integers(-MOST_OFFSET_NS, MOST_OFFSET_NS, hosts)
        self.drift = rng.uniform(-MOST_DRIFT, MOST_DRIFT, hosts)

    def local_ns(self, host: int, now_ns: int) -> int:
        """What a host's clock shows."""
        gained_ns = np.round(self.drift[host] * (now_ns - self._origin_ns))
        return now_ns + int(self._offset_ns[host]) + int(gained_ns)

    def all_ns(self, now_ns: int) -> np.ndarray:
        """What each shows."""
        return now_ns + self._offset_ns + np.round(self.drift * (now_ns - self._origin_ns)).astype(np.int64)
