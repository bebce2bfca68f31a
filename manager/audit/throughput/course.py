"""The rounds of an audit's throughput, one after the other: each is chosen by what those before have shown. Pure.

After the first, flows meet on some links between switches, to see whether these carry more than one NIC sends: then so many
meet on each that it is filled. Rounds follow until each link was filled twice, and then others over links that were never
taken together, `MOST_ROUNDS` at most. Links that were slow are filled by other paths, and slow paths are measured again. In
the last round each half of the fabric sends to the other.
"""

from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from manager.audit.throughput.evidence import Evidence, evidence
from manager.audit.throughput.rates import USUAL, Rates, per_link
from manager.audit.throughput.rounds import (
    Coverage,
    Room,
    Rows,
    Wanted,
    concentrate,
    fill,
    halves,
)
from manager.audit.throughput.ways import Ways

MOST_ROUNDS = 16
MOST_AGAIN = 6

MEASURED = 3
"""So often a slow path is measured: others may have had the processor, or the link, once."""

MOST_LOST = 3
"""Rounds of which nothing was told, and the next is not tried."""

MOST_OF_ALL = MOST_ROUNDS + MOST_AGAIN + MOST_LOST

MORE = 1.25
"""If two fill a link to so much more than one does, one does not fill it."""

Kind = Literal["fill", "meet", "again", "halves"]


@dataclass(frozen=True)
class Round:
    """Flows at the same time.

    Attributes:
        kind: what for.
        rows: their paths.
        used: how many cross each link, shape (links,).
    """

    kind: Kind
    rows: tuple[int, ...]
    used: NDArray[np.intp]


Rounds = Generator[Round, Mapping[int, float], None]
"""Each round is answered with what its paths carried in bit/s; those that could not be measured are left out."""


