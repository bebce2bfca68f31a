"""Which links each path crosses, as an immutable value that planners and analysts share. No I/O.

A path is named by the NIC that it starts at, the destination address and the UDP source port; a link by the nodes
at its two ends, in the direction of travel.
"""

import itertools
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

NOWHERE = -1
"""In place of a link's number."""

MARK = "?"
"""The names of what does not answer begin with it; see `manager.fabric.completion`."""

_PRIVATE = re.compile(rf"{re.escape(MARK)}.+/.+>.+:\d+")

Pair = tuple[str, str]


class PathName(NamedTuple):
    """A path; `src` is a NIC as `HOST/IFNAME`."""

    src: str
    dst_addr: str
    sport: int


class DirectedLink(NamedTuple):
    """A link in one direction.

    A node is a switch's address, a NIC as `HOST/IFNAME`, or, beginning with `?`, something that does not answer; see
    `manager.fabric.completion`.
    """

    a: str
    b: str


class Gap(NamedTuple):
    """Where a path is not known: between two nodes, over so many links, None where nobody knows."""

    a: str
    b: str
    links: int | None


def is_nic(node: str) -> bool:
    """Whether a node is a NIC, and no switch, known or not."""
    return "/" in node and not node.startswith(MARK)


def is_private(node: str) -> bool:
    """Whether a name stands for whatever one path crosses where nobody answers."""
    return _PRIVATE.fullmatch(node) is not None


def _is_silent(node: str) -> bool:
    """Whether a name stands for a switch that does not answer, between two others."""
    return node.startswith(MARK) and ">" in node and not is_private(node)


def is_between_switches(link: DirectedLink) -> bool:
    """Whether both ends of a link are switches that have names."""
    return not any(is_nic(node) or node.startswith(MARK) for node in link)


@dataclass(frozen=True)
class Routes:
    """All known paths.

    Attributes:
        version: another one whenever a path's links are others.
        links: every link of every path; a link keeps its number from one version to the next, so those that no path
            crosses any more stay for a while. The same object while they are the same.
        paths: the numbers of each path's links in `links`, in the order of travel.
    """

    version: int = 0
    links: tuple[DirectedLink, ...] = ()
    paths: Mapping[PathName, tuple[int, ...]] = field(default_factory=dict)

    def ports(self, src: str, dst_addr: str) -> Mapping[int, tuple[int, ...]]:
        """The links of each known path from a NIC to an address, by source port."""
        if isinstance(self.paths, PackedPaths):
            return self.paths.ports(src, dst_addr)
        return self._by_pair.get((src, dst_addr), {})

    def paths_over(self, src: str, dst_addr: str, sports: Iterable[int]) -> list[tuple[int, ...]]:
        """The links of the path from a NIC to an address by each of some ports, none where it is not known."""
        return [self.paths.get(PathName(src, dst_addr, sport), ()) for sport in sports]

    def crossed(self, paths: Sequence[PathName]) -> NDArray[np.int32]:
        """The numbers of the links of many paths in the order of travel, -1 behind the last, shape (paths, most links).

        Of a path that is not known all are -1.
        """
        if isinstance(self.paths, PackedPaths):
            return self.paths.crossed_by(paths)
        found = [self.paths.get(path, ()) for path in paths]
        crossed = np.full((len(found), max(map(len, found), default=0)), NOWHERE, np.int32)
        for i, links in enumerate(found):
            crossed[i, : len(links)] = links
        return crossed

    def pairs(self) -> Collection[Pair]:
        """The NIC and the destination address of every known path, each pair once."""
        return (self.paths.pairs if isinstance(self.paths, PackedPaths) else self._by_pair).keys()

    @cached_property
    def packed(self) -> "PackedPaths":
        """All known paths in arrays."""
        if isinstance(self.paths, PackedPaths):
            return self.paths
        names = list(self.paths)
        rows: dict[Pair, dict[int, int]] = {}
        for row, name in enumerate(names):
            rows.setdefault((name.src, name.dst_addr), {})[name.sport] = row
        return PackedPaths(rows, self.crossed(names))

    @cached_property
    def first_switch(self) -> dict[str, str]:
        """The switch that the packets of each NIC meet first."""
        return {a: b for a, b in self.links if is_nic(a)}

    @cached_property
    def last_switch(self) -> dict[str, str]:
        """The switch that packets to each NIC meet last."""
        return {b: a for a, b in self.links if is_nic(b)}

    @cached_property
    def hidden(self) -> dict[DirectedLink, Gap]:
        """Links that stand for what some path crosses where nobody answers."""
        return {**self._private, **self._silent}

    @cached_property
    def _private(self) -> dict[DirectedLink, Gap]:
        """Those of one path only, of which nobody knows how many links they stand for."""
        private = np.array([is_private(link.b) for link in self.links], bool)
        if not private.any():
            return {}
        crossed = self.packed.crossed
        is_here = np.zeros(crossed.shape, bool)
        is_here[crossed >= 0] = private[crossed[crossed >= 0]]
        found = {}
        for row in np.flatnonzero(is_here.any(axis=1)).tolist():
            way = [self.links[number] for number in crossed[row].tolist() if number >= 0]
            for link, after in itertools.pairwise([*way, None]):
                if link is not None and is_private(link.b):
                    found[link] = Gap(link.a, "" if after is None else after.a, None)
        return found

    @cached_property
    def _silent(self) -> dict[DirectedLink, Gap]:
        """Those of all paths that are silent between the same two switches; one of several ways may be meant."""
        after = {link.a: link for link in self.links if _is_silent(link.a)}
        found = {}
        for link in self.links:
            if not _is_silent(link.b) or _is_silent(link.a):
                continue
            way = [link]
            while way[-1].b in after:
                way.append(after[way[-1].b])
            found.update(dict.fromkeys(way, Gap(link.a, way[-1].b, len(way))))
        return found

    @cached_property
    def _by_pair(self) -> dict[Pair, dict[int, tuple[int, ...]]]:
        pairs: dict[Pair, dict[int, tuple[int, ...]]] = {}
        for name, links in self.paths.items():
            pairs.setdefault((name.src, name.dst_addr), {})[name.sport] = links
        return pairs


