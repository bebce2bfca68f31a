"""The links of all paths from one snapshot to the next, where little has changed and nothing is in doubt. Pure, over arrays.

Where each hop of each path answers, and nobody contradicts a link that only one host tells of, votes and completion come
to what was told, path by path. As long as that stays so only the paths that are others need be looked at, whether the links
that they cross, or did, are still told of by two hosts, and what others say near the links that are not.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from manager.fabric.completion import LinkNumbers, is_plain
from manager.fabric.routes import DirectedLink, is_nic
from manager.fabric.traces import IPV4, IPV6, UNKNOWN, Claims, Names, Rows, TraceStore, version_of
from manager.fabric.votes import chains, is_denied, most_told

CORROBORATED = 2
"""So many hosts have to tell of a link."""

SAMPLE = 16
"""Of so many rows one is looked at first, which mostly tells that two hosts cross a link."""

I32 = NDArray[np.int32]
I64 = NDArray[np.int64]
Bool = NDArray[np.bool_]


@dataclass(frozen=True)
class Undoubted:
    """Paths that are all as their hosts told them.

    Attributes:
        crossed: the links of each, by row, UNKNOWN behind the last one, shape (rows, most links).
        tellers: how many hosts cross each link in either direction, 2 for more, by `LinkNumbers.cable`; shape (links,).
    """

    crossed: I32
    tellers: NDArray[np.int8]

    @property
    def used(self) -> int:
        """At least so many links are crossed: opposite ones count as one."""
        return int(np.count_nonzero(self.tellers))


def undoubted(crossed: I32, store: TraceStore, numbers: LinkNumbers) -> Undoubted:
    """Paths of which no claim is contradicted, and every hop answered.

    Args:
        crossed: their links, by row; see `Undoubted`.
        store: what hosts said.
        numbers: of links.
    """
    cable = np.array(numbers.cable, np.int32)
    return Undoubted(crossed, _tellers(np.ones(len(cable), bool), crossed, store, cable))


def further(before: Undoubted, touched: Rows, store: TraceStore, numbers: LinkNumbers) -> Undoubted | None:
    """The links of each path now; None where all have to be voted on.

    Args:
        before: the paths as they were.
        touched: the rows that were added, changed or dropped since.
        store: what hosts said.
        numbers: of links; new ones are added unless the answer is None.
    """
    claims = store.claims(store.used(touched))
    if not is_plain(claims).all():
        return None
    known = len(numbers.of)
    found, were, new = _crossed(before.crossed, touched, claims, store, numbers)
    cable = np.array(numbers.cable, np.int32)
    tellers = np.zeros(len(cable), np.int8)
    tellers[: len(before.tellers)] = before.tellers
    asked = np.zeros(len(cable), bool)
    asked[cable[new]] = True
    asked &= tellers < CORROBORATED
    asked[cable[were]] = True
    tellers = np.where(asked, _tellers(asked, found, store, cable), tellers)
    if _is_contradicted(tellers == 1, found, store, numbers):
        numbers.forget_from(known)
        return None
    return Undoubted(found, tellers)


def _crossed(
    before: I32, touched: Rows, claims: Claims, store: TraceStore, numbers: LinkNumbers
) -> tuple[I32, I32, I32]:
    """The links of each path, shape (rows, most links); those that touched rows crossed, and cross, with repetitions."""
    new = _numbered(claims, store.names.of, numbers)
    places = before.shape[1]
    found = np.full((store.capacity, max(places, new.shape[1])), UNKNOWN, np.int32)
    found[: len(before), :places] = before
    were = found[touched]
    found[touched] = UNKNOWN
    found[claims.row, : new.shape[1]] = new
    return found, were[were >= 0], new[new >= 0]


def _numbered(claims: Claims, names: list[str], numbers: LinkNumbers) -> I32:
    """The links of plain rows, shape (n, most links)."""
    chain = chains(claims)
    a, b = chain[:, :-1].astype(np.int64), chain[:, 1:]
    is_link = (a != UNKNOWN) & (b != UNKNOWN)
    links, which = np.unique((a * len(names) + b)[is_link], return_inverse=True)
    ends = (divmod(link, len(names)) for link in links.tolist())
    number = [numbers.number(DirectedLink(names[one], names[other])) for one, other in ends]
    found = np.full(is_link.shape, UNKNOWN, np.int32)
    found[is_link] = np.array(number, np.int32)[which]
    return found[:, : int(is_link.sum(axis=1).max(initial=1))]


def _tellers(asked: Bool, crossed: I32, store: TraceStore, cable: I32) -> NDArray[np.int8]:
    """How many hosts cross links that are asked for, 2 for more; see `Undoubted`."""
    found = np.zeros(len(cable), np.int8)
    for apart in (SAMPLE, 1):
        is_asked = np.append((asked & (found < CORROBORATED))[cable], False)
        row, place = np.nonzero(is_asked[crossed[::apart]])
        row *= apart
        told, host = cable[crossed[row, place]], store.host_of(row)
        first = np.full(len(cable), np.iinfo(np.int32).max, np.int32)
        last = np.full(len(cable), -1, np.int32)
        np.minimum.at(first, told, host)
        np.maximum.at(last, told, host)
        found[told] = 1 + (first < last)[told]
    return found


def _is_contradicted(lone: Bool, crossed: I32, store: TraceStore, numbers: LinkNumbers) -> bool:
    """Whether others would have met a link that one host tells of; `lone` by `LinkNumbers.cable`."""
    if not lone.any():
        return False
    ends = _ends(numbers, store.names)
    is_lone = lone[numbers.cable] & (ends != UNKNOWN).all(axis=1)
    is_near = np.append(np.isin(ends, ends[is_lone]).any(axis=1), False)
    claims = store.claims(np.flatnonzero(is_near[crossed].any(axis=1)))
    names = len(store.names.of)
    count = (crossed >= 0).sum(axis=1)
    last = crossed[np.arange(len(crossed)), count - 1]
    first = _beside(crossed[:, 0], ends, store)
    seat = _beside(np.where(count > 1, last, UNKNOWN), ends[:, ::-1], store)
    return is_denied(claims, ends[is_lone] @ np.array([names, 1]), first, seat)


def _ends(numbers: LinkNumbers, names: Names) -> I64:
    """The numbers of the nodes at the ends of links, UNKNOWN for names that have none, shape (links, 2)."""
    return np.array([[_number(node, link, names) for node in link] for link in numbers.of], np.int64)


def _number(node: str, link: DirectedLink, names: Names) -> int:
    """The number of a node; of a NIC that of the version of IP by which the switch at the link's other end answers."""
    if not is_nic(node):
        return names.known(node)
    switch = next((other for other in link if not is_nic(other)), None)
    versions = (IPV4, IPV6) if switch is None else (version_of(switch),)
    return max(names.known(node, version) for version in versions)


def _beside(link: NDArray[np.signedinteger], ends: I64, store: TraceStore) -> I32:
    """The node that most hosts tell to be next to each NIC, UNKNOWN for none, shape (names,).

    Args:
        link: of each row the one that tells of it, UNKNOWN for none, shape (rows,).
        ends: the NIC and the node next to it of each link, shape (links, 2).
        store: what hosts said.
    """
    names = len(store.names.of)
    used = np.flatnonzero(np.bincount(link[link >= 0], minlength=len(ends)))
    nic, other = ends[used].T
    found = np.full(names, UNKNOWN, np.int32)
    found[nic] = other
    is_many = np.bincount(nic, minlength=names) > 1
    if is_many.any():
        rows = np.flatnonzero((link >= 0) & is_many[ends[link, 0]])
        nic, other = ends[link[rows]].astype(np.int32).T
        told = most_told(nic, other, store.host_of(rows), np.ones(len(rows), bool), names)
        found[is_many] = told[is_many]
    return found
