"""Which links and paths the measured flows speak against, and which for. Pure.

A flow speaks of a link only where the link was full: what a link carries shows in nothing else.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from manager.audit.throughput.rates import SLOW, Rates

LEAST_FLOWS = 2
"""So many slow flows accuse the link that they share; one alone is told as a path."""

ENOUGH_FLOWS = 4
"""If so many were slow over a link, and none was not, nobody asks again."""

Numbers = NDArray[np.intp]


@dataclass(frozen=True)
class Evidence:
    """What flows say.

    Attributes:
        rates: of the flows.
        shares: of what each should have carried, NaN for unknown, shape (flows,).
        full: for each flow the links that were full.
        times: how often each path was measured, shape (paths,).
        against, favour: how many flows were slow over each link while it was full, and how many not, shape (links,).
    """

    rates: Rates
    shares: NDArray[np.float64]
    full: list[list[int]]
    times: Numbers
    against: Numbers
    favour: Numbers

    @property
    def doubted(self) -> NDArray[np.bool_]:
        """Links that some flows speak against, and none for; shape (links,)."""
        found: NDArray[np.bool_] = (self.against > 0) & (self.favour == 0)
        return found

    @property
    def asked(self) -> NDArray[np.bool_]:
        """Links in doubt of which more flows would tell more; shape (links,)."""
        found: NDArray[np.bool_] = self.doubted & (self.against < ENOUGH_FLOWS)
        return found

    def slow_flows(self) -> list[int]:
        """Those of which no other flow over the same path shows that it was an accident."""
        carried = self.rates.carried
        well = {each.row for each, share in zip(carried, self.shares, strict=True) if share >= SLOW}
        return [i for i in np.flatnonzero(self.shares < SLOW).tolist() if carried[i].row not in well]

    def slow_links(self) -> tuple[list[tuple[list[int], list[int]]], list[int]]:
        """Links whose flows are all slow, those first that explain most, each with its flows; and the flows that none explains.

        Links that the same flows speak against are told together: nobody can say which of them it is.
        """
        left = set(np.flatnonzero(self.shares < SLOW).tolist())
        able = self.doubted & (self.against >= LEAST_FLOWS)
        found: list[tuple[list[int], list[int]]] = []
        while True:
            flows_of = self._flows_of(left, able)
            if max(map(len, flows_of.values()), default=0) < LEAST_FLOWS:
                return found, [i for i in self.slow_flows() if i in left]
            flows = max(flows_of.values(), key=len)
            found.append(([link for link, mine in flows_of.items() if mine == flows], flows))
            left -= set(flows)

    def _flows_of(self, left: set[int], able: NDArray[np.bool_]) -> dict[int, list[int]]:
        flows: dict[int, list[int]] = {}
        for i in sorted(left):
            for link in self.full[i]:
                if able[link]:
                    flows.setdefault(link, []).append(i)
        return flows


def evidence(rates: Rates, limit: Numbers) -> Evidence:
    """What all flows say; `limit` is how many fill each link, shape (links,)."""
    ways, shares = rates.ways, rates.shares(rates.carried)
    times = np.zeros(len(ways.names), np.intp)
    against, favour = np.zeros((2, len(limit)), np.intp)
    full = []
    for each, share in zip(rates.carried, shares, strict=True):
        times[each.row] += 1
        links = ways.links_of(each.row)
        mine = [link for link, count in zip(links, each.counts, strict=True) if count >= limit[link]]
        full.append(mine)
        against[mine] += share < SLOW
        favour[mine] += share >= SLOW
    return Evidence(rates, shares, full, times, against, favour)
