"""Congestion trees: where packets wait, and what they wait for, by the switches' forwarding tables. No I/O."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from cwdp.shared.ib.subnet import NO_PEER, NO_ROUTE, SWITCH, Subnet

STAYS_POLLS = 2
"""A link that is full in so many polls in a row stays so; one that is so in one sends a burst."""

MOST_WAITING = 2_000
"""Those that wait most are looked at."""


@dataclass(frozen=True)
class Tree:
    """What others wait for.

    Attributes:
        root: the row of the port that holds up the others: it waits itself, or its link is full.
        is_full: whether its link carries as much as it can.
        to_host: whether a host is at its far end.
        waiting: rows of ports that wait, the root apart, those that wait most first.
    """

    root: int
    is_full: bool
    to_host: bool
    waiting: tuple[int, ...]


def trees(
    subnet: Subnet, waits: NDArray[np.float64], full_polls: NDArray[np.int_], least: float
) -> list[Tree]:
    """All trees of a moment.

    Args:
        subnet: with its forwarding tables.
        waits: share of the time in which each port could not send what it had, NaN for unknown, shape (ports,).
        full_polls: in how many polls in a row each port's link was full, shape (ports,).
        least: a port with this share waits.
    """
    peer = subnet.ports["peer"]
    waiting = np.flatnonzero((np.nan_to_num(waits) >= least) & (peer != NO_PEER))
    waiting = waiting[np.argsort(-waits[waiting], kind="stable")][:MOST_WAITING]
    full_polls = np.where(peer != NO_PEER, full_polls, 0)
    blocked = _blocked_by(subnet, waiting.tolist(), full_polls)
    return [_tree(subnet, root, members, waits, full_polls > 0) for root, members in _roots(blocked, waits)]


def _blocked_by(subnet: Subnet, waiting: list[int], full_polls: NDArray[np.int_]) -> dict[int, list[int]]:
    """For each port that waits, those at the far switch that it may wait for: that wait too, or else one that is full.

    Of several that are full it is one that stays so, and that most may wait for.
    """
    full = full_polls > 0
    is_waiting = np.zeros(len(subnet.ports), bool)
    is_waiting[waiting] = True
    blocked: dict[int, list[int]] = {}
    open_: dict[int, list[int]] = {}
    outputs = _Outputs(subnet)
    for row in waiting:
        ways = outputs.of(row)
        blocked[row] = ways[is_waiting[ways]].tolist()
        if not blocked[row] and full[ways].any():
            open_[row] = ways[full[ways]].tolist()
    while open_:
        claims: dict[int, int] = {}
        for ways_of in open_.values():
            for way in ways_of:
                claims[way] = claims.get(way, 0) + 1
        root = max(claims, key=lambda way: (min(full_polls[way], STAYS_POLLS), claims[way], -way))
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


def _tree(
    subnet: Subnet, root: int, members: list[int], waits: NDArray[np.float64], full: NDArray[np.bool_]
) -> Tree:
    far = subnet.ports[subnet.ports[root]["peer"]]
    return Tree(
        root,
        bool(full[root]),
        bool(subnet.kinds[far["node"]] != SWITCH),
        tuple(sorted(members, key=lambda row: (-float(np.nan_to_num(waits[row])), row))),
    )
