"""How many paths are known of each pair, and of the leaves that it lies between. Pure, over arrays."""

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from manager.fabric.coverage import CONFIDENCE, confidence
from manager.fabric.routes import MARK, PackedPaths, Pair, Routes

I64 = NDArray[np.int64]


@dataclass(frozen=True)
class Known:
    """What is known of the paths of a pair.

    Attributes:
        ports: source ports whose whole paths are known.
        paths: different paths that they lead over.
        links: different links between the leaves that they cross.
        peer_ports, peer_paths, peer_links: the same of all pairs between the same leaves; NICs' own links are left out.
        peer_width: the most of those links that paths choose from at one place, 1 below one leaf.
    """

    ports: int = 0
    paths: int = 0
    links: int = 0
    peer_ports: int = 0
    peer_paths: int = 0
    peer_links: int = 0
    peer_width: int = 0

    @property
    def confidence(self) -> float:
        """How sure it is that no path between the leaves is unknown, 0 to 1."""
        return confidence(self.peer_ports, self.peer_paths)

    @property
    def link_confidence(self) -> float:
        """How sure it is that no link between the leaves is unknown, 0 to 1.

        Where every path has a spine of its own, that is the same. Where switches choose one after the other, there are
        many more paths than links.
        """
        return confidence(self.peer_ports, self.peer_width)


_PEER_PORTS, _PEER_WIDTH = (
    [each.name for each in fields(Known)].index(name) for name in ("peer_ports", "peer_width")
)


class PathCounts:
    """Counts of all pairs of a snapshot.

    Args:
        routes: a snapshot with `PackedPaths`; of another kind nothing is counted.
    """

    def __init__(self, routes: Routes) -> None:
        self._of: Mapping[Pair, int] = {}
        self._routes = routes
        self._switches: dict[tuple[str, str], int] = {}
        self._counts = np.zeros((0, len(fields(Known))), np.int64)
        self._first_links = np.zeros(0, np.int64)
        if isinstance(routes.paths, PackedPaths) and routes.paths.pairs:
            self._count(routes, routes.paths)

    def of(self, src: str, dst_addr: str) -> Known:
        """What is known of a pair."""
        at = self._of.get((src, dst_addr))
        return Known() if at is None else Known(*self._counts[at].tolist())

    def lacks(self, pair: Pair, enough: int | None = None) -> bool:
        """Whether a pair has too few paths: fewer links than all others between its leaves, or some may be unknown.

        Args:
            pair: of which something is known; of another one that is not said.
            enough: so many different paths will do, and fewer where there are no more; None where all links are needed.
        """
        at = self._of.get(pair)
        if at is None:
            return False
        paths, peer_paths, has_all, is_unsure = self._wants[at]
        return bool(peer_paths) and (
            is_unsure or not (has_all if enough is None else paths >= min(enough, peer_paths))
        )

    @cached_property
    def _wants(self) -> list[tuple[int, int, bool, bool]]:
        """Of each pair its paths, its peers', whether it has all of their links, and whether some may be unknown."""
        known = dict(zip((each.name for each in fields(Known)), self._counts.T, strict=True))
        both, which = np.unique(
            np.stack([known["peer_ports"], known["peer_width"]]), axis=1, return_inverse=True
        )
        unsure = np.array([confidence(*each) < CONFIDENCE for each in both.T.tolist()], bool)
        has_all = known["links"] >= known["peer_links"]
        columns = known["paths"], known["peer_paths"], has_all, unsure[which.ravel()]
        return list(zip(*(column.tolist() for column in columns), strict=True))

    def switches(self, src: str, dst: str) -> int | None:
        """How many switches there are between two NICs, by what is known of others at the same two leaves."""
        ends = self._routes.first_switch.get(src, ""), self._routes.last_switch.get(dst, "")
        return self._switches.get(ends)

    def covered_leaves(self) -> set[str]:
        """Leaves from which all links to each leaf that any path leads to are known, as far as can be told."""
        number: dict[str, int] = {}
        leaf_of = [number.setdefault(link.b, len(number)) for link in self._routes.links]
        is_known = self._first_links >= 0
        leaf = np.array(leaf_of, np.int64)[self._first_links[is_known]]
        told = np.column_stack([leaf, self._counts[is_known][:, [_PEER_PORTS, _PEER_WIDTH]]])
        unsure = {
            at
            for at, ports, width in np.unique(told, axis=0).tolist()
            if confidence(ports, width) < CONFIDENCE
        }
        names = list(number)
        return {names[at] for at in set(leaf.tolist()) - unsure}

    def _count(self, routes: Routes, paths: PackedPaths) -> None:
        self._of = {pair: at for at, pair in enumerate(paths.pairs)}
        sizes = np.array([len(rows) for rows in paths.pairs.values()])
        row = np.fromiter(itertools.chain.from_iterable(r.values() for r in paths.pairs.values()), np.int64)
        pair = np.repeat(np.arange(len(sizes)), sizes)
        is_open = np.array([link.a.startswith(MARK) or link.b.startswith(MARK) for link in routes.links])
        crossed = paths.crossed[row]
        known = ~((crossed >= 0) & is_open[crossed]).any(axis=1)
        crossed, pair = crossed[known], pair[known]
        ends = _leaves(routes, crossed)
        self._switches = _distances(routes, crossed, ends)
        between = _without_ends(crossed)
        peers, peer = np.unique(ends, return_inverse=True)
        peer_counts = _tally(peer, _fingerprint(between), len(peers))
        peer_links = _links(peer, between, len(peers))
        pair_counts = _tally(pair, _fingerprint(crossed), len(sizes))
        pair_links = _links(pair, between, len(sizes))
        peer_of = np.full(len(sizes), -1)
        peer_of[pair] = peer
        self._first_links = np.full(len(sizes), -1)
        self._first_links[pair] = crossed[:, 0]
        counted = np.column_stack([peer_counts, peer_links.sum(axis=1), peer_links.max(axis=1, initial=1)])
        counted = np.concatenate([counted, np.zeros((1, counted.shape[1]), np.int64)])[peer_of]
        self._counts = np.column_stack([pair_counts, pair_links.sum(axis=1), counted])


