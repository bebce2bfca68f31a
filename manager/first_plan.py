"""When a manager that begins to lead plans for the first time, and for how long other work waits for that. Pure.

Times are seconds of the manager's monotonic clock.
"""

from collections.abc import Callable

TAKE_OVER_S = 5.0
"""So long it is waited for what hosts say is steered there."""

AWAITED_S = 15.0
"""So long other work waits at most; hosts may be there that are never planned for."""


class FirstPlan:
    """One of a manager that leads."""

    def __init__(self) -> None:
        self._leads_since_s = 0.0
        self._may, self._is_made = True, True

    def lead(self, now_s: float) -> None:
        """Another manager has decided until now."""
        self._leads_since_s = now_s
        self._may, self._is_made = False, False

    def may(self, now_s: float, is_enough_known: Callable[[], bool]) -> bool:
        """Whether enough is known of what is steered, once it was, or long enough was waited for it."""
        self._may = self._may or is_enough_known() or now_s - self._leads_since_s > TAKE_OVER_S
        return self._may

    def make(self) -> None:
        """It is made."""
        self._is_made = True

    def is_awaited(self, now_s: float) -> bool:
        """Whether what takes long and can wait is to wait for it."""
        return not self._is_made and self.is_lately(now_s)

    def is_lately(self, now_s: float) -> bool:
        """Whether the manager leads since lately: hosts may have yet to tell what is sent."""
        return now_s - self._leads_since_s < AWAITED_S
