"""How often a host tells what it has measured: as the manager wants, who has many hosts to hear. No I/O."""

import time
from collections.abc import Callable

EARLY_S = 0.06
"""What is due so soon is told now: the loop that asks comes round every 0.125 s."""

COUNTERS_EVERY = 4
"""One of so many reports has all counters: where agents report more seldom, they tell these more seldom too."""

SUMS_FROM_S = 1.0
"""Where agents report so seldom, the manager looks at several windows together, and is told sums of what lost nothing."""


class Pace:
    """Whether something is due, by its name.

    Args:
        interval_s: between two reports.
        now_s: reads a clock that only goes forward.
    """

    def __init__(self, interval_s: float, now_s: Callable[[], float] = time.monotonic) -> None:
        self.interval_s = interval_s
        self._now_s = now_s
        self._told_s: dict[str, float] = {}

    @property
    def tells_sums(self) -> bool:
        """Whether windows of a path that have lost nothing are told together, though some of them have met a queue."""
        return self.interval_s >= SUMS_FROM_S

    def is_due(self, what: str, least_s: float = 0.0, *, parts: int = 1) -> bool:
        """Whether it is due; if so it counts as told.

        Args:
            what: its name.
            least_s: it is not told more often than that, however often others are.
            parts: how many times in each interval it is told.
        """
        now_s, interval_s = self._now_s(), max(self.interval_s / parts, least_s)
        due_s = self._told_s.get(what, now_s - interval_s) + interval_s
        if now_s < due_s - EARLY_S:
            return False
        self._told_s[what] = max(due_s, now_s - interval_s / 2)
        return True
