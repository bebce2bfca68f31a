"""Keeps to who leads now: what an earlier leader still says is refused (a fencing token; Burrows, Chubby, OSDI 2006).

A leader is known by its epoch and by when it began to lead. Epochs rise, unless the bus has lost its store and counts
anew; so who led and has fallen silent may be followed by a lower epoch, but never by who began to lead before it.
"""

import math
import time
from collections import Counter
from collections.abc import Callable

from cwdp.shared.bus.messages import ClockUpdate, Desired, Leader

SILENT_AFTER_S = 60.0
"""Without a word for so long, who led may be followed by a lower epoch."""

COUNTERS = ("desired_fenced", "clock_fenced")


class Fence:
    """Knows the latest leader.

    Args:
        now_s: a clock that only ever goes on.
        on_leader: called when another one leads than before.

    Attributes:
        counters: what was refused (`COUNTERS`).
    """

    def __init__(
        self, now_s: Callable[[], float] = time.monotonic, on_leader: Callable[[], None] = lambda: None
    ) -> None:
        self.counters: Counter[str] = Counter(dict.fromkeys(COUNTERS, 0))
        self._now_s, self._on_leader = now_s, on_leader
        self._leader, self._heard_s = Leader(), -math.inf
        self._anew_s = 0.0
        self._document = self._update = self._leader, -1
        self._refused: Desired | None = None

    def admits_document(self, desired: Desired) -> bool:
        """Whether to do as a document says: it is the leader's, and newer than the last one."""
        leader = Leader(desired.epoch, desired.led_since_s)
        if self._document[0] == leader and desired.version <= self._document[1]:
            return False
        if not self._follows(leader):
            self.counters["desired_fenced"] += 1
            if leader.since_s >= self._leader.since_s:
                self._refused = desired
            return False
        self._document, self._refused = (leader, desired.version), None
        return True

    def admits_clock(self, update: ClockUpdate) -> bool:
        """Whether to follow a solution: it is the leader's, and newer than the last one."""
        leader = Leader(update.epoch, update.led_since_s)
        is_old = self._update[0] == leader and update.seq <= self._update[1]
        if is_old or not self._follows(leader):
            self.counters["clock_fenced"] += 1
            return False
        self._update = leader, update.seq
        return True

    def again(self) -> Desired | None:
        """A document that was refused and may be looked at again, as who led then has fallen silent."""
        return self._refused if self._is_silent() else None

    def _follows(self, leader: Leader) -> bool:
        """Whether a leader is the latest one, or comes after it; it is the latest one then."""
        if leader != self._leader:
            if leader.epoch <= self._leader.epoch:
                if not self._is_silent() or leader.since_s < self._leader.since_s:
                    return False
                self._anew_s = leader.since_s
            elif leader.since_s < self._anew_s:
                return False
        is_new, self._leader, self._heard_s = leader != self._leader, leader, self._now_s()
        if is_new:
            self._on_leader()
        return True

    def _is_silent(self) -> bool:
        return self._now_s() - self._heard_s > SILENT_AFTER_S
