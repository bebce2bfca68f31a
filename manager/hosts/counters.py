"""Totals of the counters that agents report, which go on rising while hosts come, go and restart."""

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

LARGEST_NAMES = 512
MOST_AS_ARRAY, LARGEST_IN_ARRAY = 4_096, 2**50
"""So many values of this size add up without an overflow."""

_NAME = re.compile(r"(?P<area>dataplane|agent|bus)\.(?:[^.]+\.)*(?P<reason>[a-z0-9_]{1,64})")

Key = tuple[str, str]
Values = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class _Names:
    """The names that a host's counters have, often those of other hosts too.

    Attributes:
        names: all of them.
        keys: what is added up, each once.
        order: the places of the names that count, by key.
        starts: where each key's begin there, shape (keys,).
    """

    names: list[str]
    keys: list[Key]
    order: NDArray[np.intp]
    starts: NDArray[np.intp]

    def sums(self, values: Values) -> Values:
        """The sum of each key's values, shape (keys,)."""
        return np.asarray(np.add.reduceat(values[self.order], self.starts), np.int64)


class CounterTotals:
    """Sums over hosts by (area, reason); an interface within the name is summed over.

    `dropped` counts values that were not taken: names of another form, or too many of them.
    """

    def __init__(self) -> None:
        self.totals: Counter[Key] = Counter()
        self.dropped = 0
        self._odd: dict[str, Mapping[str, int]] = {}
        self._last: dict[str, tuple[_Names, Values]] = {}
        self._names: WeakValueDictionary[tuple[str, ...], _Names] = WeakValueDictionary()

    def add(self, host: str, counters: Mapping[str, int]) -> None:
        """Take in all of one host's counters; a value below the last one began anew at 0."""
        values = _values(counters)
        known = None if values is None else self._before(host, counters)
        if known is not None and values is not None:
            names, before = known
            self._add_up(names, np.where(values >= before, values - before, values))
            self._last[host] = names, values
        else:
            self._add_each(host, counters)
            self._remember(host, counters, values)

    def of(self, host: str) -> Mapping[str, int]:
        """A host's counters as last reported."""
        last = self._last.get(host)
        if last is None:
            return self._odd.get(host, {})
        return dict(zip(last[0].names, last[1].tolist(), strict=True))

    def forget(self, host: str) -> None:
        """Drop a host that is gone; what it counted stays in the totals."""
        self._last.pop(host, None)
        self._odd.pop(host, None)

    def _before(self, host: str, counters: Mapping[str, int]) -> tuple[_Names, Values] | None:
        """The names of a host's counters and their last values: 0 of a new host's that has the names of another one.

        None where these names have yet to be looked at.
        """
        last = self._last.get(host)
        if last is not None:
            return last if last[0].names == list(counters) else None
        names = None if host in self._odd else self._names.get(tuple(counters))
        return None if names is None else (names, np.zeros(len(counters), np.int64))

    def _add_up(self, names: _Names, grown: Values) -> None:
        """Add what counters of known names have grown by."""
        self.dropped += len(names.names) - len(names.order)
        if len(names.keys):
            sums = names.sums(grown)
            for place in np.flatnonzero(sums).tolist():
                self.totals[names.keys[place]] += int(sums[place])

    def _add_each(self, host: str, counters: Mapping[str, int]) -> None:
        last = self.of(host)
        for name, value in counters.items():
            key = _key(name)
            if key is None or value < 0 or not (key in self.totals or len(self.totals) < LARGEST_NAMES):
                self.dropped += 1
                continue
            before = last.get(name, 0)
            self.totals[key] += value - before if value >= before else value

    def _remember(self, host: str, counters: Mapping[str, int], values: Values | None) -> None:
        """Keep them as an array, where they fit into one."""
        self.forget(host)
        if values is None:
            self._odd[host] = counters
            return
        as_told = tuple(counters)
        names = self._names.get(as_told)
        if names is None:
            names = self._names[as_told] = self._sorted(as_told)
        self._last[host] = names, values

    def _sorted(self, told: tuple[str, ...]) -> _Names:
        """Which of some names count towards which total, now that each that fits in is there."""
        places: dict[Key, list[int]] = {}
        for place, name in enumerate(told):
            key = _key(name)
            if key is not None and key in self.totals:
                places.setdefault(key, []).append(place)
        sizes = np.array([len(each) for each in places.values()], np.intp)
        order = np.array([place for each in places.values() for place in each], np.intp)
        return _Names(list(told), list(places), order, np.cumsum(sizes) - sizes)


def _values(counters: Mapping[str, int]) -> Values | None:
    """All values; None where there are too many, or one is negative or too large."""
    if len(counters) > MOST_AS_ARRAY:
        return None
    try:
        values = np.fromiter(counters.values(), np.int64, len(counters))
    except OverflowError:
        return None
    is_sane = values.min(initial=0) >= 0 and values.max(initial=0) <= LARGEST_IN_ARRAY
    return values if is_sane else None


def _key(name: str) -> Key | None:
    match = _NAME.fullmatch(name)
    return None if match is None else (match["area"], match["reason"])
