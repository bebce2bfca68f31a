"""Hosts that have been put out for good: what they had said before they heard of it counts no more. No I/O.

Times are seconds of the manager's monotonic clock.
"""

HEARD_S = 10.0
"""So long after it was put out something of a host may still be on its way; then only one that has joined anew speaks."""


class Departed:
    """When hosts were put out."""

    def __init__(self) -> None:
        self._put_out_s: dict[str, float] = {}

    def put_out(self, host: str, now_s: float) -> None:
        """A host is put out."""
        self._put_out_s[host] = now_s

    def is_out(self, host: str, now_s: float) -> bool:
        """Whether what a host says was said before it was put out."""
        at_s = self._put_out_s.get(host)
        return at_s is not None and now_s - at_s < HEARD_S

    def expire(self, now_s: float) -> None:
        """Let go of those of which nothing can be on its way any more."""
        self._put_out_s = {host: at_s for host, at_s in self._put_out_s.items() if now_s - at_s < HEARD_S}
