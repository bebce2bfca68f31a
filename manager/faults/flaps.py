"""How often something changed between well and not well in the last hour. No I/O."""

from collections import deque

HOUR_S = 3600.0
MOST_CHANGES = 8
CALM_S = 600.0
MOST_SUBJECTS = 100_000


class Flaps:
    """Changes by subject; more than `MOST_CHANGES` in an hour are flapping, which ends with `CALM_S` without one.

    `total` counts the changes of all subjects since the start.
    """

    def __init__(self) -> None:
        self.total = 0
        self._changes: dict[str, deque[float]] = {}

    def add(self, subject: str, now_s: float) -> int:
        """It changed; how often it did in the last hour."""
        self.total += 1
        if subject not in self._changes and len(self._changes) >= MOST_SUBJECTS:
            del self._changes[next(iter(self._changes))]
        changes = self._changes.setdefault(subject, deque(maxlen=10 * MOST_CHANGES))
        changes.append(now_s)
        while changes[0] <= now_s - HOUR_S:
            changes.popleft()
        return len(changes)

    def is_calm(self, subject: str, now_s: float) -> bool:
        """Whether it has not changed for a while."""
        changes = self._changes.get(subject)
        return not changes or changes[-1] < now_s - CALM_S

    def calmed(self, subject: str) -> None:
        """Begin to count anew."""
        self._changes.pop(subject, None)
