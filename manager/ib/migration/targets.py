"""Which path a connection over InfiniBand should take, given all that its two ports have. Pure.

A path is named by its number (`manager.ib.balance`): it is there and back, and both ends take the same.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from manager.fabric.routes import DirectedLink
from manager.faults.finding import Finding, Kind
from manager.ib.balance import Ways
from manager.ib.paths import Way
from manager.ib.subnets import SubnetNow

NAMED: tuple[Kind, ...] = ("dead", "flapping", "degraded", "bit_errors")
"""Faults of links and switches for which connections leave a path. What is full or held up is a matter of loads."""

FULL = 0.8
"""A link that carries this part of what it can, on average, is to be relieved."""

LEAST_GAIN = 0.2
"""So much emptier must the fullest link of the other path be, with the connection on it."""


class Faulty(NamedTuple):
    """Of a subnet.

    Attributes:
        rows: ports by which nothing should leave.
        has_dead: whether a link or a switch is named dead: what arrives nowhere does so for that.
    """

    rows: frozenset[int]
    has_dead: bool


def faulty(now: SubnetNow, findings: Iterable[Finding]) -> Faulty:
    """What findings name in a subnet."""
    subjects = [(finding.kind, finding.subject) for finding in findings if finding.kind in NAMED]
    links = {link for _, subject in subjects for link in subject.links}
    switches = {subject.name for _, subject in subjects if subject.kind == "switch"}
    has_dead = any(kind == "dead" for kind, _ in subjects)
    if not links and not switches:
        return Faulty(frozenset(), has_dead)
    ends, peers = now.names.ends, now.subnet.ports["peer"].tolist()
    rows = {
        row
        for row, peer in enumerate(peers)
        if peer >= 0
        and (DirectedLink(ends[row], ends[peer]) in links or ends[row] in switches or ends[peer] in switches)
    }
    return Faulty(frozenset(rows), has_dead)


class Choice:
    """Between the paths of two ports.

    Args:
        both: all that each path crosses, by its number, there and back.
        differing: the same without what all cross.
        bad: what is faulty.
    """

    def __init__(self, both: Sequence[Way], differing: Ways, bad: Faulty) -> None:
        self._both, self._differing, self._bad = both, differing, bad
        self.good = [number for number, way in enumerate(both) if way and bad.rows.isdisjoint(way)]

    def is_faulty(self, number: int) -> bool:
        """Whether a path crosses something that is named, or arrives nowhere while something is named dead."""
        way = self._both[number]
        return self._bad.has_dead if way is None else not self._bad.rows.isdisjoint(way)

    def fullest(self, number: int, loads: Sequence[float]) -> float:
        """How full the fullest link of a path is, of those that not all cross."""
        return max((loads[row] for row in self._differing[number]), default=0.0)

    def is_full(self, number: int, loads: Sequence[float]) -> bool:
        """Whether a good path has a link that is to be relieved."""
        return number in self.good and self.fullest(number, loads) >= FULL

    def beside(self, number: int, loads: Sequence[float]) -> int | None:
        """The good path that has least in common with another one, and of these the emptiest; None where there is none."""
        mine = set(self._differing[number])
        others = [other for other in self.good if other != number]
        return min(
            others,
            key=lambda other: (
                len(mine.intersection(self._differing[other])),
                self.fullest(other, loads),
                other,
            ),
            default=None,
        )

    def roomier(self, number: int, more: NDArray[np.float64], loads: Sequence[float]) -> int | None:
        """A path with so much more room that the connection should move; None where it should stay.

        Args:
            number: of its path.
            more: what it adds to each directed link that it crosses, as part of what that can carry, by row.
            loads: of all, its own part among them.
        """
        top = self.fullest(number, loads)
        mine = set(self._differing[number])
        after = {
            other: max(
                (loads[row] + (0.0 if row in mine else float(more[row])) for row in self._differing[other]),
                default=0.0,
            )
            for other in self.good
            if other != number
        }
        best = min(after, key=lambda other: (after[other], other), default=None)
        return best if best is not None and after[best] <= top - LEAST_GAIN else None

    def rows(self, *numbers: int) -> set[int]:
        """What these paths cross and not all do."""
        return {row for number in numbers for row in self._differing[number]}
