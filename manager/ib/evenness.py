"""What each link would carry of an all-to-all, by the forwarding tables, and what it would if routes were even. Pure.

Destination-routed fat trees: Zahavi, Johnson, Kerbyson, Lang, "Optimized InfiniBand fat-tree routing for shift
all-to-all communication patterns", Concurrency and Computation 22 (2010).
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cwdp.shared.ib.subnet import CHANNEL_ADAPTER, NO_PEER, NO_ROUTE, SWITCH, Subnet

MOST_HOPS = 64
ROUNDING = 1e-9

MOST_CELLS = 4_000_000
"""Switches times LIDs that are looked at at a time: 32 MB each of some arrays."""


@dataclass(frozen=True)
class Balance:
    """Of the links between switches, one direction each.

    Attributes:
        ports: rows of the ports that packets leave by, shape (links,).
        flows: pairs of a source port and a destination LID that take it, shape (links,).
        even: what it would be if the links that could take these flows shared them by their rates, as far as hosts at one
            switch, which go one way to each LID, can be shared, shape (links,).
        lost: pairs for which tables lead nowhere, or round in a circle.
        flows_in_all: of all pairs.
    """

    ports: NDArray[np.intp]
    flows: NDArray[np.int64]
    even: NDArray[np.float64]
    lost: int
    flows_in_all: int

    @property
    def ratio(self) -> NDArray[np.float64]:
        """Flows of each link to its even share; 1 is perfect, 0 of a link that nothing could take."""
        return np.divide(self.flows, self.even, out=np.zeros(len(self.flows)), where=self.even > 0)


def balance(subnet: Subnet, *, every_lid: bool) -> Balance:
    """All-to-all: each port of a host sends to each other one's.

    Args:
        subnet: with its tables.
        every_lid: to each LID of a destination, as if all were used alike; else to the first only, as programs do that
            know nothing of LMC.
    """
    ports = subnet.ports
    hosts = _hosts(subnet)
    spread = 1 << ports["lmc"][hosts].astype(np.int64) if every_lid else np.ones(len(hosts), np.int64)
    owner = np.repeat(np.arange(len(hosts)), spread)
    dlids = ports["lid"][hosts][owner] + _within(spread)
    carried, lost = np.zeros(len(ports), np.int64), 0
    at_once = max(1, MOST_CELLS // max(1, len(subnet.switches)))
    for first in range(0, len(dlids), at_once):
        part = slice(first, first + at_once)
        more, gone = _carried(subnet, hosts, owner[part], dlids[part].astype(np.int64))
        carried, lost = carried + more, lost + gone
    rows = _between_switches(subnet)
    flows = carried[rows]
    return Balance(rows, flows, _even(subnet, hosts, rows, flows), lost, (len(hosts) - 1) * len(dlids))


def _hosts(subnet: Subnet) -> NDArray[np.intp]:
    """Rows of hosts' ports that have a LID and a link to a switch."""
    ports = subnet.ports
    is_host = (subnet.kinds[ports["node"]] == CHANNEL_ADAPTER) & (ports["lid"] > 0)
    rows = np.flatnonzero(is_host & (ports["peer"] != NO_PEER))
    return np.asarray(rows[subnet.kinds[ports["node"][ports["peer"][rows]]] == SWITCH])