class Course:
    """All rounds.

    Args:
        ways: the paths.
        speeds_bps: of NICs, as far as they are known.
        seed: of what is drawn.
        is_capped: whether flows carry no more than people allow; then one is enough for each link.

    Attributes:
        rates: what was measured, but in rounds of which only sums count.
        filled: which links were, shape (links,).
        done: how many rounds are over.
        filled_after: after how many of them each link was filled that some path crosses; 0 while some are not.
        barred: places of NICs that take no part any more.
        halves: the last round, and what it carried; None where there was none.
    """

    def __init__(
        self, ways: Ways, speeds_bps: Mapping[str, int], seed: int, *, is_capped: bool = False
    ) -> None:
        self.ways, self._draw, self._is_capped = ways, np.random.default_rng(seed), is_capped
        self.rates = Rates(ways, speeds_bps)
        self.filled = np.zeros(len(ways.links), bool)
        self.done = self.filled_after = 0
        self.barred: set[int] = set()
        self.halves: tuple[Round, Mapping[int, float]] | None = None
        self._limit = np.ones(len(ways.links), np.intp)
        self._coverage = Coverage(ways, self._limit)

    def bar(self, nic: str) -> None:
        """A NIC takes no part from now on."""
        self.barred.add(self.ways.nics.index(nic))

    def evidence(self) -> Evidence:
        """What all that was measured says."""
        return evidence(self.rates, self._limit)

    def rounds(self) -> Rounds:
        """One after the other."""
        yield from self._fill(most=1)
        for kind in [] if self._is_capped else np.unique(self._kinds[self._kinds >= 0]).tolist():
            yield from self._meet(kind)
        yield from self._fill(most=MOST_ROUNDS)
        yield from self._again()
        yield from self._halves()

    @property
    def _kinds(self) -> NDArray[np.intp]:
        return self.ways.kinds[self.ways.reached]

    def _fill(self, most: int) -> Rounds:
        while self.done < most:
            room = self._room()
            concentrate(room, np.flatnonzero((self._limit > 1) & (self._coverage.times == 0)), self._coverage)
            fill(room, self._coverage)
            if not room.rows:
                return
            yield from self._measure("fill", room)

    def _measure(self, kind: Kind, room: Room) -> Rounds:
        bps = yield Round(kind, tuple(room.rows), room.used)
        self.rates.take(room.used, bps)
        if kind == "fill":
            self._coverage.close(room.rows, bps.keys(), room.used)
        told = np.zeros(len(self.ways.links), np.intp)
        for row in bps:
            told[self.ways.links_of(row)] += 1
        self.filled |= (told > 0) & (told >= self._limit)
        self.done += 1
        if not self.filled_after and self.filled[self.ways.known].all():
            self.filled_after = self.done

    def _meet(self, kind: int) -> Rounds:
        """Find out how many flows fill the links of a kind."""
        count, one, lost = 1, self._usual_of_one(kind), 0
        of_kind = self.ways.kinds == kind
        while True:
            room = self._room()
            room.allow(np.where(of_kind, 2 * count, self._limit))
            links = self._draw.permutation(np.flatnonzero(of_kind)).tolist()
            met = concentrate(room, links, Wanted(np.ones(len(self.ways.names), bool)))
            if not met:
                break
            bps = yield Round("meet", tuple(room.rows), room.used)
            self.done += 1
            missing = {link for row in room.rows if row not in bps for link in self.ways.links_of(row)}
            sums = per_link(self.ways, bps)[[link for link in met if link not in missing]]
            if not sums.size:
                lost += 1
                if lost == MOST_LOST:
                    break
                continue
            several = float(np.percentile(sums, USUAL))
            self.rates.shared_bps[kind] = max(several, one)
            if several < MORE * one:
                break
            count, one = 2 * count, several
        if count > 1:
            self._limit = np.where(of_kind, count, self._limit)
            self.filled &= ~of_kind
            self.filled_after = 0
            self._coverage = Coverage(self.ways, self._limit)

    def _usual_of_one(self, kind: int) -> float:
        """What a flow by itself carries over a link of a kind."""
        kinds, links_of = self.ways.kinds, self.ways.links_of
        over = [each.bps for each in self.rates.carried if (kinds[links_of(each.row)] == kind).any()]
        return float(np.percentile(over, USUAL)) if over else float("inf")

    def _again(self) -> Rounds:
        """Fill links once more that were slow, by other paths, and measure slow paths once more."""
        for _ in range(MOST_AGAIN):
            found = self.evidence()
            room = Room(self.ways, self._limit, self.barred, one_way=True)
            suspects = Suspects(found)
            concentrate(room, found.first_asked(), suspects)
            fill(room, suspects)
            if not room.rows:
                return
            yield from self._measure("again", room)

    def _halves(self) -> Rounds:
        crosses, room = Wanted(halves(self.ways)), self._room()
        limit = 1
        while limit <= len(self.ways.nics):
            room.allow(np.full(len(self.ways.links), limit, np.intp))
            fill(room, crosses)
            limit *= 2
        for _ in range(MOST_LOST if room.rows else 0):
            done = Round("halves", tuple(room.rows), room.used)
            bps = yield done
            self.done += 1
            if bps:
                self.halves = done, bps
                return

    def _room(self) -> Room:
        return Room(self.ways, self._limit, self.barred)


class Suspects:
    """What to measure again: paths over links of which little is doubted before all, then slow paths themselves.

    Args:
        found: what was measured so far.
    """

    def __init__(self, found: Evidence) -> None:
        self._ways = found.rates.ways
        self._doubt = np.append(np.where(found.doubted, 1 + found.against, 0), 0)
        self._times = found.times.copy()
        self._slow = np.zeros(len(self._times), bool)
        explained = {i for slow in found.slow_links()[0] for i in slow.flows}
        alone = [found.rates.carried[i].row for i in found.slow_flows() if i not in explained]
        self._slow[alone] = True

    def of(self, rows: Rows, used: NDArray[np.intp]) -> NDArray[np.float64]:  # noqa: ARG002 - see `Worth`
        """See `Worth`."""
        doubt = self._doubt[self._ways.crossed[rows]].sum(axis=1)
        tells = (doubt > 0) & (self._times[rows] == 0)
        once_more = self._slow[rows] & (self._times[rows] < MEASURED)
        return np.where(tells, 100.0 / np.maximum(doubt, 1), np.where(once_more, 1.0, 0.0))

    def take(self, row: int) -> None:
        """See `Worth`."""
        self._times[row] += 1
