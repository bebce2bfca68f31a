"""What became of probes in the last windows, by row: rings, and sums over the spans that are looked at. No I/O."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.bool_]
Indices = NDArray[np.intp]
Floats = NDArray[np.float64]


class ProbeHistory:
    """The last windows of all rows.

    Hardly anything is lost, so sums of what was are kept up for the rows that lost something only. What was sent is
    counted up, so that the difference of two counts is what was sent between them.

    Args:
        rows: how many.
        spans: of how many windows there are sums, rising; the last is how many windows are kept.

    Attributes:
        lost_sums: over the last windows, shape (spans, rows).
    """

    def __init__(self, rows: int, spans: Sequence[int]) -> None:
        self._spans, self._kept = spans, spans[-1]
        self._sent_until = np.zeros((self._kept + 1, rows), np.uint32)
        self._lost = np.zeros((self._kept, rows), np.uint16)
        self._losing = [np.zeros(0, np.intp)] * self._kept
        self._queued_ns = np.full((self._kept, rows), np.nan, np.float32)
        self._added = 0
        self.lost_sums = np.zeros((len(spans), rows))

    @property
    def rows(self) -> int:
        """How many there are."""
        return self._lost.shape[1]

    @property
    def sent_sums(self) -> Floats:
        """Probes that were sent over the last windows, shape (spans, rows)."""
        return np.array([self.sent_over(span) for span in self._spans], np.float64)

    def sent_over(self, windows: int) -> NDArray[np.uint32]:
        """Probes that were sent over some last windows, shape (rows,)."""
        now, then = (each % (self._kept + 1) for each in (self._added, self._added - windows))
        return np.asarray(self._sent_until[now] - self._sent_until[then], np.uint32)

    def lost_of(self, rows: Indices, windows: int) -> NDArray[np.uint16]:
        """What some rows lost in the last windows, the latest last, shape (windows, those rows)."""
        return self._lost[np.ix_(self._slots(windows), rows)]

    def queued_ns_of(self, rows: Indices) -> NDArray[np.float32]:
        """How long some rows' probes were queued, NaN where none was answered, shape (windows, those rows)."""
        return self._queued_ns[np.ix_(self._slots(self._kept), rows)]

    def add(self, sent: Floats, lost: Floats, queued_ns: NDArray[np.float32]) -> None:
        """Take in the next window, shape (rows,) each."""
        losing = np.flatnonzero(lost)
        for place, span in enumerate(self._spans):
            slot = (self._added - span) % self._kept
            self.lost_sums[place, losing] += lost[losing]
            self.lost_sums[place, self._losing[slot]] -= self._lost[slot, self._losing[slot]]
        slot, before = self._added % self._kept, self._sent_until[self._added % (self._kept + 1)]
        self._lost[slot], self._losing[slot], self._queued_ns[slot] = lost, losing, queued_ns
        self._added += 1
        np.add(before, sent.astype(np.uint32), out=self._sent_until[self._added % (self._kept + 1)])

    def forget(self, rows: Rows) -> None:
        """Take it that no probe of some rows was sent."""
        for held in (self._sent_until, self._lost, self.lost_sums):
            held[:, rows] = 0

    def carry_on(self, moved: Rows) -> None:
        """Go on with as many rows as `moved` has; of those that moved nothing is known."""
        now = len(moved)
        if now != self.rows:
            more = ((0, 0), (0, max(0, now - self.rows)))
            self._sent_until = np.pad(self._sent_until[:, :now], more)
            self._lost = np.pad(self._lost[:, :now], more)
            self._queued_ns = np.pad(self._queued_ns[:, :now], more)
            self.lost_sums = np.pad(self.lost_sums[:, :now], more)
            self._losing = [losing[losing < now] for losing in self._losing]
        self.forget(moved)
        self._queued_ns[:, moved] = np.nan

    def _slots(self, windows: int) -> Indices:
        """Where the last windows are, the latest last."""
        return np.arange(self._added - windows, self._added) % self._kept
