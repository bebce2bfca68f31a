"""Voting on claims about paths: one liar moves nothing. Pure, over arrays.

A link is corroborated once two hosts have crossed it, in either direction. A link that only one host tells of is
contradicted where two others at least have gone on from the same place towards the same leaf, or come into the same
leaf or NIC, so often that they would have met it, with the confidence of `coverage`. A path with a contradicted link is not believed
as a whole.
"""

from collections import Counter, defaultdict
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from manager.fabric.choice import CONFIDENCE, confidence
from manager.fabric.traces import MOST_HOPS, UNKNOWN, Claims

LEAST_WITNESSES = 2

I32 = NDArray[np.int32]
I64 = NDArray[np.int64]
Bool = NDArray[np.bool_]


@dataclass(frozen=True)
class Steps:
    """Every claim that one node follows another, in the order of rows.

    Attributes:
        row, place: where the claim is made, shape (steps,).
        a, b: the two nodes, likewise.
        host, heard: who makes it, and whether he is listened to, likewise.
        link: the place of the link in `links`, likewise.
        links: a * names + b of each different link, sorted.
    """

    row: NDArray[np.intp]
    place: NDArray[np.intp]
    a: I32
    b: I32
    host: I32
    heard: Bool
    link: NDArray[np.intp]
    links: I64


@dataclass(frozen=True)
class Judgement:
    """What the vote came to.

    Attributes:
        chain: NIC, hops and what is at the end of each row, UNKNOWN where silent or behind, (n, MOST_HOPS + 2).
        trusted: rows that nobody contradicts, of hosts that are not set aside, shape (n,).
        contradicted: rows that others contradict, whoever tells of them, shape (n,).
        seat: the switch that most hosts meet before a NIC, by the NIC's number, UNKNOWN for none, shape (names,).
        first: the switch that each NIC's own packets meet first, likewise.
        steps: the claims that were judged, one by one.
        is_symmetric: whether switches answer by one address whichever way they are entered.
    """

    chain: I32
    trusted: Bool
    contradicted: Bool
    seat: I32
    first: I32
    steps: Steps
    is_symmetric: bool


def judge(claims: Claims, names: int, aside: frozenset[int] = frozenset()) -> Judgement:
    """Vote on claims.

    Args:
        claims: what hosts say.
        names: how many names are numbered.
        aside: numbers of hosts that are not to be believed in anything.
    """
    chain = chains(claims)
    heard = np.ones(len(claims), bool)
    if aside:
        heard = ~np.isin(claims.host, np.fromiter(aside, np.int32, len(aside)))
    first = most_told(claims.src, chain[:, 1], claims.host, heard, names)
    seat = _seats(claims, chain, heard, names)
    is_symmetric = are_symmetric(first, seat)
    steps = _steps(claims, chain, heard, names)
    lone = _lone(steps, names)
    contradicted = _contradicted(claims, steps, lone, seat, names, is_symmetric=is_symmetric)
    trusted = heard & ~contradicted
    first = most_told(claims.src, chain[:, 1], claims.host, trusted, names)
    return Judgement(chain, trusted, contradicted, seat, first, steps, is_symmetric)


def is_denied(claims: Claims, lone: I64, first: I32, seat: I32) -> bool:
    """Whether others would have met some of the links that only one host tells of.

    Args:
        claims: all that cross a node at the end of one of these links; everybody is heard.
        lone: the links, as a * names + b.
        first: see `Judgement`, shape (names,).
        seat: likewise.
    """
    names = len(seat)
    steps = _steps(claims, chains(claims), np.ones(len(claims), bool), names)
    where = np.flatnonzero(np.isin(steps.links, lone)[steps.link])
    is_symmetric = are_symmetric(first, seat)
    return bool(_contradicted(claims, steps, where, seat, names, is_symmetric=is_symmetric).any())


def are_symmetric(first: I32, seat: I32) -> bool:
    """See `Judgement`."""
    both = (first != UNKNOWN) & (seat != UNKNOWN)
    return bool(both.any()) and 2 * int((first == seat)[both].sum()) > int(both.sum())


def chains(claims: Claims) -> I32:
    """Every node of each row in the order of travel; see `Judgement.chain`."""
    chain = np.full((len(claims), MOST_HOPS + 2), UNKNOWN, np.int32)
    chain[:, 0] = claims.src
    chain[:, 1:-1] = claims.hops
    ends = np.flatnonzero(claims.reached)
    chain[ends, claims.length[ends] + 1] = claims.dst[ends]
    return chain


def _steps(claims: Claims, chain: I32, heard: Bool, names: int) -> Steps:
    row, place = np.nonzero((chain[:, :-1] != UNKNOWN) & (chain[:, 1:] != UNKNOWN))
    a, b = chain[row, place], chain[row, place + 1]
    key = _packed(names, a, b)
    links, _ = _distinct(key)
    return Steps(row, place, a, b, claims.host[row], heard[row], np.searchsorted(links, key), links)


def _seats(claims: Claims, chain: I32, heard: Bool, names: int) -> I32:
    """By the hosts that reach a NIC; where nobody does, by the last hop that answers."""
    last = chain[np.arange(len(claims)), np.maximum(claims.length, 0)]
    has_hops = claims.length > 0
    reached = most_told(claims.dst, last, claims.host, heard & claims.reached & has_hops, names)
    silent = most_told(claims.dst, last, claims.host, heard & ~claims.reached & has_hops, names)
    return np.where(reached != UNKNOWN, reached, silent)


