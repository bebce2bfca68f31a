"""What became of probes in the last windows, by row: a ring, and its sums over the spans that are looked at. No I/O."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.bool_]
Floats = NDArray[np.float64]


class ProbeHistory:
    """The last windows of all rows.

    Each window is written twice, so that the windows in order are always one piece of memory.

    Args:
        rows: how many.
        spans: of how many windows there are sums, rising; the last is how many windows are kept.

    Attributes:
        sent_sums, lost_sums: over the last windows, shape (spans, rows).
    """

    def __init__(self, rows: int, spans: Sequence[int]) -> None:
        self._spans, self._kept = spans, spans[-1]
        self._counts = np.zeros((2, 2 * self._kept, rows), np.uint16)
        self._queued_ns = np.full((2 * self._kept, rows), np.nan, np.float32)
        self._next = 0
        self.sent_sums, self.lost_sums = np.zeros((2, len(spans), rows))

    @property
    def rows(self) -> int:
        """How many there are."""
        return self._counts.shape[2]

    @property
    def sent(self) -> NDArray[np.uint16]:
        """Probes that were sent, the latest window last, shape (windows, rows)."""
        return self._counts[0, self._next : self._next + self._kept]

    @property
    def lost(self) -> NDArray[np.uint16]:
        """Those that were lost, as above."""
        return self._counts[1, self._next : self._next + self._kept]

    @property
    def queued_ns(self) -> NDArray[np.float32]:
        """How long rows' probes were queued there and back, NaN where none was answered, as above."""
        return self._queued_ns[self._next : self._next + self._kept]

    def add(self, sent: Floats, lost: Floats, queued_ns: NDArray[np.float32]) -> None:
        """Take in the next window, shape (rows,) each."""
        for counts, sums, latest in ((self.sent, self.sent_sums, sent), (self.lost, self.lost_sums, lost)):
            for place, span in enumerate(self._spans):
                sums[place] += latest
                sums[place] -= counts[-span]
        for at in (self._next, self._next + self._kept):
            self._counts[0, at], self._counts[1, at] = sent, lost
            self._queued_ns[at] = queued_ns
        self._next = (self._next + 1) % self._kept

    def forget(self, rows: Rows) -> None:
        """Take it that no probe of some rows was sent."""
        for held in (self._counts, self.sent_sums, self.lost_sums):
            held[..., rows] = 0

    def carry_on(self, moved: Rows) -> None:
        """Go on with as many rows as `moved` has; of those that moved nothing is known."""
        if len(moved) != self.rows:
            more = max(0, len(moved) - self.rows)
            now = len(moved)
            self._counts = np.pad(self._counts[..., :now], ((0, 0), (0, 0), (0, more)))
            self._queued_ns = np.pad(self._queued_ns[:, :now], ((0, 0), (0, more)))
            self.sent_sums = np.pad(self.sent_sums[:, :now], ((0, 0), (0, more)))
            self.lost_sums = np.pad(self.lost_sums[:, :now], ((0, 0), (0, more)))
        self.forget(moved)
        self._queued_ns[:, moved] = np.nan
