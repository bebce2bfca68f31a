"""Hosts whose clocks nobody followed for a while, so that what was stamped with them may be off by any amount. No I/O.

While an agent is away the discipline of CLOCK_MONOTONIC shows in its host's stamps (cwdp/agent/clock/README.md), and peers
measure with them. A clock that is set aside was wrong before anybody knew.
"""

from cwdp.shared.bus.messages import Report
from manager.clock.timeline import is_running

BEFORE_NS = 2_000_000_000
"""So long before its last report a clock that is set aside may have been wrong: fits look back as far."""


class Unfollowed:
    """Since when, until it is asked for."""

    def __init__(self) -> None:
        self._told_ns: dict[str, int] = {}
        self._agents: dict[str, str] = {}
        self._since_ns: dict[str, int] = {}

    def hear(self, report: Report) -> bool:
        """Take in a report; whether it is by another agent of its host than the one before, and not the first."""
        host, told_ns = report.host, self._told_ns.get(report.host)
        is_new = self._agents.setdefault(host, report.boot_id) != report.boot_id
        self._agents[host] = report.boot_id
        if is_new and told_ns is not None:
            self._since_ns[host] = told_ns
        if report.clock is not None and is_running(report.local_ns, report.clock):
            self._told_ns[host] = report.local_ns + report.clock.offset_base_ns
        return is_new

    def set_aside(self, host: str) -> None:
        """A host's clock is."""
        if host in self._told_ns:
            self._since_ns[host] = self._told_ns[host] - BEFORE_NS

    def take(self) -> dict[str, int]:
        """Since when, in ns of the timeline, clocks were not followed, by host; each is told of once."""
        since_ns, self._since_ns = self._since_ns, {}
        return since_ns

    def forget(self, host: str) -> None:
        """Drop a host that is gone for good, or whose clock began anew."""
        for kept in (self._told_ns, self._agents, self._since_ns):
            kept.pop(host, None)
