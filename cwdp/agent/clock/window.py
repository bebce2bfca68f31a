"""The sliding window of samples that a host's edges are fitted over, and what is remembered beyond it."""

from collections import deque
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cwdp.agent.probing.prober import ProbeResults
from cwdp.shared.clocksync import Exchanges, group_by_edge, nearest_to_floor, pair_purity

WINDOW_NS = 2_000_000_000
MEMORY_NS = 8_000_000_000
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

    def where(self, keep: NDArray[np.intp] | NDArray[np.bool_]) -> "Samples":
        """Some of them, by index or mask."""
        return Samples(
            self.edge[keep], self.stamps_ns[:, keep], self.weight_out[keep], self.weight_back[keep]
        )


def weigh(results: ProbeResults, edge_of_path: NDArray[np.intp]) -> Samples:
    """The answered probes of a drain; one whose partner is missing counts as one that met a queue."""
    stamps_ns = np.stack([results.slots[name].astype(np.int64) for name in STAMPS])
    answered = results.answered.reshape(-1, 2)
    whole = answered[:, 0] & answered[:, 1]
    pairs_ns = stamps_ns.reshape(4, -1, 2)[:, whole]
    spacing_ns = pairs_ns[..., 1] - pairs_ns[..., 0]
    weights = []
    for tx, rx in ((0, 1), (2, 3)):
        weight = np.full(len(whole), UNPAIRED_WEIGHT)
        weight[whole] = pair_purity(spacing_ns[tx], spacing_ns[rx], results.noise_ns).weight
        weights.append(np.repeat(weight, 2)[results.answered])
    edge = edge_of_path[results.path[results.answered]]
    return Samples(edge, stamps_ns[:, results.answered], *weights)


class Window:
    """All samples of the last two seconds, and of those before, the ones that waited least."""

    def __init__(self) -> None:
        self._recent: deque[tuple[int, Samples]] = deque()
        self._remembered: deque[tuple[int, Samples]] = deque()

    def add(self, now_ns: int, samples: Samples) -> None:
        """Take in samples."""
        self._recent.append((now_ns, samples))

    def age(self, now_ns: int, slope: NDArray[np.float64]) -> None:
        """Thin what has left the window, and let go of what is too old.

        Args:
            now_ns: as in `add`.
            slope: relative frequency of each edge by slot, shape (slots,).
        """
        while self._recent and now_ns - self._recent[0][0] > WINDOW_NS:
            when, samples = self._recent.popleft()
            kept = nearest_to_floor(samples.edge, slope, samples.stamps_ns)
            self._remembered.append((when, samples.where(kept)))
        while self._remembered and now_ns - self._remembered[0][0] > MEMORY_NS:
            self._remembered.popleft()

    def forget(self, edges: set[int]) -> None:
        """Drop the samples of some edges, whose slots are about to be used anew."""
        self._drop(self._recent, edges)
        self.forget_remembered(edges)

    def forget_remembered(self, edges: set[int]) -> None:
        """Drop what is remembered of some edges, whose clocks have stepped."""
        self._drop(self._remembered, edges)

    def recent(self, since_ns: int) -> Samples | None:
        """All samples that were added since a time, as in `add`; None where there are none."""
        chunks = [samples for when, samples in self._recent if when >= since_ns]
        return _joined(chunks) if chunks else None

    def drop_recent(self, since_ns: int, gone: NDArray[np.bool_]) -> None:
        """Drop some of what `recent` gives for the same time, by mask."""
        begin = 0
        for index, (when, samples) in enumerate(self._recent):
            if when >= since_ns:
                end = begin + len(samples.edge)
                self._recent[index] = (when, samples.where(~gone[begin:end]))
                begin = end

    def cut(self, since_ns: NDArray[np.int64]) -> None:
        """Drop what left earlier than a time of the initiator's clock for each slot, shape (slots,)."""
        for chunks in (self._remembered, self._recent):
            for index, (when, samples) in enumerate(chunks):
                chunks[index] = (when, samples.where(samples.stamps_ns[0] >= since_ns[samples.edge]))

    def drop_between(self, from_ns: int, to_ns: int) -> None:
        """Drop what was stamped in a stretch of the initiator's time."""
        for index, (when, samples) in enumerate(self._recent):
            kept = stamped_outside(samples.stamps_ns, from_ns, to_ns)
            if not kept.all():
                self._recent[index] = (when, samples.where(kept))

    def _drop(self, chunks: deque[tuple[int, Samples]], edges: set[int]) -> None:
        gone = np.fromiter(edges, np.intp, len(edges))
        for index, (when, samples) in enumerate(chunks if edges else ()):
            chunks[index] = (when, samples.where(~np.isin(samples.edge, gone)))

    def exchanges(self, n_edges: int) -> Exchanges:
        """Everything in the window, edge by edge, as the fit wants it."""
        chunks = [samples for _, samples in (*self._remembered, *self._recent)]
        if not chunks:
            empty, none = np.zeros(0, np.int64), np.zeros(0)
            return Exchanges(empty, empty, empty, empty, np.zeros(n_edges + 1, np.int64), none, none)
        samples = _joined(chunks)
        order, starts = group_by_edge(samples.edge, n_edges)
        t1_ns, t2_ns, t3_ns, t4_ns = samples.stamps_ns[:, order]
        return Exchanges(
            t1_ns,
            t2_ns,
            t3_ns,
            t4_ns,
            starts=starts,
            weight_out=samples.weight_out[order],
            weight_back=samples.weight_back[order],
        )


def stamped_outside(stamps_ns: NDArray[np.int64], from_ns: int, to_ns: int) -> NDArray[np.bool_]:
    """Which probes, int64 [4, n], were answered before a stretch of the initiator's time or sent after it."""
    return np.asarray((stamps_ns[3] < from_ns) | (stamps_ns[0] > to_ns))


def _joined(chunks: list[Samples]) -> Samples:
    return Samples(
        np.concatenate([c.edge for c in chunks]),
        np.concatenate([c.stamps_ns for c in chunks], axis=1),
        np.concatenate([c.weight_out for c in chunks]),
        np.concatenate([c.weight_back for c in chunks]),
    )
