"""Keeps to who leads now: what an earlier leader still says is refused (a fencing token; Burrows, Chubby, OSDI 2006)."""

import math
import time
from collections import Counter
from collections.abc import Callable

from cwdp.shared.bus.messages import ClockUpdate, Desired

FORGOTTEN_AFTER_S = 60.0
"""Without a word for so long, who led counts no more: a bus that lost its store numbers leaders anew."""

COUNTERS = ("desired_fenced", "clock_fenced")


class Fence:
    """Knows the epoch of the latest leader.

    Args:
        now_s: a clock that only ever goes on.

    Attributes:
        counters: what was refused (`COUNTERS`).
    """

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self.counters: Counter[str] = Counter(dict.fromkeys(COUNTERS, 0))
        self._now_s = now_s
        self._epoch, self._heard_s = 0, -math.inf
        self._document = 0, 0
        self._seq, self._seq_s = 0, -math.inf
        self._refused: Desired | None = None

    def admits_document(self, desired: Desired) -> bool:
        """Whether to do as a document says: it is the leader's, and newer than the last one."""
        if self._document[0] == desired.epoch and desired.version <= self._document[1]:
            return False
        if not self._admits(desired.epoch):
            self.counters["desired_fenced"] += 1
            self._refused = desired
            return False
        self._document, self._refused = (desired.epoch, desired.version), None
        return True

    def admits_clock(self, update: ClockUpdate) -> bool:
        """Whether to follow a solution: it is the leader's, and newer than the last one."""
        now_s, is_same = self._now_s(), update.epoch == self._epoch
        older = is_same and update.seq <= self._seq and now_s - self._seq_s <= FORGOTTEN_AFTER_S
        if older or not self._admits(update.epoch):
            self.counters["clock_fenced"] += 1
            return False
        self._seq, self._seq_s = update.seq, now_s
        return True

    def again(self) -> Desired | None:
        """A document that was refused and may be looked at again, as who led then has fallen silent."""
        is_silent = self._now_s() - self._heard_s > FORGOTTEN_AFTER_S
        return self._refused if is_silent else None

    def _admits(self, epoch: int) -> bool:
        now_s = self._now_s()
        if epoch < self._epoch and now_s - self._heard_s <= FORGOTTEN_AFTER_S:
            return False
        self._epoch, self._heard_s = epoch, now_s
        return True
