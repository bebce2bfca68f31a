"""What flows carried, and what they should have: by what most others with as many links carry, and links that several share. Pure."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from manager.audit.throughput.ways import Ways

USUAL = 75.0
"""The percentile that flows are held against: none carries more than its links do, so more than half of them may be slow."""

LEAST_FLOWS = 5
"""Fewer of a class tell nothing of each other."""

SLOW = 0.85
"""Of what it should carry: less is slow."""

Class = tuple[int, int]
"""How many links a path has, and what the slower of its NICs can carry, 0 for unknown."""


@dataclass(frozen=True)
class Carried:
    """A flow that was measured.

    Attributes:
        row: its path in `Ways`.
        bps: payload that arrived.
        counts: how many flows crossed each of its links then.
        at: which round that was.
    """

    row: int
    bps: float
    counts: tuple[int, ...]
    at: int


@dataclass
class Rates:
    """All that was measured.

    Attributes:
        ways: the paths.
        speeds_bps: of NICs, as they tell; those that are not known are taken for alike.
        carried: in the order of time.
        shared_bps: by kind of link, what most carried that several flows filled together.
    """

    ways: Ways
    speeds_bps: Mapping[str, int] = field(default_factory=dict)
    carried: list[Carried] = field(default_factory=list)
    shared_bps: dict[int, float] = field(default_factory=dict)

    def take(self, used: NDArray[np.intp], bps: Mapping[int, float]) -> None:
        """A round is over: what each path carried, and how many flows crossed each link, shape (links,)."""
        at = 1 + (self.carried[-1].at if self.carried else 0)
        self.carried += [self.of(row, rate, used, at) for row, rate in bps.items()]

    def of(self, row: int, bps: float, used: NDArray[np.intp], at: int = 0) -> Carried:
        """A flow of a round; 0 for one that is not kept."""
        return Carried(row, bps, tuple(used[self.ways.links_of(row)].tolist()), at)

    def usual(self) -> dict[Class, float]:
        """What most flows of a class carried that shared no link, by class; of classes with enough flows."""
        found: defaultdict[Class, list[float]] = defaultdict(list)
        for each in self.carried:
            if max(each.counts) == 1:
                found[self._class(each.row)].append(each.bps)
        return {
            name: float(np.percentile(rates, USUAL))
            for name, rates in found.items()
            if len(rates) >= LEAST_FLOWS
        }

    def shares(self, flows: Sequence[Carried]) -> NDArray[np.float64]:
        """Of what each flow should have carried, what it did, NaN where that cannot be told; shape (flows,)."""
        usual = self.usual()
        return np.array([each.bps / self.expected(each, usual) for each in flows], np.float64)

    def expected(self, flow: Carried, usual: Mapping[Class, float]) -> float:
        """What a flow should have carried, NaN where that cannot be told: no less than flows over more links."""
        links, speed_bps = self._class(flow.row)
        longer = [bps for (other, speed), bps in usual.items() if speed == speed_bps and other >= links]
        most = max(longer, default=float("nan"))
        for link, count in zip(self.ways.links_of(flow.row), flow.counts, strict=True):
            if count > 1:
                shared_bps = self.shared_bps.get(int(self.ways.kinds[link]), float("nan"))
                most = float(np.minimum(most, shared_bps / count))
        return most

    def _class(self, row: int) -> Class:
        speeds = [self.speeds_bps.get(nic, 0) for nic in self.ways.ends(row)]
        return len(self.ways.links_of(row)), min(speeds)


def per_link(ways: Ways, bps: Mapping[int, float]) -> NDArray[np.float64]:
    """What each link carried in a round, shape (links,)."""
    total = np.zeros(len(ways.links))
    for row, rate in bps.items():
        total[ways.links_of(row)] += rate
    return total
