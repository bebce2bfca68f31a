"""Congestion trees: where packets wait, and what they wait for, by the switches' forwarding tables. No I/O.

A burst is no congestion: several hosts send to one for a part of a poll, and the ports before that host's link wait. While they do,
the link sends at its rate, so it carries at least the share of the poll in which they wait. A port for which that can be said of a
link behind it names nothing, unless that link is full for the whole poll. The last port on the way to a host is another matter: no
traffic makes it wait, since a link that is busy sends, and does not wait. Only its host does, by giving no credits.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from cwdp.shared.ib.subnet import NO_PEER, NO_ROUTE, SWITCH, Subnet

FULL_SHARE = 0.9
"""Of its rate: a link that carries more is full."""

MOST_WAITING = 2_000
"""Those that wait most are looked at."""


@dataclass(frozen=True)
class Tree:
    """What others wait for.

    Attributes:
        root: the row of the port that holds up the others: it waits itself, or its link is full.
        is_full: whether its link carries as much as it can.
        full_polls: in how many polls in a row it has been full while others may have waited for it.
        to_host: whether a host is at its far end.
        waiting: rows of ports that wait, the root apart, those that wait most first.
    """

    root: int
    is_full: bool
    full_polls: int
    to_host: bool
    waiting: tuple[int, ...]


def trees(
    subnet: Subnet,
    waits: NDArray[np.float64],
    load: NDArray[np.float64],
    polls: NDArray[np.int_],
    least: float,
) -> tuple[list[Tree], NDArray[np.int_]]:
    """All trees of a moment, those apart that a burst explains; and `polls` with this one.

    Args:
        subnet: with its forwarding tables.
        waits: share of the time in which each port could not send what it had, NaN for unknown, shape (ports,).
        load: share of its rate that each port's link carries, NaN for unknown, shape (ports,).
        polls: in how many polls in a row before each port waited, and was full while others may have waited for it, shape (2, ports).
        least: a port with this share waits.
    """
    peer = subnet.ports["peer"]
    waiting = np.flatnonzero((np.nan_to_num(waits) >= least) & (peer != NO_PEER))
    waiting = waiting[np.argsort(-waits[waiting], kind="stable")][:MOST_WAITING]
    is_full = (np.nan_to_num(load) >= FULL_SHARE) & (peer != NO_PEER)
    outputs = _Outputs(subnet)
    ways = {row: outputs.of(row) for row in waiting.tolist()}
    is_seen = np.zeros((2, len(peer)), bool)
    is_seen[0, waiting] = True
    for behind in ways.values():
        is_seen[1, behind] = is_full[behind]
    is_unknown = np.isnan(np.stack([waits, load]))
    polls = np.where(is_unknown, polls, np.where(is_seen, polls + 1, 0))
    blocked = _blocked_by(ways, is_full, polls)
    to_host = subnet.kinds[subnet.ports["node"][peer]] != SWITCH
    found = [
        Tree(
            root,
            bool(is_full[root]),
            int(polls[1, root]),
            bool(to_host[root]),
            _most_first(members, waits),
        )
        for root, members in _roots(blocked, waits)
        if is_full[root] or blocked[root] or not (load[ways[root]] >= waits[root]).any()
    ]
    return found, polls


def _blocked_by(
    ways: Mapping[int, NDArray[np.intp]], is_full: NDArray[np.bool_], polls: NDArray[np.int_]
) -> dict[int, list[int]]:
    """For each port that waits, those at the far switch that it may wait for: that wait too, or else one that is full.

    Of several that are full it is the one that most may wait for. Where all that wait have just begun to, those that were full in the
    poll before as well are not put behind them. `ways` are the ports by which each may go on.
    """
    is_waiting = np.zeros(len(is_full), bool)
    is_waiting[list(ways)] = True
    stays_waiting, stays_full = polls > 1
    blocked: dict[int, list[int]] = {}
    open_: dict[int, list[int]] = {}
    for row, behind in ways.items():
        holding = is_waiting[behind]
        if not stays_waiting[behind[holding]].any():
            holding |= (is_full & stays_full)[behind]
        blocked[row] = behind[holding].tolist()
        if not blocked[row] and is_full[behind].any():
            open_[row] = behind[is_full[behind]].tolist()
    for root in {root for roots in blocked.values() for root in roots}:
        blocked.setdefault(root, [])
    while open_:
        claims: dict[int, int] = {}
        for ways_of in open_.values():
            for way in ways_of:
                claims[way] = claims.get(way, 0) + 1
        root = max(claims, key=lambda way: (claims[way], -way))
        for row in [row for row, ways_of in open_.items() if root in ways_of]:
            blocked[row] = [root]
            del open_[row]
        blocked.setdefault(root, [])
    return blocked


class _Outputs:
    """By which ports of the next switch a port's packets may leave."""

    def __init__(self, subnet: Subnet) -> None:
        self._subnet = subnet
        self._table = {node: i for i, node in enumerate(subnet.switches.tolist())}
        ports = subnet.ports
        self._row = {
            (node, number): row
            for row, (node, number) in enumerate(
                zip(ports["node"].tolist(), ports["number"].tolist(), strict=True)
            )
        }

    def of(self, row: int) -> NDArray[np.intp]:
        """Rows of ports; none where a host is next, or nothing is known."""
        ports, tables = self._subnet.ports, self._subnet.tables
        here, there = ports[row], ports[ports[row]["peer"]]
        node = int(there["node"])
        if node not in self._table or not tables.shape[1]:
            return np.zeros(0, np.intp)
        lids = tables[self._table[node]]
        if self._subnet.kinds[here["node"]] == SWITCH:
            lids = lids[tables[self._table[int(here["node"])]] == here["number"]]
        numbers = set(np.unique(lids).tolist()) - {NO_ROUTE, 0, int(there["number"])}
        return np.array(sorted(self._row[node, n] for n in numbers if (node, n) in self._row), np.intp)


def _roots(blocked: dict[int, list[int]], waits: NDArray[np.float64]) -> list[tuple[int, list[int]]]:
    """Ports for which others wait and which wait for none, with those; of ports that wait in a circle the one that waits most."""
    rows = sorted(blocked)
    place = {row: i for i, row in enumerate(rows)}
    edges = [(place[row], place[way]) for row, ways in blocked.items() for way in ways]
    if not rows:
        return []
    a, b = (
        (np.array(column, np.intp) for column in zip(*edges, strict=True))
        if edges
        else (np.zeros(0, np.intp),) * 2
    )
    graph = csr_array((np.ones(len(edges)), (a, b)), shape=(len(rows), len(rows)))
    count, group = connected_components(graph, directed=True, connection="strong")
    leads_on = np.zeros(count, bool)
    leads_on[group[a[group[a] != group[b]]]] = True
    before: dict[int, list[int]] = {}
    for here, there in edges:
        before.setdefault(there, []).append(here)
    found = []
    for one in np.flatnonzero(~leads_on).tolist():
        members = np.flatnonzero(group == one).tolist()
        reached, todo = set(members), list(members)
        while todo:
            fresh = set(before.get(todo.pop(), ())) - reached
            reached |= fresh
            todo += fresh
        root = max((rows[i] for i in members), key=lambda row: (np.nan_to_num(waits[row]), -row))
        found.append((root, [rows[i] for i in reached if rows[i] != root]))
    return found


def _most_first(rows: list[int], waits: NDArray[np.float64]) -> tuple[int, ...]:
    return tuple(sorted(rows, key=lambda row: (-float(np.nan_to_num(waits[row])), row)))
