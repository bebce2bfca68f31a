"""What the queue pairs over each link send, and whether that is all that crosses it. No I/O.

A queue pair whose path is not known counts in equal parts for every known path of its pair, as ECMP would spread many.
The load of a link that such a one may cross is not sure, nor is that of one whose path has just changed: its rate is
that of both paths together. Of a NIC that tells nothing, receivers tell what it sends; by which links, nobody knows.
"""

from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cwdp.shared.bus.messages import nic_id
from cwdp.shared.bus.records import EGRESS, INGRESS, shown_address
from manager.fabric.routes import Routes, is_nic
from manager.links.loads import INSIDE_TIER, tiers
from manager.queue_pairs.counters import JoinedTables, NicTable

SURE_SHARE = 0.05
"""Of a link's load may be in doubt, and it is sure still."""

_BITS = 8
_BYTES = 1
_INSIDE = 4 * INSIDE_TIER
"""Kinds (`tiers`) from here on are of links between switches that no NIC hangs from."""

_LinksOf = Mapping[str | None, Sequence[int]]

Floats = NDArray[np.float64]
Indices = NDArray[np.intp]
Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Crossings:
    """Which links the rows of a NIC's table cross.

    Attributes:
        identity: of the rows that this is true of.
        row, link, share: pairs of a row and a link that it crosses, and how much of it does.
        located: whether the row's path is known, shape (rows,).
        address: the place of the row's address in `addresses`, -1 for rows that do not send, shape (rows,).
        addresses: the destinations.
        source: the place of the row's address in `sources`, -1 for rows that do not receive, shape (rows,).
        sources: who sends to the NIC.
    """

    identity: bytes
    row: Indices
    link: Indices
    share: Floats
    located: Mask
    address: Indices
    addresses: Sequence[str]
    source: Indices
    sources: Sequence[str]


