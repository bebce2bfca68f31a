"""The paths that flows can be sent over, as arrays. Pure."""

import random
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from ipaddress import ip_address

import numpy as np
from numpy.typing import NDArray

from manager.fabric.places import LEAF, link_tiers
from manager.fabric.routes import DirectedLink, PathName, Routes, is_nic
from manager.fabric.wiring import address_of_each
from manager.tcp.names import is_tcp

MOST_PATHS = 200_000
"""That are looked at, drawn at random."""

NONE = -1


@dataclass(frozen=True)
class Ways:
    """Paths, one for each pair of NICs and set of links between them.

    Attributes:
        names: of the paths.
        nics: all that are at an end of one.
        src, dst: the places of a path's ends in `nics`, shape (paths,).
        crossed: numbers of links in the order of travel, NONE behind the last, shape (paths, most links).
        middle: the same number for paths that cross the same links between switches, NONE where they cross none, shape (paths,).
        links: by number.
        known: the numbers of those that paths cross, of NICs too that are not able, shape (known links,).
    """

    names: list[PathName] = field(default_factory=list)
    nics: tuple[str, ...] = ()
    src: NDArray[np.intp] = field(default_factory=lambda: np.zeros(0, np.intp))
    dst: NDArray[np.intp] = field(default_factory=lambda: np.zeros(0, np.intp))
    crossed: NDArray[np.int32] = field(default_factory=lambda: np.zeros((0, 0), np.int32))
    middle: NDArray[np.intp] = field(default_factory=lambda: np.zeros(0, np.intp))
    links: tuple[DirectedLink, ...] = ()
    known: NDArray[np.intp] = field(default_factory=lambda: np.zeros(0, np.intp))

    @cached_property
    def reached(self) -> NDArray[np.intp]:
        """The links that some path crosses."""
        return np.unique(self.crossed[self.crossed >= 0]).astype(np.intp)

    @cached_property
    def kinds(self) -> NDArray[np.intp]:
        """The tier of the lower end of each link between switches, NONE for NICs' links; shape (links,)."""
        src, dst = link_tiers(self.links)
        lower = np.minimum(src, dst)
        return np.where(lower >= LEAF, lower, NONE)

    @cached_property
    def rows_over(self) -> list[list[int]]:
        """The paths over each link."""
        rows: list[list[int]] = [[] for _ in self.links]
        for row in range(len(self.names)):
            for link in self.links_of(row):
                rows[link].append(row)
        return rows

    @cached_property
    def _lists(self) -> list[list[int]]:
        return [[link for link in way if link >= 0] for way in self.crossed.tolist()]

    def links_of(self, row: int) -> list[int]:
        """The links of a path in the order of travel."""
        return self._lists[row]

    def ends(self, row: int) -> tuple[str, str]:
        """The NICs that a path starts at and ends at."""
        return self.nics[self.src[row]], self.nics[self.dst[row]]


def ways(routes: Routes, owners: Mapping[str, str], able: Collection[str], seed: int) -> Ways:
    """All known paths between NICs.

    Args:
        routes: what is known of the fabric. Paths that are not known from end to end are left out.
        owners: the NIC of each address; one address of a NIC is sent to.
        able: the NICs that may send and receive.
        seed: of paths over the same links one is drawn by it.
    """
    hidden = {number for number, link in enumerate(routes.links) if link in routes.hidden}
    known = np.array(sorted(set(routes.packed.used().tolist()) - hidden), np.intp)
    found = [each for each in _found(routes, owners, frozenset(able)) if not hidden.intersection(each[2])]
    draw = random.Random(seed)  # noqa: S311 - no secret
    draw.shuffle(found)
    by_links = {(name.src, dst, links): name for name, dst, links in found[:MOST_PATHS]}
    if not by_links:
        return Ways(links=routes.links, known=known)
    nics = tuple(sorted({nic for src, dst, _ in by_links for nic in (src, dst)}))
    place = {nic: i for i, nic in enumerate(nics)}
    crossed = np.full((len(by_links), max(len(links) for *_, links in by_links)), NONE, np.int32)
    middles: dict[tuple[int, ...], int] = {(): NONE}
    for row, (*_, links) in enumerate(by_links):
        crossed[row, : len(links)] = links
        middles.setdefault(links[1:-1], len(middles) - 1)
    return Ways(
        names=list(by_links.values()),
        nics=nics,
        src=np.array([place[src] for src, _, _ in by_links], np.intp),
        dst=np.array([place[dst] for _, dst, _ in by_links], np.intp),
        crossed=crossed,
        middle=np.array([middles[links[1:-1]] for *_, links in by_links], np.intp),
        links=routes.links,
        known=known,
    )


def _found(
    routes: Routes, owners: Mapping[str, str], able: frozenset[str]
) -> Iterator[tuple[PathName, str, tuple[int, ...]]]:
    """Paths, where they end, and their links."""
    one_address = address_of_each(owners)
    for src, dst_addr in routes.pairs():
        dst = owners.get(dst_addr, "")
        if is_tcp(dst_addr) or not {src, dst} <= able or one_address[dst] != dst_addr:
            continue
        if ip_address(one_address[src]).version != ip_address(dst_addr).version:
            continue
        for sport, links in routes.ports(src, dst_addr).items():
            if len(links) > 1 and _is_whole(routes, links, (src, dst)):
                yield PathName(src, dst_addr, sport), dst, links


def _is_whole(routes: Routes, links: tuple[int, ...], ends: tuple[str, str]) -> bool:
    first, last = routes.links[links[0]], routes.links[links[-1]]
    return is_nic(first.a) and is_nic(last.b) and (first.a, last.b) == ends
