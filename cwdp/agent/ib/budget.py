"""A share of a processor, of which what was not used may be used later. Pure."""


class Budget:
    """A token bucket of processor time, full at first.

    Args:
        share: of a processor, in the long run.
        most_s: of processor time at once.
    """

    def __init__(self, share: float, most_s: float) -> None:
        self._share, self._most_s, self._left_s = share, most_s, most_s
        self._before: tuple[float, float] | None = None

    def wait_s(self, now_s: float, used_s: float) -> float:
        """How long to use nothing; 0 while there is some left.

        Args:
            now_s: a monotonic clock.
            used_s: processor time in all.
        """
        if self._before is not None:
            came_s = self._share * (now_s - self._before[0])
            self._left_s = min(self._left_s + came_s, self._most_s) - (used_s - self._before[1])
        self._before = now_s, used_s
        return max(0.0, -self._left_s / self._share)