class LoadMeter:
    """Adds up queue pairs' rates over links; which row crosses what is worked out only when rows change.

    Args:
        routes: the known paths.
        owner: the NIC of each address.
        before: an earlier one; what it knows of NICs whose paths are the same is taken over.

    Attributes:
        routes: the known paths.
        known: what the rows of each NIC cross, as of the last measurement.
        kinds: of the links, as `tiers` tells them; shape (links,).
    """

    def __init__(self, routes: Routes, owner: Mapping[str, str], before: "LoadMeter | None" = None) -> None:
        self.routes, self._owner = routes, owner
        self.known: dict[tuple[str, str], Crossings] = (
            {} if before is None else _unchanged(before.known, before.routes, routes)
        )
        self._joined = _Joined(self.known, owner)
        self._addresses = _addresses(owner)
        self._may_cross: dict[tuple[str, str], Indices] = {}
        self._crosses: dict[tuple[str, str], Indices] = {}
        self.kinds = tiers(routes.links)
        self._between: dict[tuple[str | None, str | None], Indices] = {}

    def measure(
        self, tables: Iterable[tuple[tuple[str, str], NicTable]], now_s: float, lag_s: float = 0.0
    ) -> tuple[Floats, Mask]:
        """The load of each link in bit/s, and whether it is sure; shape (links,) each.

        Args:
            tables: the queue pairs of each NIC.
            now_s: the manager's monotonic clock.
            lag_s: how old the queues are that the loads are to be compared with.
        """
        all_tables = dict(tables)
        joined = self._join(all_tables)
        rows = JoinedTables(list(all_tables.values()))
        rate, sends = _BITS * rows.rates[:, _BYTES], rows.sends(now_s)
        loads = np.where(sends & joined.is_sent, np.nan_to_num(rate), 0.0)
        load = np.zeros(len(self.routes.links))
        np.add.at(load, joined.link, loads[joined.row] * joined.share)
        unknown = joined.is_sent & rows.is_unknown(now_s)
        doubt = self._doubt(joined, unknown, rate, self._links_of)
        doubt += self._doubt(
            joined, ~unknown & _unsure(rows, joined, sends, now_s, lag_s), rate, self._links_perhaps
        )
        silent = {nic_id(*nic) for nic, table in all_tables.items() if table.is_silent(now_s)}
        if silent:
            doubt += self._received(joined, np.where(sends, np.nan_to_num(rate), 0.0), silent)
        return load, doubt <= SURE_SHARE * load

    def _join(self, tables: Mapping[tuple[str, str], NicTable]) -> "_Joined":
        before = self.known
        self.known = {nic: self._crossings(nic, table) for nic, table in tables.items()}
        if list(before) != list(self.known) or any(
            known is not before[nic] for nic, known in self.known.items()
        ):
            self._joined = _Joined(self.known, self._owner)
        return self._joined

    def _doubt(
        self, joined: "_Joined", unsure: Mask, rate: Floats, links: Callable[[str, str], Indices]
    ) -> Floats:
        """The rates of some rows, on those links of each pair; shape (links,)."""
        doubt = np.zeros(len(self.routes.links))
        rates = np.bincount(joined.pair[unsure], np.nan_to_num(rate[unsure], nan=np.inf))
        for pair in np.unique(joined.pair[unsure]).tolist():
            doubt[links(*joined.pairs[pair])] += rates[pair]
        return doubt

    def _received(self, joined: "_Joined", rate: Floats, silent: Container[str]) -> Floats:
        """What NICs receive of silent ones, on every link that it may have crossed; shape (links,)."""
        doubt = np.zeros(len(self.routes.links))
        is_received = joined.source >= 0
        rates = np.bincount(joined.source[is_received], rate[is_received], len(joined.received))
        for i, (nic, receiver) in enumerate(joined.received):
            if nic not in silent or rates[i] <= 0:
                continue
            addresses = self._addresses.get(receiver, [receiver])
            doubt[np.unique(np.concatenate([self._links_of(nic, each) for each in addresses]))] += rates[i]
        return doubt

    def _links_perhaps(self, nic: str, address: str) -> Indices:
        """The links that some path of a pair crosses and another does not."""
        pair = nic, address
        found = self._may_cross.get(pair)
        if found is None:
            paths = [set(links) for links in self.routes.ports(nic, address).values()]
            if paths:
                found = np.array(sorted(paths[0].union(*paths) - paths[0].intersection(*paths)), np.intp)
            else:
                found = self._links_between(nic, address)
            self._may_cross[pair] = found
        return found

    def _links_of(self, nic: str, address: str) -> Indices:
        """The links that some path of a pair crosses; where none is known its NICs' own, and those that it may cross."""
        pair = nic, address
        found = self._crosses.get(pair)
        if found is None:
            paths = self.routes.ports(nic, address).values()
            crossed = {i for links in paths for i in links}
            if not crossed:
                out, into = self._of_ends
                own = *out.get(nic, ()), *into.get(self._owner.get(address, address), ())
                crossed = {*own, *self._links_between(nic, address).tolist()}
            found = self._crosses[pair] = np.array(sorted(crossed), np.intp)
        return found

    def _links_between(self, nic: str, address: str) -> Indices:
        """The links that a pair may cross of which no path is known: those of its switches, and all inside."""
        src = self.routes.first_switch.get(nic)
        dst = self.routes.last_switch.get(self._owner.get(address, address))
        if src is not None and src == dst:
            return np.zeros(0, np.intp)
        found = self._between.get((src, dst))
        if found is None:
            out, into = self._of_ends
            links = self.routes.links
            near = [
                *(i for i in out.get(src, ()) if not is_nic(links[i].b)),
                *(i for i in into.get(dst, ()) if not is_nic(links[i].a)),
            ]
            found = self._between[src, dst] = np.union1d(self._inside, np.array(near, np.intp))
        return found

    @cached_property
    def _inside(self) -> Indices:
        """The links between switches that no NIC hangs from."""
        return np.flatnonzero(self.kinds >= _INSIDE)

    @cached_property
    def _of_ends(self) -> tuple[_LinksOf, _LinksOf]:
        """The links from each node, and those to it."""
        out, into = defaultdict[str | None, list[int]](list), defaultdict[str | None, list[int]](list)
        for i, (a, b) in enumerate(self.routes.links):
            out[a].append(i)
            into[b].append(i)
        return out, into

    def _crossings(self, nic: tuple[str, str], table: NicTable) -> Crossings:
        identity = table.keys.tobytes() + table.rows["sport"].tobytes()
        known = self.known.get(nic)
        return (
            known if known is not None and known.identity == identity else self._trace(nic, table, identity)
        )

    def _trace(self, nic: tuple[str, str], table: NicTable, identity: bytes) -> Crossings:
        address, addresses = _placed(table, EGRESS)
        source, sources = _placed(table, INGRESS)
        located = np.zeros(len(table.rows), bool)
        parts: list[tuple[Indices, Sequence[int], float]] = []
        for i, shown in enumerate(addresses):
            mine = np.flatnonzero(address == i)
            ports = self.routes.ports(nic_id(*nic), shown)
            sports = table.rows["sport"][mine]
            located[mine] = np.isin(sports, list(ports))
            parts += [(mine[sports == port], links, 1.0) for port, links in ports.items()]
            parts += [(mine[~located[mine]], links, 1.0 / len(ports)) for links in ports.values()]
        parts = [part for part in parts if len(part[0])]
        row, link, share = _flat(parts)
        return Crossings(identity, row, link, share, located, address, addresses, source, sources)


def _placed(table: NicTable, direction: int) -> tuple[Indices, Sequence[str]]:
    """The place of each row's address among those of a direction, -1 for the other's, shape (rows,); and these."""
    rows = np.flatnonzero(table.rows["direction"] == direction)
    flat = np.ascontiguousarray(table.rows["addr"][rows]).view("V16").ravel()
    packed, which = np.unique(flat, return_inverse=True)
    place = np.full(len(table.rows), -1)
    place[rows] = which
    return place, [shown_address(one.tobytes()) for one in packed]