def _leaves(routes: Routes, crossed: NDArray[np.int32]) -> I64:
    """One number for the first and the last switch of each path, shape (n,)."""
    number: dict[str, int] = {}
    into = np.array([number.setdefault(link.b, len(number)) for link in routes.links], np.int64)
    out_of = np.array([number.setdefault(link.a, len(number)) for link in routes.links], np.int64)
    last = crossed[np.arange(len(crossed)), (crossed >= 0).sum(axis=1) - 1]
    ends: I64 = into[crossed[:, 0]] * len(number) + out_of[last]
    return ends


def _distances(routes: Routes, crossed: NDArray[np.int32], ends: I64) -> dict[tuple[str, str], int]:
    """The switches on the way from one leaf to another, where all paths have as many."""
    switches = (crossed >= 0).sum(axis=1) - 1
    _, one, which = np.unique(ends, return_index=True, return_inverse=True)
    is_same = np.ones(len(one), bool)
    np.logical_and.at(is_same, which, switches == switches[one][which])
    found = {}
    for row in one[is_same].tolist():
        first, last = crossed[row, 0], crossed[row, switches[row]]
        found[routes.links[first].b, routes.links[last].a] = int(switches[row])
    return found


def _without_ends(crossed: NDArray[np.int32]) -> NDArray[np.int32]:
    """The same without the NICs' own links, -1 in their place, shape (n, most links)."""
    used = crossed >= 0
    inner = used & (np.arange(crossed.shape[1]) < used.sum(axis=1)[:, None] - 1)
    inner[:, 0] = False
    return np.where(inner, crossed, np.int32(-1))


def _fingerprint(crossed: NDArray[np.int32]) -> I64:
    """A number that is the same for the same links only, but for a chance of 2^-64, shape (n,)."""
    weights = np.random.default_rng(0).integers(-(2**62), 2**62, crossed.shape[1])
    mixed = (crossed.astype(np.int64) + 1) * np.int64(0x9E3779B97F4A7C1)
    mixed ^= mixed >> 29
    found: I64 = (np.where(crossed >= 0, mixed, 0) * weights).sum(axis=1)
    return found


def _links(group: I64, between: NDArray[np.int32], groups: int) -> I64:
    """How many different links the paths of each group cross at each place, shape (groups, places)."""
    found = [np.zeros(groups, np.int64)]
    links = int(between.max(initial=0)) + 1
    for place in between.T:
        used = place >= 0
        if used.any():
            pairs = np.sort(group[used] * links + place[used])
            is_new = np.append(True, pairs[1:] != pairs[:-1])
            found.append(np.bincount(pairs[is_new] // links, minlength=groups))
    return np.stack(found, axis=1)


def _tally(group: I64, what: I64, groups: int) -> I64:
    """Members and different members of each group, shape (groups, 2)."""
    order = np.lexsort((what, group))
    group, what = group[order], what[order]
    is_new = np.ones(len(group), bool)
    is_new[1:] = (group[1:] != group[:-1]) | (what[1:] != what[:-1])
    return np.stack(
        [np.bincount(group, minlength=groups), np.bincount(group[is_new], minlength=groups)], axis=1
    )