def most_told(node: I32, told: I32, host: I32, use: Bool, names: int) -> I32:
    """For each node what most hosts tell of it, one voice a host and answer; ties go to the lower number."""
    use = use & (told != UNKNOWN)
    voices, _ = _distinct(_packed(names, node[use], told[use], host[use]))
    answers, count = _distinct(voices // names)
    order = np.lexsort((-answers, count))  # of several for one node, the last one stays
    best = np.full(names, UNKNOWN, np.int32)
    best[answers[order] // names] = answers[order] % names
    return best


def _contradicted(
    claims: Claims, steps: Steps, lone: NDArray[np.intp], seat: I32, names: int, *, is_symmetric: bool
) -> Bool:
    """Rows with a link that only their host tells of (`lone`), and that others would have met."""
    denied = np.zeros(len(claims), bool)
    if not is_symmetric:
        lone = lone[steps.place[lone] > 0]  # nobody else knows by what address a NIC meets its first switch
    if not len(lone):
        return denied
    dst = claims.dst[steps.row]
    goal = np.where(seat[dst] != UNKNOWN, seat[dst], dst)
    towards = _packed(names, steps.a, goal)
    onward = _Witnesses(towards, steps.b, steps, names, towards[lone])
    ends = np.where((steps.b == dst) | (steps.b == goal), steps.b, UNKNOWN)
    into = _Witnesses(ends, steps.a, steps, names, np.concatenate([steps.a[lone], steps.b[lone]]))
    for i in lone.tolist():
        a, b, host = int(steps.a[i]), int(steps.b[i]), int(steps.host[i])
        if steps.place[i] == 0:
            is_denied = into.deny(a, b, host)
        else:
            is_denied = into.deny(b, a, host) or onward.deny(int(towards[i]), b, host)
        denied[steps.row[i]] |= is_denied
    return denied


def _lone(steps: Steps, names: int) -> NDArray[np.intp]:
    """Steps over links that no two hosts that are heard tell of, in either direction."""
    first = np.full(len(steps.links), np.iinfo(np.int32).max, np.int32)
    last = np.full(len(steps.links), -1, np.int32)
    np.minimum.at(first, steps.link[steps.heard], steps.host[steps.heard])
    np.maximum.at(last, steps.link[steps.heard], steps.host[steps.heard])
    a, b = np.divmod(steps.links, names)
    back = np.searchsorted(steps.links, b * names + a)
    has_back = np.zeros(len(steps.links), bool)
    inside = back < len(steps.links)
    has_back[inside] = steps.links[back[inside]] == (b * names + a)[inside]
    either = np.flatnonzero(has_back)
    first[either] = np.minimum(first[either], first[back[either]])
    last[either] = np.maximum(last[either], last[back[either]])
    return np.flatnonzero((first >= last)[steps.link])


class _Witnesses:
    """What hosts have met at some places, one place a key.

    Args:
        key: the place of each step, UNKNOWN for none.
        met: what was met there.
        steps: the steps.
        names: how many names are numbered.
        asked: the places that will be asked for.
    """

    def __init__(
        self,
        key: NDArray[np.signedinteger],
        met: I32,
        steps: Steps,
        names: int,
        asked: NDArray[np.signedinteger],
    ) -> None:
        self._met: defaultdict[int, defaultdict[int, Counter[int]]] = defaultdict(
            lambda: defaultdict(Counter)
        )
        use = steps.heard & (key != UNKNOWN) & np.isin(key, asked)
        self._denied: dict[tuple[int, int, int], bool] = {}
        places, number = np.unique(key[use], return_inverse=True)
        found, count = _distinct(_packed(names, number, steps.host[use], met[use]))
        for one, times in zip(found.tolist(), count.tolist(), strict=True):
            visit, node = divmod(one, names)
            place, host = divmod(visit, names)
            self._met[int(places[place])][host][node] += times

    def deny(self, place: int, node: int, host: int) -> bool:
        """Whether other hosts have passed a place so often that they would have met a node there."""
        asked = place, node, host
        if asked not in self._denied:
            self._denied[asked] = self._deny(*asked)
        return self._denied[asked]

    def _deny(self, place: int, node: int, host: int) -> bool:
        others = [met for who, met in self._met.get(place, {}).items() if who != host]
        if len(others) < LEAST_WITNESSES:
            return False
        met: Counter[int] = sum(others, Counter())
        return node not in met and confidence(met.total(), len(met)) >= CONFIDENCE


def _distinct(values: I64) -> tuple[I64, NDArray[np.intp]]:
    """Sorted different values, and how often each is there; faster on many integers than `numpy.unique`."""
    ordered = np.sort(values)
    starts = np.flatnonzero(np.concatenate([[len(ordered) > 0], ordered[1:] != ordered[:-1]]))
    return ordered[starts], np.diff(np.append(starts, len(ordered)))


def _packed(names: int, *columns: NDArray[np.signedinteger]) -> I64:
    """Several numbers below `names` as one, to compare and sort them together."""
    packed: I64 = columns[0].astype(np.int64)
    for column in columns[1:]:
        packed = packed * names + column
    return packed
