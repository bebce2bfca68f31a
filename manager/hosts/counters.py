"""Totals of the counters that agents report, which go on rising while hosts come, go and restart."""

import re
from collections import Counter
from collections.abc import Mapping

LARGEST_NAMES = 512
_NAME = re.compile(r"(?P<area>dataplane|agent|bus)\.(?:[^.]+\.)*(?P<reason>[a-z0-9_]{1,64})")


class CounterTotals:
    """Sums over hosts by (area, reason); an interface within the name is summed over.

    `dropped` counts values that were not taken: names of another form, or too many of them.
    """

    def __init__(self) -> None:
        self.totals: Counter[tuple[str, str]] = Counter()
        self.dropped = 0
        self._last: dict[str, Mapping[str, int]] = {}

    def add(self, host: str, counters: Mapping[str, int]) -> None:
        """Take in all of one host's counters; a value below the last one began anew at 0."""
        last = self._last.get(host, {})
        for name, value in counters.items():
            match = _NAME.fullmatch(name)
            if match is None or value < 0:
                self.dropped += 1
                continue
            key = (match["area"], match["reason"])
            if key not in self.totals and len(self.totals) >= LARGEST_NAMES:
                self.dropped += 1
                continue
            before = last.get(name, 0)
            self.totals[key] += value - before if value >= before else value
        self._last[host] = counters

    def of(self, host: str) -> Mapping[str, int]:
        """A host's counters as last reported."""
        return self._last.get(host, {})

    def forget(self, host: str) -> None:
        """Drop a host that is gone; what it counted stays in the totals."""
        self._last.pop(host, None)
