"""What the queue pairs over each link send, and whether that is all that crosses it. No I/O.

A queue pair whose path is not known counts in equal parts for every known path of its pair, as ECMP would spread many.
The load of a link that such a one may cross is not sure, nor is that of one whose path has just changed: its rate is
that of both paths together.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from cwdp.shared.bus.messages import nic_id
from cwdp.shared.bus.records import EGRESS, shown_address
from manager.fabric.routes import Routes, is_nic
from manager.links.loads import INSIDE_TIER, tiers
from manager.queue_pairs.counters import NicTable

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
    """

    identity: bytes
    row: Indices
    link: Indices
    share: Floats
    located: Mask
    address: Indices
    addresses: Sequence[str]


class LoadMeter:
    """Adds up queue pairs' rates over links; which row crosses what is worked out only when rows change.

    Args:
        routes: the known paths.
        owner: the NIC of each address.
    """

    def __init__(self, routes: Routes, owner: Mapping[str, str]) -> None:
        self._routes, self._owner = routes, owner
        self._known: dict[tuple[str, str], Crossings] = {}
        self._may_cross: dict[tuple[str, str], Indices] = {}
        self._kinds = tiers(routes.links)
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
        load, doubt = np.zeros((2, len(self._routes.links)))
        kept = {}
        for nic, table in tables:
            known = kept[nic] = self._crossings(nic, table)
            rate, sends = _BITS * table.rates[:, _BYTES], table.sends(now_s)
            loads = np.where(sends & (table.rows["direction"] == EGRESS), np.nan_to_num(rate), 0.0)
            np.add.at(load, known.link, loads[known.row] * known.share)
            unsure = _unsure(table, known, sends, now_s, lag_s)
            self._add_doubt(doubt, nic_id(*nic), known, unsure, np.nan_to_num(rate, nan=np.inf))
        self._known = kept
        return load, doubt <= SURE_SHARE * load

    def _add_doubt(self, doubt: Floats, nic: str, known: Crossings, unsure: Mask, rate: Floats) -> None:
        """Add the rates of some rows to all links that they may cross."""
        rows = np.flatnonzero(unsure)
        for which in np.unique(known.address[rows]).tolist():
            mine = rows[known.address[rows] == which]
            doubt[self._links_perhaps(nic, known.addresses[which])] += rate[mine].sum()

    def _links_perhaps(self, nic: str, address: str) -> Indices:
        """The links that some path of a pair crosses and another does not."""
        pair = nic, address
        found = self._may_cross.get(pair)
        if found is None:
            paths = [set(links) for links in self._routes.ports(nic, address).values()]
            if paths:
                found = np.array(sorted(paths[0].union(*paths) - paths[0].intersection(*paths)), np.intp)
            else:
                found = self._links_between(nic, address)
            self._may_cross[pair] = found
        return found

    def _links_between(self, nic: str, address: str) -> Indices:
        """The links that a pair may cross of which no path is known: those of its switches, and all inside."""
        src = self._routes.first_switch.get(nic)
        dst = self._routes.last_switch.get(self._owner.get(address, address))
        if src is not None and src == dst:
            return np.zeros(0, np.intp)
        found = self._between.get((src, dst))
        if found is None:
            out, into = self._of_switches
            near = [*out.get(src, ()), *into.get(dst, ())]
            found = self._between[src, dst] = np.union1d(self._inside, np.array(near, np.intp))
        return found

    @cached_property
    def _inside(self) -> Indices:
        """The links between switches that no NIC hangs from."""
        return np.flatnonzero(self._kinds >= _INSIDE)

    @cached_property
    def _of_switches(self) -> tuple[_LinksOf, _LinksOf]:
        """The links from each switch to others, and those from others to it."""
        out, into = defaultdict[str | None, list[int]](list), defaultdict[str | None, list[int]](list)
        for i, (a, b) in enumerate(self._routes.links):
            if not (is_nic(a) or is_nic(b)):
                out[a].append(i)
                into[b].append(i)
        return out, into

    def _crossings(self, nic: tuple[str, str], table: NicTable) -> Crossings:
        identity = table.keys.tobytes() + table.rows["sport"].tobytes()
        known = self._known.get(nic)
        return (
            known if known is not None and known.identity == identity else self._trace(nic, table, identity)
        )

    def _trace(self, nic: tuple[str, str], table: NicTable, identity: bytes) -> Crossings:
        rows = np.flatnonzero(table.rows["direction"] == EGRESS)
        flat = np.ascontiguousarray(table.rows["addr"][rows]).view("V16").ravel()
        packed, which = np.unique(flat, return_inverse=True)
        addresses = [shown_address(one.tobytes()) for one in packed]
        address = np.full(len(table.rows), -1)
        address[rows] = which
        located = np.zeros(len(table.rows), bool)
        parts: list[tuple[Indices, Sequence[int], float]] = []
        for i, shown in enumerate(addresses):
            mine = rows[which == i]
            ports = self._routes.ports(nic_id(*nic), shown)
            sports = table.rows["sport"][mine]
            located[mine] = np.isin(sports, list(ports))
            parts += [(mine[sports == port], links, 1.0) for port, links in ports.items()]
            parts += [(mine[~located[mine]], links, 1.0 / len(ports)) for links in ports.values()]
        parts = [part for part in parts if len(part[0])]
        row, link, share = _flat(parts)
        return Crossings(identity, row, link, share, located, address, addresses)


def _unsure(table: NicTable, known: Crossings, sends: Mask, now_s: float, lag_s: float) -> Mask:
    """Rows that may load other links than they seem to: of unknown rate or path, just moved, just stopped, or silent.

    One that has moved or stopped settles within two reports of its rate, and the windows that they are compared with.
    """
    settles_s = table.stopped_after_s + lag_s
    new = sends & (np.isnan(table.rates[:, _BYTES]) | ~known.located | (now_s - table.turned_s < settles_s))
    stopped = ~sends & (now_s - table.heard_s < table.stopped_after_s + settles_s)
    unsure: Mask = (table.rows["direction"] == EGRESS) & (new | stopped | table.is_unknown(now_s))
    return unsure


def _flat(parts: Sequence[tuple[Indices, Sequence[int], float]]) -> tuple[Indices, Indices, Floats]:
    if not parts:
        return np.zeros(0, np.intp), np.zeros(0, np.intp), np.zeros(0)
    row = np.concatenate([np.repeat(chosen, len(links)) for chosen, links, _ in parts])
    link = np.concatenate([np.tile(np.array(links, np.intp), len(chosen)) for chosen, links, _ in parts])
    share = np.concatenate([np.full(len(chosen) * len(links), each) for chosen, links, each in parts])
    return row, link, share
