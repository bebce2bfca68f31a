"""The paths that hosts of a swarm probe, and how their clocks run by what they probed."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from cwdp.shared.bus.edges import FIT_ROW, NEVER_NS, PATH_ROW, EdgeRows
from cwdp.shared.bus.messages import ProbeEdge
from cwdp.shared.bus.packing import row_bytes
from cwdp.shared.bus.records import packed_address
from cwdp.shared.bus.windows import TOLD_PATH
from tools.swarm.fabric import SwarmFabric, nic_of
from tools.swarm.timelines import Clocks

HOP_NS = 600
NOISE_NS = 5.0
STATS_S = 1.0
"""Statistics of paths are of so long."""


class Paths(NamedTuple):
    """Paths of a host, or of several, those of one behind those of another; shape (paths,) but for their links.

    Attributes:
        there, back: their links, shape (links, paths).
        pod: to which they lead, by its number.
        base_ns: how long packets take where there is no queue.
        period_ns: from one pair of probes to the next.
        phase: how much of a period had passed when the first was sent.
    """

    there: np.ndarray
    back: np.ndarray
    pod: np.ndarray
    base_ns: np.ndarray
    period_ns: np.ndarray
    phase: np.ndarray

    def loss(self, fabric: SwarmFabric) -> np.ndarray:
        """The share of probes that each loses, there or back."""
        there, back = fabric.loss[self.there], fabric.loss[self.back]
        if not there.any() and not back.any():
            return np.zeros(len(self.pod))
        return np.asarray(1 - np.prod(1 - there, axis=0) * np.prod(1 - back, axis=0))

    def queues_ns(self, fabric: SwarmFabric) -> list[np.ndarray]:
        """How long the queues on each are in the mean, there and back."""
        return [fabric.queue_ns[links].sum(axis=0) for links in (self.there, self.back)]


class HostProbes:
    """The paths that a host probes.

    Args:
        fabric: over which they lead.
        edges: as the host's document has them.
        seed: of draws.

    Attributes:
        fabric: that it was given.
        draws: what it draws from.
        told: TOLD_PATHs, sorted as agents tell them, by which `paths`, `there`, `back` and rows of windows go.
        there, back: their links, shape (paths, links).
        paths: the same for many hosts at once.
        places: of the paths in the order of the document, shape (paths,).
        stats: PATH_ROWs in that order, without what changes.
        srcs, dsts: names of the NICs at both ends, as rows name them by their places.
    """

    def __init__(self, fabric: SwarmFabric, edges: Sequence[ProbeEdge], seed: tuple[int, int]) -> None:
        self.fabric, self.draws = fabric, np.random.default_rng(seed)
        edge = np.repeat(np.arange(len(edges)), [len(each.sports) for each in edges])
        self.srcs, self.dsts = (
            list(dict.fromkeys(getattr(each, end) for each in edges)) for end in ("src", "dst")
        )
        ends = {
            end: np.array([{name: i for i, name in enumerate(names)}[getattr(each, end)] for each in edges])
            for end, names in (("src", self.srcs), ("dst", self.dsts))
        }
        peer, src = (
            np.array([nic_of(getattr(each, end)) for each in edges], np.int64)
            for end in ("dst_addr", "src_addr")
        )
        self._peers = peer // fabric.size.nics_per_host
        told = _told(edges, edge, src[edge] % fabric.size.nics_per_host)
        order = np.argsort(told.view(f"S{TOLD_PATH.itemsize}"), kind="stable")
        self.places = np.argsort(order)
        self.told = told[order]
        pairs_per_s = np.array([each.pairs_per_s / len(each.sports) for each in edges])[edge]
        self.stats = _unmeasured(ends, edge, told, pairs_per_s)
        self._fits = _unfitted(ends)
        edge = edge[order]
        dst, self._nic = peer[edge], src[edge]
        self.there = fabric.path(self._nic, dst, self.told["sport"].astype(np.int64))
        self.back = fabric.path(dst, self._nic, self.told["reply_sport"].astype(np.int64))
        self._crossed = np.unique([self.there, self.back])
        self.paths = Paths(
            there=np.ascontiguousarray(self.there.T),
            back=np.ascontiguousarray(self.back.T),
            pod=fabric.pod_of(dst),
            base_ns=HOP_NS * (self.there >= 0).sum(axis=1) + 37 * (self._nic % 5 + dst % 7),
            period_ns=1e9 / pairs_per_s[order],
            phase=self.draws.random(len(edge)),
        )

    def __len__(self) -> int:
        return len(self.told)

    @property
    def between_pods(self) -> int:
        """How many of the paths lead to another pod."""
        return int(np.count_nonzero(self.fabric.pod_of(self._nic) != self.paths.pod))

    @property
    def loses(self) -> bool:
        """Whether some probe may be lost."""
        return bool(self.fabric.loss[self._crossed].any())

    def told_rows(self, rows: np.ndarray) -> EdgeRows:
        """FIT_ROWs or PATH_ROWs for a message."""
        return EdgeRows(srcs=self.srcs, dsts=self.dsts, rows=row_bytes(rows))

    def fits(self, now_ns: int, host: int, clocks: Clocks) -> np.ndarray:
        """FIT_ROWs of all edges."""
        rows, local_ns = self._fits.copy(), clocks.local_ns(host, now_ns)
        rows["ref_local_ns"] = local_ns
        rows["offset_base_ns"] = clocks.each_ns(self._peers, now_ns) - local_ns
        rows["offset_ns"] = self.draws.normal(0, NOISE_NS, len(rows))
        rows["slope"] = (1 + clocks.drift[self._peers]) / (1 + clocks.drift[host]) - 1
        return rows


def joined(hosts: Sequence[HostProbes]) -> tuple[Paths, np.ndarray]:
    """The paths of several hosts, and where those of each end, shape (hosts,)."""
    paths = Paths(
        *(np.concatenate(each, axis=-1) for each in zip(*(host.paths for host in hosts), strict=True))
    )
    return paths, np.cumsum([len(host) for host in hosts])


def _told(edges: Sequence[ProbeEdge], edge: np.ndarray, nic: np.ndarray) -> np.ndarray:
    """TOLD_PATHs in the order of a document; `edge` and `nic` are those of each."""
    told = np.zeros(len(edge), TOLD_PATH)
    packed = b"".join(packed_address(each.dst_addr) for each in edges)
    told["nic"], told["dst_addr"] = nic, np.frombuffer(packed, np.uint8).reshape(-1, 16)[edge]
    for name in ("sport", "reply_sport"):
        told[name] = [port for each in edges for port in getattr(each, f"{name}s")]
    return told


def _unmeasured(
    ends: dict[str, np.ndarray], edge: np.ndarray, told: np.ndarray, pairs_per_s: np.ndarray
) -> np.ndarray:
    """PATH_ROWs in the order of a document, of which only what is probed is known."""
    rows = np.zeros(len(edge), PATH_ROW)
    for end, places in ends.items():
        rows[end] = places[edge]
    for name in ("sport", "reply_sport"):
        rows[name] = told[name]
    rows["sent"] = np.maximum(1, 2 * np.round(STATS_S * pairs_per_s))
    return rows


def _unfitted(ends: dict[str, np.ndarray]) -> np.ndarray:
    """FIT_ROWs without what clocks show."""
    rows = np.zeros(len(ends["src"]), FIT_ROW)
    for end, places in ends.items():
        rows[end] = places
    rows["margin_ns"], rows["sigma_offset_ns"] = 5000.0, NOISE_NS
    rows["sigma_out_ns"] = rows["sigma_back_ns"] = NOISE_NS * 2**0.5
    rows["sigma_slope"], rows["points"], rows["pure_share"] = 2e-9, 16.0, 0.9
    rows["since_local_ns"] = NEVER_NS
    return rows