def _addresses(owner: Mapping[str, str]) -> Mapping[str, Sequence[str]]:
    """The addresses of each NIC."""
    found = defaultdict[str, list[str]](list)
    for address, nic in owner.items():
        found[nic].append(address)
    return found


def _unchanged(
    known: Mapping[tuple[str, str], Crossings], before: Routes, now: Routes
) -> dict[tuple[str, str], Crossings]:
    """What is known of NICs whose paths to their destinations lead over the same links as before."""
    is_same = same_rows(before, now)
    if is_same is None:
        return {}
    old, new = before.packed, now.packed

    def holds(nic: str, address: str) -> bool:
        then, rows = old.pairs.get((nic, address)), new.pairs.get((nic, address))
        return then is rows and (rows is None or bool(is_same[list(rows.values())].all()))

    return {
        nic: crossings
        for nic, crossings in known.items()
        if all(holds(nic_id(*nic), address) for address in crossings.addresses)
    }


def same_rows(before: Routes, now: Routes) -> Mask | None:
    """Which rows of the paths cross the links that they crossed, shape (rows then or now, whichever are more,).

    None where links have other numbers.
    """
    if now.links[: len(before.links)] != before.links:
        return None
    old, new = before.packed, now.packed
    rows, places = np.minimum(old.crossed.shape, new.crossed.shape)
    is_same = np.zeros(max(len(old.crossed), len(new.crossed)), bool)
    is_same[:rows] = (old.crossed[:rows, :places] == new.crossed[:rows, :places]).all(axis=1)
    for each in (old, new):
        is_same[:rows] &= (each.crossed[:rows, places:] < 0).all(axis=1)
    return is_same


class _Joined:
    """What the rows of several NICs cross, one NIC's behind another's; attributes as those of `Crossings`.

    Attributes:
        pair: the place of the row's NIC and address in `pairs`, -1 for rows that do not send, shape (rows,).
        pairs: NICs with their destinations.
        is_sent: rows of what is sent, shape (rows,).
        source: the place of the row in `received`, -1 for rows that do not receive, shape (rows,).
        received: who sends, and the NIC that it sends to.
    """

    def __init__(self, known: Mapping[tuple[str, str], Crossings], owner: Mapping[str, str]) -> None:
        each = list(known.values())
        first_row = np.cumsum([0, *(len(one.located) for one in each)])
        self.row = _concatenated(
            (one.row + first for one, first in zip(each, first_row, strict=False)), np.intp
        )
        self.link = _concatenated((one.link for one in each), np.intp)
        self.share = _concatenated((one.share for one in each), np.float64)
        self.located = _concatenated((one.located for one in each), bool)
        self.pair = _numbered([one.address for one in each], [len(one.addresses) for one in each])
        self.source = _numbered([one.source for one in each], [len(one.sources) for one in each])
        self.received = [
            (owner.get(source, source), nic_id(*nic)) for nic, one in known.items() for source in one.sources
        ]
        self.pairs = [(nic_id(*nic), address) for nic, one in known.items() for address in one.addresses]
        self.is_sent = self.pair >= 0


def _numbered(places: Sequence[Indices], sizes: Sequence[int]) -> Indices:
    """Places in lists of these sizes, as those in all lists one behind another; -1 stays."""
    first = np.cumsum([0, *sizes])
    return _concatenated(
        (np.where(place >= 0, place + start, -1) for place, start in zip(places, first, strict=False)),
        np.intp,
    )


def _concatenated(parts: Iterable[NDArray[Any]], dtype: type) -> NDArray[Any]:
    """Of no parts too."""
    return np.concatenate([np.zeros(0, dtype), *parts])


def _unsure(table: JoinedTables, known: _Joined, sends: Mask, now_s: float, lag_s: float) -> Mask:
    """Rows that may load links otherwise than they seem to: of unknown rate or path, just moved, begun or stopped.

    One that has moved or stopped settles within two reports of its rate, and the windows that they are compared with.
    """
    settles_s = table.stopped_after_s + lag_s
    has_moved = now_s - table.turned_s < settles_s
    new = sends & (np.isnan(table.rates[:, _BYTES]) | ~known.located | has_moved | table.has_begun)
    stopped = ~sends & (now_s - table.heard_s < table.stopped_after_s + settles_s)
    unsure: Mask = known.is_sent & (new | stopped)
    return unsure


def _flat(parts: Sequence[tuple[Indices, Sequence[int], float]]) -> tuple[Indices, Indices, Floats]:
    if not parts:
        return np.zeros(0, np.intp), np.zeros(0, np.intp), np.zeros(0)
    row = np.concatenate([np.repeat(chosen, len(links)) for chosen, links, _ in parts])
    link = np.concatenate([np.tile(np.array(links, np.intp), len(chosen)) for chosen, links, _ in parts])
    share = np.concatenate([np.full(len(chosen) * len(links), each) for chosen, links, each in parts])
    return row, link, share
