"""Ways there and back between ports of one subnet, and how full the links are that they cross. No I/O.

A directed link is named by the row of the port that packets leave by.
"""

import math

import numpy as np
from numpy.typing import NDArray

from cwdp.shared.ib.counters import NAMES, WORD_BYTES
from cwdp.shared.ib.subnet import Subnet
from manager.ib.balance import Ways
from manager.ib.subnets import SubnetNow
from manager.ib.ways import ways

AVERAGED_S = 10.0
"""The time constant of loads: jobs send in bursts, and a counter tells of one second."""

_SENT = NAMES.index("sent_words")

Way = tuple[int, ...] | None
"""The directed links that a path crosses, there and back; None where it does not arrive."""


class Paths:
    """Of one subnet, as it changes.

    Attributes:
        now: as it is.
        name: the lowest GUID in it, when it was seen first.
        loads: of each directed link what it carries, averaged, as part of what it can carry; 0 where it is not known.
        turn: how far who looks at its pairs of ports has come.
    """

    def __init__(self, now: SubnetNow, now_s: float) -> None:
        self.now, self.turn = now, 0
        self.name = int(now.subnet.guids[0])
        self.loads: list[float] = [0.0] * len(now.subnet.ports)
        self._average = np.zeros(len(now.subnet.ports))
        self._seen_s = self._since_s = now_s
        self._rows = _rows(now.subnet)
        self._both: dict[tuple[int, int], list[Way]] = {}

    def see(self, now: SubnetNow, now_s: float) -> None:
        """The same subnet later."""
        before, self.now = self.now, now
        if now.subnet is not before.subnet:
            self._since_s, self._both, self._rows = now_s, {}, _rows(now.subnet)
            if len(now.subnet.ports) != len(self._average):
                self._average = np.zeros(len(now.subnet.ports))
        if now.growth is not None:
            kept = math.exp(-(now_s - self._seen_s) / AVERAGED_S)
            self._average = kept * self._average + (1 - kept) * _loads(now.subnet, now.growth.per_s)
        self._seen_s, self.loads = now_s, self._average.tolist()

    def settled_s(self, now_s: float) -> float:
        """For how long its links and tables have been the same."""
        return now_s - self._since_s

    def row(self, guid: int) -> int | None:
        """Of the port with this GUID; None where it is not here."""
        return self._rows.get(guid)

    def between(self, one: int, other: int) -> Ways:
        """Of two ports by their rows, for each path by its number: what it crosses there and back of what not all paths do.

        A path that does not arrive, there or back, crosses nothing, as does one to which there is no other.
        """
        both = self.both_ways(one, other)
        common = set.intersection(*(set(way) for way in both if way)) if any(both) else set()
        return [tuple(row for row in way or () if row not in common) for way in both]

    def both_ways(self, one: int, other: int) -> list[Way]:
        """All that each path crosses, there and back."""
        found = self._both.get((one, other))
        if found is None:
            found = self._both[one, other] = _both_ways(self.now, one, other)
        return found


def _both_ways(now: SubnetNow, one: int, other: int) -> list[Way]:
    pairs = zip(ways(now.routes, one, other), ways(now.routes, other, one), strict=False)
    return [
        None if there.leaves is None or back.leaves is None else there.leaves + back.leaves
        for there, back in pairs
    ]


def _rows(subnet: Subnet) -> dict[int, int]:
    return {guid: row for row, guid in enumerate(subnet.port_guids.tolist()) if guid}


def _loads(subnet: Subnet, per_s: NDArray[np.float64]) -> NDArray[np.float64]:
    can_bps = subnet.rates_bps
    loads: NDArray[np.float64] = 8.0 * WORD_BYTES * per_s[:, _SENT] / np.maximum(can_bps, 1.0)
    return np.where(can_bps > 0, loads, 0.0)
