"""How long a probe's answer is waited for, by how late answers were of late."""

USUAL_NS = 100_000_000
LONG_NS = 300_000_000
REMEMBERED_NS = 60_000_000_000


class Patience:
    """Waits longer for a while where answers came after all when they were taken for lost.

    Nothing in a fabric holds a packet for that long; a host whose processors are full, or whose hypervisor stands still,
    does, and what it took for lost would be blamed on links.
    """

    def __init__(self) -> None:
        self.timeout_ns = USUAL_NS
        self._late: int | None = None
        self._seen_ns = 0

    def learn(self, late: int, now_ns: int) -> None:
        """Take in how many answers have come too late in all."""
        if self._late is not None and late > self._late:
            self.timeout_ns, self._seen_ns = LONG_NS, now_ns
        elif now_ns - self._seen_ns > REMEMBERED_NS:
            self.timeout_ns = USUAL_NS
        self._late = late
