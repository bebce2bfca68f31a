"""How many moves may be made now."""

from collections import Counter

BURST_S = 1.0
REST_S = 0.2


class Budget:
    """Token buckets, one of the fleet and one of each host, that hold what comes in in `BURST_S`.

    Args:
        per_s: moves of the fleet in a second.
        per_host_s: moves of each host in a second.
    """

    def __init__(self, per_s: float, per_host_s: float) -> None:
        self._per_s, self._per_host_s = per_s, per_host_s
        self._used = 0.0
        self._used_by: dict[str, float] = {}
        self._at_s = 0.0
        self._rests_until_s = 0.0

    def is_due(self, now_s: float) -> bool:
        """Whether it is time to look for moves again."""
        return now_s >= self._rests_until_s

    def rest(self, now_s: float) -> None:
        """No move was found: none will be for a little while."""
        self._rests_until_s = now_s + REST_S

    def refill(self, now_s: float) -> None:
        """Time has passed."""
        passed_s = max(0.0, now_s - self._at_s)
        self._at_s = now_s
        self._used = max(0.0, self._used - passed_s * self._per_s)
        left = {host: used - passed_s * self._per_host_s for host, used in self._used_by.items()}
        self._used_by = {host: used for host, used in left.items() if used > 0}

    def left(self) -> int:
        """Moves that the fleet may make."""
        return max(0, int(max(1.0, self._per_s * BURST_S) - self._used + 1e-9))

    def left_of(self, host: str) -> int:
        """Moves that a host's queue pairs may make, as far as the host goes."""
        most = max(1.0, self._per_host_s * BURST_S)
        return max(0, int(most - self._used_by.get(host, 0.0) + 1e-9))

    def spend(self, moves: Counter[str]) -> None:
        """So many are made, by host."""
        self._used += moves.total()
        for host, count in moves.items():
            self._used_by[host] = self._used_by.get(host, 0.0) + count
