"""How much of the time programs of each host wait for a processor, from what agents tell. No I/O."""

from typing import NamedTuple

STEP_NS = 4 * 10**9
"""A share is of the last one to two of these; of less it is not known."""


class _Told(NamedTuple):
    """When, on the host's own clock, and the waits in all; both in ns."""

    at_ns: int
    waits_ns: int


class Processors:
    """Of all hosts."""

    def __init__(self) -> None:
        self._told: dict[str, tuple[_Told, _Told, _Told]] = {}

    def hear(self, host: str, at_ns: int, waits_ns: int | None) -> None:
        """A host tells.

        Args:
            host: its name.
            at_ns: its own clock.
            waits_ns: since it started; None where it cannot tell.
        """
        if waits_ns is None:
            self.forget(host)
            return
        now = _Told(at_ns, waits_ns)
        first, middle, last = self._told.get(host, (now, now, now))
        if at_ns < last.at_ns or waits_ns < last.waits_ns:
            first = middle = now
        elif at_ns - middle.at_ns >= STEP_NS:
            first, middle = middle, now
        self._told[host] = first, middle, now

    def forget(self, host: str) -> None:
        """It is gone."""
        self._told.pop(host, None)

    def shares(self) -> dict[str, float]:
        """The share of the last seconds in which some program of each host waited, from 0 to 1."""
        return {
            host: min((last.waits_ns - first.waits_ns) / (last.at_ns - first.at_ns), 1.0)
            for host, (first, _, last) in self._told.items()
            if last.at_ns - first.at_ns >= STEP_NS
        }
