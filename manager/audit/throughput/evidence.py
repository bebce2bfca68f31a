"""Which links and paths the measured flows speak against, and which for. Pure.

A flow speaks of a link only where the link was full: what a link carries shows in nothing else. Acknowledgements come the other way:
where they wait behind another flow in a slow link, a flow is slow whose own links are well. So one of two slow flows to and from
the same NIC tells nothing yet: it only has its links be filled again by others.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from manager.audit.throughput.rates import SLOW, Rates

LEAST_FLOWS = 2
"""So many slow flows accuse the link that they share; one alone is told as a path."""

ENOUGH_FLOWS = 3
"""If so many were slow over a link, and none was not, nobody asks again."""

Numbers = NDArray[np.intp]


@dataclass(frozen=True)
class Slow:
    """What explains slow flows.

    Attributes:
        links: of a switch all, to other switches or from them; else one of them is slow, and nobody can say which.
        flows: that it explains.
        switch: "" where it is a link.
    """

    links: list[int]
    flows: list[int]
    switch: str = ""


@dataclass(frozen=True)
class Evidence:
    """What flows say.

    Attributes:
        rates: of the flows.
        shares: of what each should have carried, NaN for unknown, shape (flows,).
        full: for each flow the links that were full.
        times: how often each path was measured so that it tells something, shape (paths,).
        against, favour: how many flows were slow over each link while it was full, by nothing else, and how many not, shape (links,).
        mixed: whether a flow may be slow by what another one met, shape (flows,).
    """

    rates: Rates
    shares: NDArray[np.float64]
    full: list[list[int]]
    times: Numbers
    against: Numbers
    favour: Numbers
    mixed: NDArray[np.bool_]

    @property
    def doubted(self) -> NDArray[np.bool_]:
        """Links over which some flows were slow, and none that filled them was well; shape (links,)."""
        found = np.zeros(len(self.favour), bool)
        for i in np.flatnonzero(self.shares < SLOW).tolist():
            found[self.full[i]] = True
        found &= self.favour == 0
        return found

    @property
    def asked(self) -> NDArray[np.bool_]:
        """Links in doubt of which more flows would tell more; shape (links,)."""
        found: NDArray[np.bool_] = self.doubted & (self.against < ENOUGH_FLOWS)
        return found

    def first_asked(self) -> list[int]:
        """The same, those first that most speaks against."""
        links = np.flatnonzero(self.asked)
        order: list[int] = links[np.argsort(-self.against[links], kind="stable")].tolist()
        return order

    def slow_flows(self) -> list[int]:
        """Those of which no other flow over the same path shows that it was an accident."""
        carried = self.rates.carried
        well = {each.row for each, share in zip(carried, self.shares, strict=True) if share >= SLOW}
        slow = np.flatnonzero((self.shares < SLOW) & ~self.mixed).tolist()
        return [i for i in slow if carried[i].row not in well]

    def slow_links(self) -> tuple[list[Slow], list[int]]:
        """Links whose flows are all slow, those first that explain most, and the flows that none explains.

        A switch all of whose links are slow, one way, is told instead of them if no link explains as much.
        """
        carried, ways = self.rates.carried, self.rates.ways
        left = set(np.flatnonzero((self.shares < SLOW) & ~self.mixed).tolist())
        able = self.doubted & (self.against >= LEAST_FLOWS)
        found: list[Slow] = []
        while True:
            flows_of = self._flows_of(left, able)
            found_now = max(self._explaining(flows_of, able), key=lambda one: len(one.flows), default=None)
            if found_now is None or len(found_now.flows) < LEAST_FLOWS:
                accused = {link for one in found for link in one.links}
                return found, [i for i in self.slow_flows() if i in left and not self._may_wait(i, accused)]
            found.append(found_now)
            links = set(found_now.links)
            left = {i for i in left if not links.intersection(ways.links_of(carried[i].row))}

    def _may_wait(self, flow: int, accused: set[int]) -> bool:
        """Whether acknowledgements of a flow may have come by a slow link that another one filled."""
        ways, mine = self.rates.ways, self.rates.carried[flow]
        back = np.flatnonzero((ways.src == ways.dst[mine.row]) & (ways.dst == ways.src[mine.row]))
        behind = accused.intersection(link for row in back.tolist() for link in ways.links_of(row))
        return any(
            behind.intersection(ways.links_of(each.row)) for each in self.rates.carried if each.at == mine.at
        )

    def _flows_of(self, left: set[int], able: NDArray[np.bool_]) -> dict[int, list[int]]:
        flows: dict[int, list[int]] = {}
        for i in sorted(left):
            for link in self.full[i]:
                if able[link]:
                    flows.setdefault(link, []).append(i)
        return flows

    def _explaining(self, flows_of: dict[int, list[int]], able: NDArray[np.bool_]) -> Iterator[Slow]:
        """Links, those together that the same flows speak against; then switches."""
        by_flows: dict[tuple[int, ...], list[int]] = {}
        for link, mine in flows_of.items():
            by_flows.setdefault(tuple(mine), []).append(link)
        for of_links, links in by_flows.items():
            yield Slow(links, list(of_links))
        for switch, links in self._sides():
            if len(links) > 1 and able[links].all():
                yield Slow(links, sorted({i for link in links for i in flows_of.get(link, ())}), switch)

    def _sides(self) -> Iterator[tuple[str, list[int]]]:
        """Each switch with its links to other switches, and with those from them."""
        ways = self.rates.ways
        for end in (0, 1):
            sides: dict[str, list[int]] = {}
            for link in ways.reached[ways.kinds[ways.reached] >= 0].tolist():
                sides.setdefault(ways.links[link][end], []).append(link)
            yield from sides.items()


def evidence(rates: Rates, limit: Numbers) -> Evidence:
    """What all flows say; `limit` is how many fill each link, shape (links,)."""
    ways, shares = rates.ways, rates.shares(rates.carried)
    times = np.zeros(len(ways.names), np.intp)
    against, favour = np.zeros((2, len(limit)), np.intp)
    full, mixed = [], _mixed(rates, shares)
    for each, share, is_mixed in zip(rates.carried, shares, mixed, strict=True):
        times[each.row] += not is_mixed
        links = ways.links_of(each.row)
        mine = [link for link, count in zip(links, each.counts, strict=True) if count >= limit[link]]
        full.append(mine)
        against[mine] += share < SLOW and not is_mixed
        favour[mine] += share >= SLOW
    return Evidence(rates, shares, full, times, against, favour, mixed)


def _mixed(rates: Rates, shares: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Which slow flows have acknowledgements that may have waited behind another slow flow, at either of their NICs."""
    ways, slow = rates.ways, np.flatnonzero(shares < SLOW).tolist()
    flows = [rates.carried[i] for i in slow]
    into = {(each.at, int(ways.dst[each.row])) for each in flows}
    out_of = {(each.at, int(ways.src[each.row])) for each in flows}
    mixed = np.zeros(len(shares), bool)
    for i, each in zip(slow, flows, strict=True):
        mixed[i] = (each.at, int(ways.src[each.row])) in into or (each.at, int(ways.dst[each.row])) in out_of
    return mixed
