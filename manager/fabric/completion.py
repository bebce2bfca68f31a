"""From believed hops to links: what is silent is filled in where others leave one answer only, or named apart.

Names of what is not known begin with `?`: `?NIC` is the switch that a NIC hangs from, `?A>B` the switch between two
others that stays silent where others like it answer, `?NIC>ADDRESS:PORT` whatever one path crosses where nobody
answers. All paths of a NIC cross its own link, so a path of which nothing is known still has that at both ends.
"""

import itertools
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from manager.fabric.choice import CONFIDENCE, confidence
from manager.fabric.routes import MARK, DirectedLink, PathName
from manager.fabric.traces import MOST_HOPS, UNKNOWN, Claims
from manager.fabric.votes import Judgement, Steps

MOST_LINKS = MOST_HOPS + 2

Node = int | str
"""The number of a name, or the name of something unknown."""
Hop = Node | None
"""None: one hop that is silent; MARK: nobody knows how many."""
Between = tuple[Node, Node, int]
Segments = dict[Between, Counter[tuple[int, ...]]]


def is_plain(claims: Claims) -> NDArray[np.bool_]:
    """Whether every hop of each row answered, and the destination too, shape (n,)."""
    inside = np.arange(MOST_HOPS) < claims.length[:, None]
    plain: NDArray[np.bool_] = claims.reached & ~(inside & (claims.hops == UNKNOWN)).any(axis=1)
    return plain


class LinkNumbers:
    """Numbers of links; a link keeps its own.

    Attributes:
        of: the link of each number.
        cable: the same number for both directions of a link, by each one's.
    """

    def __init__(self) -> None:
        self.of: list[DirectedLink] = []
        self.cable: list[int] = []
        self._number: dict[DirectedLink, int] = {}

    def number(self, link: DirectedLink) -> int:
        """The number of a link, a new one if need be."""
        number = self._number.setdefault(link, len(self.of))
        if number == len(self.of):
            self.of.append(link)
            self.cable.append(self._number.get(DirectedLink(link.b, link.a), number))
        return number

    def forget_from(self, count: int) -> None:
        """Take back all numbers but so many."""
        for link in self.of[count:]:
            del self._number[link]
        del self.of[count:], self.cable[count:]


@dataclass(frozen=True)
class _Row:
    """A path of which not all is known."""

    name: PathName
    nodes: list[Hop]


def complete(
    claims: Claims,
    judged: Judgement,
    names: Sequence[str],
    path_name: Callable[[int], PathName],
    numbers: LinkNumbers,
) -> NDArray[np.int32]:
    """The links of each path.

    Args:
        claims: what hosts say.
        judged: which of it is believed.
        names: of nodes, by number.
        path_name: the name of a path by `Claims.row`.
        numbers: gives links their numbers.

    Returns:
        Numbers of links in the order of travel, UNKNOWN behind the last one, shape (n, MOST_LINKS).
    """
    crossed = np.full((len(claims), MOST_LINKS), UNKNOWN, np.int32)
    plain = judged.trusted & is_plain(claims)
    _cross_plain(crossed, plain, judged.steps, names, numbers)
    others = np.flatnonzero(~plain)
    if not len(others):
        return crossed
    ends = _Ends(judged, names)
    rows = [_Row(path_name(int(claims.row[i])), ends.fill(claims, int(i))) for i in others.tolist()]
    segments = _segments(judged, len(names), {gap for row in rows for gap in _gaps(row.nodes)})
    for i, row in zip(others.tolist(), rows, strict=True):
        links = [numbers.number(link) for link in _links(row, segments, names)]
        crossed[i, : len(links)] = links
    return crossed


def _cross_plain(
    crossed: NDArray[np.int32],
    plain: NDArray[np.bool_],
    steps: Steps,
    names: Sequence[str],
    numbers: LinkNumbers,
) -> None:
    """Paths of which everything is known."""
    use = plain[steps.row]
    link = steps.link[use]
    crossed_links = np.zeros(len(steps.links), bool)
    crossed_links[link] = True
    number = np.full(len(steps.links), UNKNOWN, np.int32)
    for i in np.flatnonzero(crossed_links).tolist():
        a, b = divmod(int(steps.links[i]), len(names))
        number[i] = numbers.number(DirectedLink(names[a], names[b]))
    crossed[steps.row[use], steps.place[use]] = number[link]


