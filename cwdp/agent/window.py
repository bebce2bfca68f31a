"""The sliding window of samples that a host's edges are fitted over."""

from collections import deque
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cwdp.agent.prober import Drained
from cwdp.dataplane import abi
from cwdp.shared.clocksync import Exchanges, group_by_edge, pair_purity

WINDOW_NS = 2_000_000_000
STAMPS = ("t1", "t2", "t3", "t4")
UNPAIRED_WEIGHT = 0.25


@dataclass(frozen=True)
class Samples:
    """Answered probes with the purity of their pairs.

    Attributes:
        edge: the edge's slot, shape (n,), intp.
        path: index into the schedule's paths, shape (n,), intp.
        slots: shape (n,), dtype `abi.SLOT`.
        weight_out, weight_back: purity of the way there and back, shape (n,), float64.
    """

    edge: NDArray[np.intp]
    path: NDArray[np.intp]
    slots: NDArray[np.void]
    weight_out: NDArray[np.float64]
    weight_back: NDArray[np.float64]


def weigh(drained: Drained, edge_of_path: NDArray[np.intp]) -> Samples:
    """The answered probes of a drain; one whose partner is missing counts as one that met a queue."""
    pairs_answered = drained.answered.reshape(-1, 2)
    whole = pairs_answered[:, 0] & pairs_answered[:, 1]
    stamps = {name: drained.slots[name].astype(np.int64).reshape(-1, 2)[whole] for name in STAMPS}
    spacing = {name: pair[:, 1] - pair[:, 0] for name, pair in stamps.items()}
    weights = []
    for tx, rx in (("t1", "t2"), ("t3", "t4")):
        weight = np.full(len(whole), UNPAIRED_WEIGHT)
        weight[whole] = pair_purity(spacing[tx], spacing[rx]).weight
        weights.append(np.repeat(weight, 2)[drained.answered])
    path = drained.path[drained.answered]
    return Samples(edge_of_path[path], path, drained.slots[drained.answered], *weights)


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
            kept = {name: getattr(samples, name)[keep] for name in Samples.__dataclass_fields__}
            self._chunks[index] = (when, Samples(**kept))

    def exchanges(self, n_edges: int) -> Exchanges:
        """Everything in the window, edge by edge, as the fit wants it."""
        chunks = [samples for _, samples in self._chunks]
        if not chunks:
            empty, none = np.zeros(0, np.int64), np.zeros(0)
            return Exchanges(empty, empty, empty, empty, np.zeros(n_edges + 1, np.int64), none, none)
        order, starts = group_by_edge(np.concatenate([c.edge for c in chunks]), n_edges)
        slots = np.concatenate([c.slots for c in chunks])[order]
        t1, t2, t3, t4 = (slots[name].astype(np.int64) for name in STAMPS)
        return Exchanges(
            t1,
            t2,
            t3,
            t4,
            starts=starts,
            weight_out=np.concatenate([c.weight_out for c in chunks])[order],
            weight_back=np.concatenate([c.weight_back for c in chunks])[order],
        )


assert set(STAMPS) <= set(abi.SLOT.names or ())