def _within(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """0, 1, ... for each count, one after the other."""
    begins = np.cumsum(counts) - counts
    return np.arange(counts.sum()) - np.repeat(begins, counts)


def _carried(
    subnet: Subnet, hosts: NDArray[np.intp], owner: NDArray[np.intp], dlids: NDArray[np.int64]
) -> tuple[NDArray[np.int64], int]:
    """Flows that leave by each port, and those that do not come to their destination.

    Sources at one switch go one way to a destination, so that they are counted together and moved on switch by switch.
    """
    ports, tables, count = subnet.ports, subnet.tables, len(dlids)
    carried = np.zeros(len(ports), np.int64)
    switch_of = np.full(len(subnet.guids), -1)
    switch_of[subnet.switches] = np.arange(len(subnet.switches))
    port_row = np.full((len(subnet.switches), 256), -1)
    of_switch = switch_of[ports["node"]]
    own = np.flatnonzero(of_switch >= 0)
    port_row[of_switch[own], ports["number"][own]] = own
    leaf = switch_of[ports["node"][ports["peer"][hosts]]]
    at = np.repeat(np.bincount(leaf, minlength=len(subnet.switches))[:, None], count, axis=1)
    at[leaf[owner], np.arange(count)] -= 1
    lost = 0
    for _ in range(MOST_HOPS):
        switch, to = np.nonzero(at)
        if not len(switch):
            break
        flows = at[switch, to]
        is_known = dlids[to] < tables.shape[1]
        out = np.full(len(to), NO_ROUTE, np.uint8)
        out[is_known] = tables[switch[is_known], dlids[to[is_known]]]
        row = np.where(out == NO_ROUTE, -1, port_row[switch, out])
        peer = np.where(row >= 0, ports["peer"][row], NO_PEER)
        has_link = peer != NO_PEER
        np.add.at(carried, row[has_link], flows[has_link])
        there = np.where(has_link, switch_of[ports["node"][peer]], -1)
        has_come = has_link & (peer == hosts[owner[to]])
        goes_on = has_link & (there >= 0)
        lost += int(flows[~has_come & ~goes_on].sum())
        at = (
            np.bincount(there[goes_on] * count + to[goes_on], flows[goes_on], minlength=at.size)
            .astype(np.int64)
            .reshape(at.shape)
        )
    return carried, lost + int(at.sum())


def _between_switches(subnet: Subnet) -> NDArray[np.intp]:
    """Rows of ports with a link to another switch."""
    ports = subnet.ports
    is_switch = subnet.kinds[ports["node"]] == SWITCH
    return np.flatnonzero((ports["peer"] != NO_PEER) & is_switch & is_switch[ports["peer"]])


def _groups(subnet: Subnet, rows: NDArray[np.intp]) -> NDArray[np.int64]:
    """For each of these ports a number that it shares with those beside it: all up from a switch, or all down to it."""
    ports, rank = subnet.ports, _ranks(subnet)
    here, there = ports["node"][rows], ports["node"][ports["peer"][rows]]
    lower = np.where(rank[here] > rank[there], there, here).astype(np.int64)
    return np.asarray(lower * 3 + 1 + np.sign(rank[here] - rank[there]))


def _ranks(subnet: Subnet) -> NDArray[np.int64]:
    """Of each switch how many links it is from a host; 0 of what is none, or has no way to one."""
    ports = subnet.ports
    here = ports["node"][subnet.links].astype(np.int64)
    is_switch = subnet.kinds == SWITCH
    rank = np.zeros(len(subnet.guids), np.int64)
    reached = subnet.kinds == CHANNEL_ADAPTER
    step = 0
    while len(here):
        step += 1
        ends = np.concatenate([here, here[:, ::-1]])
        new = np.unique(ends[reached[ends[:, 0]] & ~reached[ends[:, 1]] & is_switch[ends[:, 1]], 1])
        if not len(new):
            break
        rank[new], reached[new] = step, True
    return rank


def _even(
    subnet: Subnet, hosts: NDArray[np.intp], rows: NDArray[np.intp], flows: NDArray[np.int64]
) -> NDArray[np.float64]:
    if not len(rows):
        return np.zeros(0)
    ports = subnet.ports
    rate = subnet.rates_bps[rows]
    rate[rate == 0] = 1.0
    _, group = np.unique(_groups(subnet, rows), return_inverse=True)
    share = np.bincount(group, flows)[group] * rate / np.bincount(group, rate)[group]
    together = np.bincount(ports["node"][ports["peer"][hosts]], minlength=1).max()
    return np.asarray(np.ceil(share / max(1, together) - ROUNDING) * max(1, together))
