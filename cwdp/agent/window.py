"""The sliding window of samples that a host's edges are fitted over."""

from collections import deque
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cwdp.agent.prober import Drained
from cwdp.shared.clocksync import Exchanges, group_by_edge, pair_purity

WINDOW_NS = 2_000_000_000
STAMPS = ("t1", "t2", "t3", "t4")
UNPAIRED_WEIGHT = 0.25


@dataclass(frozen=True)
class Samples:
    """Answered probes with the purity of their pairs.

    Attributes:
        edge: the edge's slot, shape (n,), intp.
        stamps_ns: t1 to t4, each on the clock that it was taken with, shape (4, n), int64.
        weight_out, weight_back: purity of the way there and back, shape (n,), float64.
    """

    edge: NDArray[np.intp]
    stamps_ns: NDArray[np.int64]
    weight_out: NDArray[np.float64]
    weight_back: NDArray[np.float64]


def weigh(drained: Drained, edge_of_path: NDArray[np.intp]) -> Samples:
    """The answered probes of a drain; one whose partner is missing counts as one that met a queue."""
    stamps_ns = np.stack([drained.slots[name].astype(np.int64) for name in STAMPS])
    answered = drained.answered.reshape(-1, 2)
    whole = answered[:, 0] & answered[:, 1]
    pairs_ns = stamps_ns.reshape(4, -1, 2)[:, whole]
    spacing_ns = pairs_ns[..., 1] - pairs_ns[..., 0]
    weights = []
    for tx, rx in ((0, 1), (2, 3)):
        weight = np.full(len(whole), UNPAIRED_WEIGHT)
        weight[whole] = pair_purity(spacing_ns[tx], spacing_ns[rx]).weight
        weights.append(np.repeat(weight, 2)[drained.answered])
    edge = edge_of_path[drained.path[drained.answered]]
    return Samples(edge, stamps_ns[:, drained.answered], *weights)


class Window:
    """The last two seconds of samples of all of a host's edges."""

    def __init__(self) -> None:
        self._chunks: deque[tuple[int, Samples]] = deque()

    def add(self, now_ns: int, samples: Samples) -> None:
        """Take in samples, and let go of those that are too old."""
        self._chunks.append((now_ns, samples))
        while now_ns - self._chunks[0][0] > WINDOW_NS:
            self._chunks.popleft()

    def forget(self, edges: set[int]) -> None:
        """Drop the samples of some edges, whose slots are about to be used anew."""
        gone = np.fromiter(edges, np.intp, len(edges))
        for index, (when, samples) in enumerate(self._chunks):
            keep = ~np.isin(samples.edge, gone)
            kept = {name: getattr(samples, name)[..., keep] for name in Samples.__dataclass_fields__}
            self._chunks[index] = (when, Samples(**kept))

    def exchanges(self, n_edges: int) -> Exchanges:
        """Everything in the window, edge by edge, as the fit wants it."""
        chunks = [samples for _, samples in self._chunks]
        if not chunks:
            empty, none = np.zeros(0, np.int64), np.zeros(0)
            return Exchanges(empty, empty, empty, empty, np.zeros(n_edges + 1, np.int64), none, none)
        order, starts = group_by_edge(np.concatenate([c.edge for c in chunks]), n_edges)
        stamps_ns = np.concatenate([c.stamps_ns for c in chunks], axis=1)[:, order]
        t1_ns, t2_ns, t3_ns, t4_ns = stamps_ns
        return Exchanges(
            t1_ns,
            t2_ns,
            t3_ns,
            t4_ns,
            starts=starts,
            weight_out=np.concatenate([c.weight_out for c in chunks])[order],
            weight_back=np.concatenate([c.weight_back for c in chunks])[order],
        )
