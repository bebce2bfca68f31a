"""What became of the probes of one host of a swarm, by path and window, drawn from what its links do."""

from collections.abc import Sequence

import numpy as np

from cwdp.shared.bus.edges import FIT_ROW, NEVER_NS, NO_BOUND_NS, PATH_ROW, EdgeRows
from cwdp.shared.bus.messages import ProbeEdge
from cwdp.shared.bus.packing import row_bytes
from cwdp.shared.bus.records import NO_DELAY_NS, WINDOW_NS, packed_address, told_delays
from cwdp.shared.bus.windows import PLACED_ROW, TOLD_PATH
from tools.swarm.fabric import SwarmFabric, nic_of
from tools.swarm.timelines import Clocks

HOP_NS = 600
BOUND_NS = 40
NOISE_NS = 5.0
WAYS = ("fwd", "rev")


class HostProbes:
    """The paths that a host probes.

    Args:
        fabric: over which they lead.
        edges: as the host's document has them.
        seed: of draws.

    Attributes:
        paths: TOLD_PATHs, sorted as agents tell them, by which `there`, `back`, `nic` and rows of windows go.
        there, back: their links, shape (paths, links).
        nic: from which they lead, by its number, shape (paths,).
    """

    def __init__(self, fabric: SwarmFabric, edges: Sequence[ProbeEdge], seed: tuple[int, int]) -> None:
        self._fabric, self._rng = fabric, np.random.default_rng(seed)
        self.edges = list(edges)
        edge = np.repeat(np.arange(len(edges)), [len(each.sports) for each in edges])
        self._srcs, self._dsts = (
            list(dict.fromkeys(getattr(each, end) for each in edges)) for end in ("src", "dst")
        )
        self._src_place, self._dst_place = (
            np.array([{name: i for i, name in enumerate(names)}[getattr(each, end)] for each in edges])
            for end, names in (("src", self._srcs), ("dst", self._dsts))
        )
        peer, src = (
            np.array([nic_of(getattr(each, end)) for each in edges], np.int64)
            for end in ("dst_addr", "src_addr")
        )
        self._peers = peer // fabric.size.nics_per_host
        paths = _paths(edges, edge, src[edge] % fabric.size.nics_per_host)
        self._order = np.argsort(paths.view(f"S{TOLD_PATH.itemsize}"), kind="stable")
        self._places = np.argsort(self._order)
        self.paths = paths[self._order]
        edge = edge[self._order]
        dst, self.nic = peer[edge], src[edge]
        self._pod = fabric.pod_of(dst)
        self.there = fabric.path(self.nic, dst, self.paths["sport"].astype(np.int64))
        self.back = fabric.path(dst, self.nic, self.paths["reply_sport"].astype(np.int64))
        self._links = np.ascontiguousarray(self.there.T), np.ascontiguousarray(self.back.T)
        hops = (self.there >= 0).sum(axis=1)
        self._base_ns = HOP_NS * hops + 37 * (self.nic % 5 + dst % 7)
        pairs_per_s = np.array([each.pairs_per_s / len(each.sports) for each in edges])[edge]
        self._period_ns = 1e9 / pairs_per_s
        self._phase = self._rng.random(len(edge))

    def __len__(self) -> int:
        return len(self.paths)

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
        there, back = (self._fabric.loss[links] for links in self._links)
        if not there.any() and not back.any():
            return np.zeros(len(self))
        return np.asarray(1 - np.prod(1 - there, axis=0) * np.prod(1 - back, axis=0))

    @property
    def _queues_ns(self) -> list[np.ndarray]:
        """How long the queues on each path are in the mean, there and back."""
        return [self._fabric.queue_ns[links].sum(axis=0) for links in self._links]

    def windows(self, first: int, end: int, ahead_ns: np.ndarray, *, sums: bool) -> np.ndarray:
        """PLACED_ROWs of the windows from `first` to before `end`, path by path, those of a quiet path as one.

        Args:
            first: its number.
            end: the number of the one behind the last.
            ahead_ns: by how much the timeline of each pod is ahead of the host's; NaN where it has none.
            sums: whether a path is quiet that loses nothing, whatever queues it meets.
        """
        numbers = np.arange(first, end + 1)
        pairs = np.floor(numbers[None, :] * WINDOW_NS / self._period_ns[:, None] + self._phase[:, None])
        sent = 2 * np.diff(pairs, axis=1).astype(np.int64)
        queues_ns, all_loss = self._queues_ns, self.loss
        quiet = (all_loss == 0) & (sums | (queues_ns[0] + queues_ns[1] == 0))
        sent[quiet, 0], sent[quiet, 1:] = sent[quiet].sum(axis=1), 0
        path, column = np.nonzero(sent)
        rows = np.zeros(len(path), PLACED_ROW)
        counted = sent[path, column]
        rows["path"], rows["window"], rows["sent"] = path, numbers[column], counted
        rows["further"] = np.where(quiet, end - first - 1, 0)[path]
        loss = all_loss[path]
        lossy = np.flatnonzero(loss)
        lost = self._rng.binomial(counted[lossy], loss[lossy])
        rows["lost"][lossy] = lost
        apart_ns = ahead_ns[self._pod[path]]
        timed = ~np.isnan(apart_ns)
        timed[lossy] &= lost < counted[lossy]
        base_ns = self._base_ns.astype(np.float32)[path]
        together = rows["further"].astype(np.float32) + 1
        least_ns, mean_ns = [], []
        for queue_ns, shown_ns in zip(queues_ns, (apart_ns, -apart_ns), strict=True):
            low, high = self._rng.random((2, len(path)), np.float32)
            queued_ns = queue_ns.astype(np.float32)[path]
            often = 0.5 + (high - 0.5) / np.sqrt(together)
            base = base_ns + 30 * low + (shown_ns if shown_ns.any() else np.float32(0))
            least_ns.append(base + queued_ns * (1 - (1 - high) ** (1 / together)))
            mean_ns.append(base + queued_ns * (often + 0.2) + 40 * often)
        _tell(rows, "min", least_ns, timed)
        _tell(rows, "mean", mean_ns, timed)
        rows["bound_ns"] = np.where(timed, BOUND_NS, 0)
        return rows

    def stats(self, seconds: float, ahead_ns: np.ndarray) -> EdgeRows:
        """What a report says of all paths, in the order of the document; `ahead_ns` as for `windows`."""
        rows = np.zeros(len(self), PATH_ROW)
        counts = [len(each.sports) for each in self.edges]
        rows["src"], rows["dst"] = np.repeat(self._src_place, counts), np.repeat(self._dst_place, counts)
        rows["sport"], rows["reply_sport"] = (
            self.paths[name][self._places] for name in ("sport", "reply_sport")
        )
        rows["sent"] = np.maximum(1, 2 * np.round(seconds * 1e9 / self._period_ns))[self._places]
        loss = self.loss[self._places]
        lossy = np.flatnonzero(loss)
        rows["lost"][lossy] = self._rng.binomial(rows["sent"][lossy], loss[lossy])
        apart_ns = ahead_ns[self._pod]
        timed = ~np.isnan(apart_ns)
        least = [self._base_ns + 0.3 * queue_ns for queue_ns in self._queues_ns]
        for quantile, more_ns in (("min", 0), ("p50", 30), ("p99", 90)):
            delays_ns = [least[0] + more_ns + apart_ns, least[1] + more_ns - apart_ns]
            _tell(rows, quantile, [each[self._places] for each in delays_ns], timed[self._places])
        rows["rtt_min_ns"] = sum(least)[self._places]
        rows["bound_ns"] = np.where(timed, BOUND_NS, NO_BOUND_NS)[self._places]
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


def _paths(edges: Sequence[ProbeEdge], edge: np.ndarray, nic: np.ndarray) -> np.ndarray:
    """TOLD_PATHs in the order of a document; `edge` and `nic` are those of each."""
    paths = np.zeros(len(edge), TOLD_PATH)
    packed = b"".join(packed_address(each.dst_addr) for each in edges)
    paths["nic"], paths["dst_addr"] = nic, np.frombuffer(packed, np.uint8).reshape(-1, 16)[edge]
    for name in ("sport", "reply_sport"):
        paths[name] = [port for each in edges for port in getattr(each, f"{name}s")]
    return paths


def _tell(rows: np.ndarray, what: str, delays_ns: Sequence[np.ndarray], timed: np.ndarray) -> None:
    """Have rows say what delays are there and back, as agents' rows have it."""
    whole = [np.nan_to_num(each).astype(np.int64) for each in delays_ns]
    for way, told_ns in zip(("fwd", "rev"), told_delays(*whole), strict=True):
        rows[f"{way}_{what}_ns"] = np.where(timed, told_ns, NO_DELAY_NS)
