"""Hosts that refuse probes, and whose own are refused, though nothing is wrong with the fabric. No I/O.

A host that was away while the probe keys were replaced has none of those that the others sign with. What is lost of its
probes tells nothing of links. A manager that leads knows of it before any probe is refused; one that waits learns it
later, by what hosts say of their keys.
"""

from collections.abc import Iterable
from typing import NamedTuple

LATE_WINDOWS = 20
"""So much later than probes are refused a manager that waits may know why."""

REMEMBERED_WINDOWS = 100
"""Windows that are older are worked off."""


class _Span(NamedTuple):
    """Windows, both included."""

    first: int
    last: int


class Refusals:
    """Who refuses probes, and in which windows."""

    def __init__(self) -> None:
        self._spans: dict[str, _Span] = {}

    def follow(self, hosts: Iterable[str], now: int) -> set[str]:
        """These refuse probes in the window that is now; those of them that did not just before."""
        before = {host: span for host, span in self._spans.items() if span.last > now - REMEMBERED_WINDOWS}
        self._spans, new = dict(before), set()
        for host in hosts:
            span = before.get(host)
            if span is None or span.last < now - LATE_WINDOWS:
                new.add(host)
                span = _Span(now - LATE_WINDOWS, now)
            self._spans[host] = _Span(span.first, now + 1)
        return new

    def at(self, window: int) -> set[str]:
        """Who refused probes in a window."""
        return {host for host, span in self._spans.items() if span.first <= window <= span.last}
