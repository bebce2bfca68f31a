"""How many paths are known of each pair, and of the leaves that it lies between. Pure, over arrays.

From one snapshot to the next only what has changed is counted anew: pairs whose paths are others, and leaves that they
lie between.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from cwdp.shared.bus.messages import host_of
from manager.fabric.choice import CONFIDENCE, confidence
from manager.fabric.routes import MARK, NOWHERE, DirectedLink, PackedPaths, Pair, Routes, is_nic

I32 = NDArray[np.int32]
I64 = NDArray[np.int64]
Rows = NDArray[np.intp]


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


_PEER_COLUMNS = PEER_PORTS, PEER_PATHS, PEER_LINKS, PEER_WIDTH, PEER_SWITCHES = range(5)
_PAIR_COLUMNS = PORTS, PATHS, LINKS = range(3)
_MOST_NODES = 1 << 31

_Scalar = TypeVar("_Scalar", bound=np.generic)


@dataclass(frozen=True)
class _LinkEnds:
    """The nodes at the ends of links.

    Attributes:
        number: of each node; later ones are added here.
        into, out_of: the number of each link's end and start, shape (links,).
        is_open: whether one of them is not known, shape (links,).
    """

    number: dict[str, int] = field(default_factory=dict)
    into: I64 = field(default_factory=lambda: np.zeros(0, np.int64))
    out_of: I64 = field(default_factory=lambda: np.zeros(0, np.int64))
    is_open: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, bool))

    def with_more(self, links: Sequence[DirectedLink]) -> "_LinkEnds":
        """These and those of the links behind them."""
        number, more = self.number, links[len(self.into) :]
        if not more:
            return self
        ends = [[number.setdefault(node, len(number)) for node in (link.b, link.a)] for link in more]
        into, out_of = np.array(ends, np.int64).T
        is_open = [link.a.startswith(MARK) or link.b.startswith(MARK) for link in more]
        return _LinkEnds(
            number,
            np.concatenate([self.into, into]),
            np.concatenate([self.out_of, out_of]),
            np.concatenate([self.is_open, np.array(is_open, bool)]),
        )


@dataclass
class Counted:
    """What there is of a snapshot.

    Attributes:
        links: the snapshot's.
        ends: the nodes at their ends.
        pairs: the pair of each number.
        peers: the number of each two leaves, by `_between`.
        crossed, pair: of its rows the links and the number of the pair; see `PackedPaths`.
        peer: the number of the leaves between which each row leads, NOWHERE where not all is known, shape (rows,).
        of_peers: counts of each two leaves, shape (peers, 5).
        of_pairs: counts of each pair, shape (pairs, 3).
        peer_of: the leaves of each pair, shape (pairs,).
        first_link: the link that its paths cross first, shape (pairs,).
    """

    links: tuple[DirectedLink, ...] = ()
    ends: _LinkEnds = field(default_factory=_LinkEnds)
    pairs: Sequence[Pair | None] = ()
    peers: dict[int, int] = field(default_factory=dict)
    crossed: I32 = field(default_factory=lambda: np.zeros((0, 0), np.int32))
    pair: I32 = field(default_factory=lambda: np.zeros(0, np.int32))
    peer: I32 = field(default_factory=lambda: np.zeros(0, np.int32))
    of_peers: I64 = field(default_factory=lambda: np.zeros((0, len(_PEER_COLUMNS)), np.int64))
    of_pairs: I64 = field(default_factory=lambda: np.zeros((0, len(_PAIR_COLUMNS)), np.int64))
    peer_of: I64 = field(default_factory=lambda: np.zeros(0, np.int64))
    first_link: I64 = field(default_factory=lambda: np.zeros(0, np.int64))

    def copy(self) -> "Counted":
        """To be changed; arrays are replaced or made longer, never changed in place, before they are."""
        return replace(self, peers=dict(self.peers))


class PathCounts:
    """Counts of all pairs of a snapshot.

    Args:
        routes: a snapshot with `PackedPaths`; of another kind nothing is counted.
        before: those of an earlier snapshot, where there are any.

    Attributes:
        version: of the snapshot.
        rerouted: pairs whose paths are others than before.
        recounted: pairs of which something else may be known than before.
        counted: what those of the next snapshot go on from.
    """

    def __init__(self, routes: Routes, before: "PathCounts | None" = None) -> None:
        self._routes, self.version = routes, routes.version
        self.rerouted: Collection[Pair] = ()
        self.recounted: Collection[Pair] = ()
        self._number: Mapping[Pair, int] = {}
        self.counted = Counted()
        if not isinstance(routes.paths, PackedPaths):
            return
        links = routes.links
        former = Counted() if before is None else before.counted
        goes_on = former.links == links[: len(former.links)] and len(former.crossed) <= len(
            routes.paths.crossed
        )
        self.counted = former.copy() if goes_on else self.counted
        self.counted.links, self.counted.ends = links, self.counted.ends.with_more(links)
        self._number, self.counted.pairs = routes.paths.rows.number, routes.paths.rows.pairs
        rerouted, recounted = self._count(routes.paths)
        if not goes_on:
            rerouted = recounted = np.arange(max(len(former.pairs), len(self.counted.pairs)))
        self.rerouted, self.recounted = (
            {*_named(self.counted.pairs, each), *_named(former.pairs, each)} for each in (rerouted, recounted)
        )

    def of(self, src: str, dst_addr: str) -> Known:
        """What is known of a pair."""
        number = self._number.get((src, dst_addr))
        if number is None:
            return Known()
        peer = int(self.counted.peer_of[number])
        of_peers = self.counted.of_peers[peer, :PEER_SWITCHES].tolist() if peer >= 0 else [0, 0, 0, 0]
        return Known(*self.counted.of_pairs[number].tolist(), *of_peers)

    @property
    def most_paths(self) -> int:
        """The most different paths that are known between two leaves; 0 where none is."""
        return int(self.counted.of_peers[:, PEER_PATHS].max(initial=0))

    def lacks(self, pair: Pair, enough: int | None = None, *, is_far: bool = False) -> bool:
        """Whether a pair has too few paths: fewer links than all others between its leaves, or some may be unknown.

        Args:
            pair: of which something is known; of another one that is not said.
            enough: so many different paths will do, and fewer where there are no more; None where all links are needed.
            is_far: whether links that are unknown do not matter where these are enough.
        """
        number = self._number.get(pair)
        peer = NOWHERE if number is None else int(self.counted.peer_of[number])
        if peer < 0:
            return False
        ports, peer_paths, peer_links, width, _ = self.counted.of_peers[peer].tolist()
        _, paths, links = self.counted.of_pairs[number].tolist()
        if is_far and enough is not None:
            return bool(paths < enough and (paths < peer_paths or not _is_sure(ports, peer_paths)))
        if not _is_sure(ports, width):
            return True
        return bool(links < peer_links if enough is None else paths < min(enough, peer_paths))

    def switches(self, src: str, dst: str) -> int | None:
        """How many switches there are between two NICs, by what is known of others at the same two leaves."""
        number, routes = self.counted.ends.number, self._routes
        first, last = (
            number.get(routes.first_switch.get(src, "")),
            number.get(routes.last_switch.get(dst, "")),
        )
        peer = None if first is None or last is None else self.counted.peers.get(_between(first, last))
        return None if peer is None else int(self.counted.of_peers[peer, PEER_SWITCHES]) or None

    def covered_leaves(self, hosts: Collection[str] | None = None) -> set[str]:
        """Leaves from which all links to each leaf that any path leads to are known, as far as can be told.

        Args:
            hosts: only what lies between leaves of these is looked at, and told; None for all.
        """
        is_known = self.counted.peer_of >= 0
        if hosts is not None:
            is_known[is_known] = self._are_between(hosts)[self.counted.peer_of[is_known]]
        leaf = self.counted.ends.into[self.counted.first_link[is_known]]
        unsure = leaf[~self._sure_peers()[self.counted.peer_of[is_known]]]
        names = list(self.counted.ends.number)
        return {names[at] for at in set(leaf.tolist()) - set(unsure.tolist())}

    def _sure_peers(self) -> NDArray[np.bool_]:
        """Between which leaves all links are known, as far as can be told, shape (peers,)."""
        ports, width = self.counted.of_peers[:, [PEER_PORTS, PEER_WIDTH]].T
        above = int(width.max(initial=0)) + 1
        told, which = np.unique(ports * above + width, return_inverse=True)
        return np.array([_is_sure(*divmod(each, above)) for each in told.tolist()], bool)[which]

    def _are_between(self, hosts: Collection[str]) -> NDArray[np.bool_]:
        """Which peers are two leaves of some hosts, shape (peers,)."""
        number = self.counted.ends.number
        is_theirs = np.zeros(len(number), bool)
        for a, b in self.counted.links:
            if is_nic(a) and host_of(a) in hosts:
                is_theirs[number[b]] = True
        first, last = np.divmod(np.fromiter(self.counted.peers, np.int64), _MOST_NODES)
        return np.asarray(is_theirs[first] & is_theirs[last], bool)

    def _count(self, paths: PackedPaths) -> tuple[Rows, Rows]:
        """Count what is not as it was; the numbers of pairs with other paths, and with other counts."""
        pair_before, peer_before = self.counted.pair, self.counted.peer
        changed = _changed(self.counted.crossed, pair_before, paths)
        self.counted.crossed, self.counted.pair = paths.crossed, paths.rows.of
        self.counted.peer = self._peers_of_rows(changed)
        pairs, peers = (
            _either(pair_before, self.counted.pair, changed),
            _either(peer_before, self.counted.peer, changed),
        )
        self._count_pairs(pairs)
        self._count_peers(peers)
        is_peer = np.zeros(len(self.counted.peers) + 1, bool)
        is_peer[peers] = True
        return pairs, np.concatenate([pairs, np.flatnonzero(is_peer[self.counted.peer_of])])

    def _peers_of_rows(self, changed: Rows) -> I32:
        """The number of the leaves between which each row leads, NOWHERE where not all is known, shape (rows,)."""
        peer = _longer(self.counted.peer, len(self.counted.pair))
        peer[changed] = NOWHERE
        rows = changed[self.counted.pair[changed] >= 0]
        crossed = self.counted.crossed[rows]
        known = (crossed[:, :1] >= 0).all(axis=1) & ~(
            (crossed >= 0) & self.counted.ends.is_open[crossed]
        ).any(axis=1)
        rows, crossed = rows[known], crossed[known]
        if len(rows):
            last = crossed[np.arange(len(crossed)), (crossed >= 0).sum(axis=1) - 1]
            between, which = np.unique(
                _between(self.counted.ends.into[crossed[:, 0]], self.counted.ends.out_of[last]),
                return_inverse=True,
            )
            numbers = [
                self.counted.peers.setdefault(each, len(self.counted.peers)) for each in between.tolist()
            ]
            peer[rows] = np.array(numbers, np.int32)[which]
        return peer

    def _count_pairs(self, pairs: Rows) -> None:
        size = max(len(self.counted.of_pairs), int(self.counted.pair.max(initial=-1)) + 1)
        self.counted.of_pairs, self.counted.peer_of = (
            _longer(self.counted.of_pairs, size),
            _longer(self.counted.peer_of, size),
        )
        self.counted.first_link = _longer(self.counted.first_link, size)
        rows, group = _rows_of(pairs, np.where(self.counted.peer >= 0, self.counted.pair, NOWHERE), size)
        crossed = self.counted.crossed[rows]
        self.counted.of_pairs[pairs, :LINKS] = _tally(group, _fingerprint(crossed), len(pairs))
        self.counted.of_pairs[pairs, LINKS] = _links(group, _without_ends(crossed), len(pairs)).sum(axis=1)
        self.counted.peer_of[pairs] = self.counted.first_link[pairs] = NOWHERE
        self.counted.peer_of[pairs[group]], self.counted.first_link[pairs[group]] = (
            self.counted.peer[rows],
            crossed[:, 0],
        )

    def _count_peers(self, peers: Rows) -> None:
        self.counted.of_peers = _longer(self.counted.of_peers, len(self.counted.peers))
        rows, group = _rows_of(peers, self.counted.peer, len(self.counted.peers))
        crossed = self.counted.crossed[rows]
        between = _without_ends(crossed)
        links = _links(group, between, len(peers))
        self.counted.of_peers[peers, :PEER_LINKS] = _tally(group, _fingerprint(between), len(peers))
        self.counted.of_peers[peers, PEER_LINKS] = links.sum(axis=1)
        self.counted.of_peers[peers, PEER_WIDTH] = links.max(axis=1, initial=1)
        self.counted.of_peers[peers, PEER_SWITCHES] = _switches(group, crossed, len(peers))


def _named(pairs: Sequence[Pair | None], numbers: Rows) -> Iterator[Pair]:
    """The pairs that have some numbers."""
    here = numbers[numbers < len(pairs)].tolist()
    return (pair for number in here if (pair := pairs[number]) is not None)


_Number = TypeVar("_Number", int, I64)


def _between(first: _Number, last: _Number) -> _Number:
    """One number for two leaves."""
    return first * _MOST_NODES + last


@lru_cache(65_536)
def _is_sure(ports: int, width: int) -> bool:
    return confidence(ports, width) >= CONFIDENCE


def _changed(crossed: I32, pair: I32, paths: PackedPaths) -> Rows:
    """The rows that are of another pair or path than before."""
    rows, places = np.minimum(crossed.shape, paths.crossed.shape)
    differs = np.ones(len(paths.crossed), bool)
    differs[:rows] = pair[:rows] != paths.rows.of[:rows]
    for place in range(places):  # `any` over so few places takes four times as long
        differs[:rows] |= crossed[:rows, place] != paths.crossed[:rows, place]
    for each in (crossed, paths.crossed):
        differs[:rows] |= (each[:rows, places:] >= 0).any(axis=1)
    return np.flatnonzero(differs)


def _either(before: I32, now: I32, rows: Rows) -> Rows:
    """The different numbers that some rows have, or had."""
    both = np.concatenate([before[rows[rows < len(before)]], now[rows]])
    return np.flatnonzero(np.bincount(both[both >= 0]))


def _rows_of(groups: Rows, of: NDArray[np.integer], count: int) -> tuple[Rows, I64]:
    """The rows of some groups, and the place in `groups` of each one's.

    Args:
        groups: numbers of groups.
        of: the group of each row, negative for none.
        count: how many groups there are.
    """
    place = np.full(count + 1, NOWHERE, np.int64)
    place[groups] = np.arange(len(groups))
    rows = np.flatnonzero(place[of] >= 0)
    return rows, place[of[rows]]


def _longer(column: NDArray[_Scalar], count: int) -> NDArray[_Scalar]:
    """A copy with so many rows, the new ones being zero."""
    longer = np.zeros((count, *column.shape[1:]), column.dtype)
    longer[: len(column)] = column[:count]
    return longer


def _switches(group: I64, crossed: I32, groups: int) -> I64:
    """The switches on the way of each group's paths, 0 where not all have as many, shape (groups,)."""
    count = (crossed >= 0).sum(axis=1) - 1
    least, most = np.full(groups, np.iinfo(np.int64).max), np.zeros(groups, np.int64)
    np.minimum.at(least, group, count)
    np.maximum.at(most, group, count)
    return np.where(least == most, most, 0)


def _without_ends(crossed: I32) -> I32:
    """The same without the NICs' own links, -1 in their place, shape (n, most links)."""
    used = crossed >= 0
    inner = used & (np.arange(crossed.shape[1]) < used.sum(axis=1)[:, None] - 1)
    inner[:, 0] = False
    return np.where(inner, crossed, np.int32(-1))


def _fingerprint(crossed: I32) -> I64:
    """A number that is the same for the same links only, but for a chance of 2^-64, shape (n,)."""
    weights = np.random.default_rng(0).integers(-(2**62), 2**62, crossed.shape[1])
    mixed = (crossed.astype(np.int64) + 1) * np.int64(0x9E3779B97F4A7C1)
    mixed ^= mixed >> 29
    found: I64 = (np.where(crossed >= 0, mixed, 0) * weights).sum(axis=1)
    return found


def _links(group: I64, between: I32, groups: int) -> I64:
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