class _Ends:
    """Fills in where paths begin and end."""

    def __init__(self, judged: Judgement, names: Sequence[str]) -> None:
        self._judged, self._names = judged, names
        steps = judged.steps
        believed = np.zeros(len(steps.links), bool)
        believed[steps.link[judged.trusted[steps.row]]] = True
        self._links = set(steps.links[believed].tolist())
        self._numbers = defaultdict[str, list[int]](list)
        """Of each name: a NIC's are those of both versions of IP."""
        for number, name in enumerate(names):
            self._numbers[name].append(number)

    def fill(self, claims: Claims, i: int) -> list[Hop]:
        """All nodes of a row, its ends included, with what is not known between them."""
        src, dst = int(claims.src[i]), int(claims.dst[i])
        first, last = self._switch(src, out=True), self._switch(dst, out=False)
        told = claims.hops[i, : claims.length[i]].tolist() if self._judged.trusted[i] else []
        hops: list[Hop] = [None if hop == UNKNOWN else hop for hop in told]
        if not any(hop is not None for hop in hops):
            middle = hops[1:-1] if claims.reached[i] and len(hops) > 1 else [MARK]
            hops = [first] if first == last else [first, *middle, last]
            return [src, *hops, dst]
        hops[0] = first if hops[0] is None else hops[0]
        if claims.reached[i]:
            if (
                hops[-1] is None
            ):  # the switch before the destination, or the destination itself, being slow to answer
                hops[-1:] = [] if hops[-2] == last else [last]
        elif hops[-1] != last:
            hops += [last] if self._is_link(hops[-1], last) else [MARK, last]
        return [src, *hops, dst]

    def _switch(self, nic: int, *, out: bool) -> Node:
        """The switch that a NIC hangs from, as it answers to packets from the NIC, or to those that go there.

        Where none answers by the path's version of IP, its address of the other one stands for it.
        """
        judged, name = self._judged, self._names[nic]
        told, other = (judged.first, judged.seat) if out else (judged.seat, judged.first)
        for number in (nic, *self._numbers[name]):
            switch = told[number]
            if switch == UNKNOWN and judged.is_symmetric:
                switch = other[number]
            if switch != UNKNOWN:
                return int(switch)
        return f"{MARK}{name}"

    def _is_link(self, a: Hop, b: Hop) -> bool:
        return isinstance(a, int) and isinstance(b, int) and a * len(self._names) + b in self._links


def _gaps(nodes: Sequence[Hop]) -> Iterator[Between]:
    """Where a path is silent for a known number of hops."""
    before: Node | None = None
    silent = 0
    for node in nodes:
        if node is None:
            silent += 1
        elif node == MARK:
            before, silent = None, 0
        else:
            if silent and before is not None:
                yield before, node, silent
            before, silent = node, 0


def _segments(judged: Judgement, names: int, wanted: Iterable[Between]) -> Segments:
    """What believed paths that answer cross between the ends of each gap, and over how many ports."""
    by_length = defaultdict[int, set[int]](set)
    for a, b, silent in wanted:
        if isinstance(a, int) and isinstance(b, int):
            by_length[silent].add(a * names + b)
    found: Segments = defaultdict(Counter)
    chain = judged.chain[judged.trusted]
    for silent, keys in by_length.items():
        asked = np.fromiter(keys, np.int64, len(keys))
        for start in range(chain.shape[1] - silent - 1):
            window = chain[:, start : start + silent + 2]
            ends = window[:, 0].astype(np.int64) * names + window[:, -1]
            use = np.isin(ends, asked) & (window != UNKNOWN).all(axis=1)
            for a, *between, b in window[use].tolist():
                found[a, b, silent][tuple(between)] += 1
    return found


def _links(row: _Row, segments: Segments, names: Sequence[str]) -> Iterator[DirectedLink]:
    """The links of a path, with names for what is not known of it."""
    nodes = row.nodes
    at = 0
    while at < len(nodes) - 1:
        then = at + 1
        while nodes[then] is None or nodes[then] == MARK:
            then += 1
        a, b = nodes[at], nodes[then]
        assert a is not None
        assert b is not None
        shown = [_shown(node, names) for node in (a, b)]
        between = _between(a, b, nodes[at + 1 : then], segments, names)
        if between is None:
            yield DirectedLink(shown[0], f"{MARK}{row.name.src}>{row.name.dst_addr}:{row.name.sport}")
        else:
            way = [shown[0], *between, shown[1]]
            yield from (DirectedLink(*pair) for pair in itertools.pairwise(way))
        at = then


def _between(
    a: Node, b: Node, gap: Sequence[Hop], segments: Segments, names: Sequence[str]
) -> list[str] | None:
    """What lies between two nodes; None where nobody knows."""
    if not gap:
        return []
    found = segments.get((a, b, len(gap)))
    if MARK in gap or not found:
        return None
    if len(found) == 1 and confidence(found.total(), 1) >= CONFIDENCE:
        return [names[node] for node in next(iter(found))]
    name = f"{MARK}{_shown(a, names)}>{_shown(b, names)}"
    return [name] if len(gap) == 1 else [f"{name}.{i}" for i in range(1, len(gap) + 1)]


def _shown(node: Node, names: Sequence[str]) -> str:
    return node if isinstance(node, str) else names[node]
