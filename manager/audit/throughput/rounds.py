"""Which paths are sent over at the same time. No NIC sends twice in a round, or receives twice. Pure."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from manager.audit.throughput.ways import NONE, Ways

ENOUGH = 2
"""Each link is crossed by so many flows: of one alone nobody could tell which of its links is slow."""

_BEGUN, _FIRST, _SECOND, _MIDDLE = 100_000, 10_000, 100, 1
"""What a path is worth for each link that the round has begun to fill, for each that none has filled, for each that one has, and
for links between switches that were never taken together."""

Rows = NDArray[np.intp]


class Worth(Protocol):
    """What there is to gain by a path, more for what is wanted more."""

    def of(self, rows: Rows, used: NDArray[np.intp]) -> NDArray[np.float64]:
        """For each path, 0 for one that is not wanted, shape (paths,); of a round in which so many flows cross each link yet."""

    def take(self, row: int) -> None:
        """This one is in the round."""


class Room:
    """A round that is put together.

    Args:
        ways: the paths.
        limit: how many flows may cross each link, shape (links,).
        barred: places of NICs that take no part.
        one_way: whether a NIC that sends receives nothing: answers to what it sends then wait behind nothing.

    Attributes:
        rows: the paths of the round.
        used: how many of them cross each link.
    """

    def __init__(
        self, ways: Ways, limit: NDArray[np.intp], barred: Iterable[int] = (), *, one_way: bool = False
    ) -> None:
        self.ways, self.rows = ways, list[int]()
        self.used = np.zeros(len(ways.links), np.intp)
        self._limit, self._one_way = limit, one_way
        self._sends, self._receives = np.zeros((2, len(ways.nics)), bool)
        self._sends[list(barred)] = self._receives[list(barred)] = True

    def allow(self, limit: NDArray[np.intp]) -> None:
        """Have other limits from now on."""
        self._limit = limit

    def open(self) -> Rows:
        """All paths that there is room for."""
        ways = self.ways
        free = ~self._sends[ways.src] & ~self._receives[ways.dst]
        rows = np.flatnonzero(free)
        is_full = np.append(self.used >= self._limit, False)
        return rows[~is_full[ways.crossed[rows]].any(axis=1)]

    def fits(self, row: int) -> bool:
        """Whether there is room for a path."""
        ways = self.ways
        if self._sends[ways.src[row]] or self._receives[ways.dst[row]]:
            return False
        links = ways.links_of(row)
        return bool((self.used[links] < self._limit[links]).all())

    def is_full(self, link: int) -> bool:
        """Whether no other path over a link has room."""
        return bool(self.used[link] >= self._limit[link])

    def take(self, row: int) -> None:
        """Have a path in the round."""
        self.rows.append(row)
        self._mark(row, True)

    def give_back(self, row: int) -> None:
        """Have it in the round no more."""
        self.rows.remove(row)
        self._mark(row, False)

    def _mark(self, row: int, taken: bool) -> None:
        src, dst = self.ways.src[row], self.ways.dst[row]
        self._sends[src] = self._receives[dst] = taken
        if self._one_way:
            self._sends[dst] = self._receives[src] = taken
        self.used[self.ways.links_of(row)] += 1 if taken else -1


def fill(room: Room, worth: Worth) -> None:
    """Take paths while there is room for some that are worth something, those that are worth most first."""
    while True:
        rows = room.open()
        values = worth.of(rows, room.used)
        order = np.argsort(-values, kind="stable")
        order = order[values[order] > 0]
        if not len(order):
            return
        for row, value in zip(rows[order].tolist(), values[order].tolist(), strict=True):
            if room.fits(row) and worth.of(np.array([row]), room.used)[0] >= value:
                room.take(row)
                worth.take(row)


class Coverage:
    """What has been filled so far.

    Args:
        ways: the paths.
        limit: how many flows fill each link, shape (links,).

    Attributes:
        times: how many flows have crossed each link in rounds in which they filled it, shape (links,).
    """

    def __init__(self, ways: Ways, limit: NDArray[np.intp]) -> None:
        self._ways, self._limit = ways, limit
        self.times = np.zeros(len(ways.links), np.intp)
        self._middles = np.zeros(int(ways.middle.max(initial=NONE)) + 1, np.intp)

    def of(self, rows: Rows, used: NDArray[np.intp]) -> NDArray[np.float64]:
        """See `Worth`."""
        ways = self._ways
        begun = (used > 0) & (used < self._limit)
        of_link = np.select([begun, self.times == 0, self.times < ENOUGH], [_BEGUN, _FIRST, _SECOND], 0)
        of_links = np.append(of_link, 0)[ways.crossed[rows]].sum(axis=1)
        middle = ways.middle[rows]
        is_new = (middle != NONE) & (np.append(self._middles, 1)[middle] == 0)
        value: NDArray[np.float64] = of_links + _MIDDLE * is_new.astype(np.float64)
        return value

    def take(self, row: int) -> None:
        """See `Worth`."""
        self._count(row, 1)

    def close(self, rows: Iterable[int], told: Collection[int], used: NDArray[np.intp]) -> None:
        """A round is over: paths that were not measured, and links that were not filled, count as not taken."""
        for row in rows:
            if row not in told:
                self._count(row, -1)
        short = used < self._limit
        self.times[short] = np.maximum(self.times - used, 0)[short]

    def _count(self, row: int, by: int) -> None:
        self.times[self._ways.links_of(row)] += by
        if (middle := self._ways.middle[row]) != NONE:
            self._middles[middle] += by


@dataclass(frozen=True)
class Wanted:
    """Some paths are worth the same each, the others nothing.

    Attributes:
        wanted: which, shape (paths,).
    """

    wanted: NDArray[np.bool_]

    def of(self, rows: Rows, used: NDArray[np.intp]) -> NDArray[np.float64]:  # noqa: ARG002 - all the same
        """See `Worth`."""
        return self.wanted[rows].astype(np.float64)

    def take(self, row: int) -> None:
        """See `Worth`."""


def concentrate(room: Room, links: Iterable[int], worth: Worth) -> list[int]:
    """Fill links with as many flows as they take, those first that are filled in part; the links that are filled so.

    The flows over a link that cannot be filled are not in the round.
    """
    left, filled = list(links), list[int]()
    while left:
        link = max(left, key=room.used.__getitem__)
        left.remove(link)
        if room.is_full(link) or _taken(room, link, worth):
            filled.append(link)
    return filled


def _taken(room: Room, link: int, worth: Worth) -> bool:
    rows = np.array(room.ways.rows_over[link], np.intp)
    taken: list[int] = []
    for row in rows[np.argsort(-worth.of(rows, room.used), kind="stable")].tolist():
        if room.is_full(link):
            break
        if room.fits(row):
            room.take(row)
            taken.append(row)
    for row in taken:
        if room.is_full(link):
            worth.take(row)
        else:
            room.give_back(row)
    return room.is_full(link)


def halves(ways: Ways) -> NDArray[np.bool_]:
    """Which paths lead from one half of the fabric into the other, shape (paths,).

    Leaves below the same switches are in one half where that is possible, each half with as many NICs as the other, about.
    """
    nics = set(ways.nics)
    leaf = dict(link for link in (ways.links[number] for number in ways.reached) if link.a in nics)
    above: dict[str, str] = {}
    for number in ways.reached[ways.kinds[ways.reached] >= 0]:
        a, b = ways.links[number]
        above[a] = min(above.get(a, b), b)
    order = sorted(ways.nics, key=lambda nic: (above.get(leaf.get(nic, ""), ""), leaf.get(nic, ""), nic))
    half = len(order) // 2
    while 0 < half < len(order) and leaf.get(order[half]) == leaf.get(order[half - 1]):
        half += 1
    first = set(order[:half])
    is_first = np.array([nic in first for nic in ways.nics], bool)
    crosses: NDArray[np.bool_] = is_first[ways.src] != is_first[ways.dst]
    return crosses