@dataclass(frozen=True)
class RowsOfPairs:
    """Which pair each row of paths is of.

    Attributes:
        number: of each pair, which it keeps from one snapshot to the next.
        pairs: the pair of each number, None for one that none has.
        of: the number of each row's pair, NOWHERE for a row that is none's, shape (rows,).
    """

    number: Mapping[Pair, int]
    pairs: Sequence[Pair | None]
    of: NDArray[np.int32]

    @classmethod
    def by(cls, pairs: Mapping[Pair, Mapping[int, int]], rows: int) -> "RowsOfPairs":
        """From the rows of each pair."""
        of = np.full(rows, NOWHERE, np.int32)
        for number, mine in enumerate(pairs.values()):
            of[list(mine.values())] = number
        return cls({pair: number for number, pair in enumerate(pairs)}, list(pairs), of)


class PackedPaths(Mapping[PathName, tuple[int, ...]]):
    """Many paths in little room: nothing is unpacked before somebody asks for it.

    Args:
        pairs: rows by NIC, destination address and source port; not changed afterwards.
        crossed: numbers of links in the order of travel, negative behind the last one, shape (rows, most links).
        rows: which pair each row is of; found out where it is not known.
    """

    def __init__(
        self,
        pairs: Mapping[Pair, Mapping[int, int]],
        crossed: NDArray[np.int32],
        rows: RowsOfPairs | None = None,
    ) -> None:
        self.pairs, self.crossed = pairs, crossed
        self.rows = RowsOfPairs.by(pairs, len(crossed)) if rows is None else rows

    def __getitem__(self, name: PathName) -> tuple[int, ...]:
        return self._links(self.pairs[name[0], name[1]][name[2]])

    def __iter__(self) -> Iterator[PathName]:
        for (src, dst_addr), rows in self.pairs.items():
            for sport in rows:
                yield PathName(src, dst_addr, sport)

    def __len__(self) -> int:
        return sum(len(rows) for rows in self.pairs.values())

    def ports(self, src: str, dst_addr: str) -> dict[int, tuple[int, ...]]:
        """The links of each path from a NIC to an address, by source port."""
        return {sport: self._links(row) for sport, row in self.pairs.get((src, dst_addr), {}).items()}

    def crossed_by(self, paths: Sequence[PathName]) -> NDArray[np.int32]:
        """See `Routes.crossed`."""
        nothing: Mapping[int, int] = {}
        rows = [
            self.pairs.get((src, dst_addr), nothing).get(sport, NOWHERE) for src, dst_addr, sport in paths
        ]
        return np.maximum(self.crossed_in(np.array(rows, np.int32)), np.int32(NOWHERE))

    def crossed_in(self, rows: NDArray[np.int32]) -> NDArray[np.int32]:
        """The links of paths by their rows, negative behind the last; of NOWHERE none, shape (rows, most links)."""
        if not len(self.crossed):
            return np.full((len(rows), 0), NOWHERE, np.int32)
        found: NDArray[np.int32] = np.where((rows >= 0)[:, None], self.crossed[rows], np.int32(NOWHERE))
        return found

    def used(self) -> NDArray[np.int32]:
        """The numbers of all links that some path crosses, with repetitions."""
        return self.crossed[self.crossed >= 0]

    def _links(self, row: int) -> tuple[int, ...]:
        links = self.crossed[row].tolist()
        while links and links[-1] < 0:
            links.pop()
        return tuple(links)
