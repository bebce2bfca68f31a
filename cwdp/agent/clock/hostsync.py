"""A host's part of the clock sync: its edges, what is noticed of clocks that change, and the line that it follows."""

from collections.abc import Callable

from cwdp.agent.clock.edges import HostEdges
from cwdp.agent.clock.hostclock import HostClock
from cwdp.agent.clock.timebase import LOOKED_AFTER_NS
from cwdp.agent.clock.window import Samples
from cwdp.shared.bus.clocks import OwnChange
from cwdp.shared.bus.edges import EdgeFit
from cwdp.shared.bus.messages import ClockUpdate


class HostSync:
    """No I/O; times named `now_ns` are of a clock that only ever goes on, those of the local clock end in `_local_ns`.

    Attributes:
        edges: every edge that this host initiates.
        line: the clock that it follows.
    """

    def __init__(self, line: HostClock, now_local_ns: Callable[[], int]) -> None:
        self.edges, self.line = HostEdges(), line
        self._now_local_ns = now_local_ns

    def add(self, now_ns: int, samples: Samples) -> None:
        """Take in samples."""
        self.edges.add(now_ns, samples)

    def distrust(self, from_local_ns: int, to_local_ns: int) -> None:
        """This host's stamps were off from one local time to another."""
        self.edges.drop_between(from_local_ns, to_local_ns)
        if to_local_ns - from_local_ns > LOOKED_AFTER_NS:
            self.line.stood_still()

    def look(self, now_ns: int) -> bool:
        """See whether clocks have changed; True while what is measured of them is wanted at once."""
        left = self.edges.look(now_ns, self._now_local_ns())
        if left is not None:
            self.line.leave_line(left.since_ns, left.rate)
        return self.edges.is_young(self._now_local_ns())

    def fits(self) -> list[EdgeFit]:
        """Every edge's fit over its window."""
        return self.edges.fit(self._now_local_ns())

    def own_change(self, now_ns: int) -> OwnChange | None:
        """What this host's clock does since it has changed; None if it has not for seconds."""
        return self.edges.own_change(now_ns, self._now_local_ns())

    def follow(self, update: ClockUpdate) -> None:
        """Take in the manager's latest solution."""
        self.line.follow(update)
        self.edges.believe(update.priors, self._now_local_ns())
        for changed in update.changes:
            since_local_ns = self.line.local_ns(changed.since_ns)
            if since_local_ns is not None:
                self.edges.hear_of_change(changed.host, since_local_ns)
