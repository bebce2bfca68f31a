"""The ports that packets cross in an InfiniBand subnet, exactly, by its switches' forwarding tables. Pure, over arrays.

A switch chooses the port by the destination LID alone (IBTA Architecture Specification, volume 1, 18.2.4.3.2), so all packets
that it forwards to a LID go the same way, whoever sent them.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from cwdp.shared.ib.subnet import ACTIVE, NO_PEER, NO_ROUTE, SWITCH, Subnet

MOST_SWITCHES = 64
"""On the way of a packet; one that crosses more goes round in circles."""

NOWHERE = -1


@dataclass(frozen=True)
class Ways:
    """From one switch to each LID.

    Attributes:
        leaves: rows of the ports by which packets leave the switches that they cross, NOWHERE behind the last, int32, shape
            (LIDs, most switches).
        arrives: whether they come to the port that owns the LID, shape (LIDs,).
    """

    leaves: NDArray[np.int32]
    arrives: NDArray[np.bool_]


class Routes:
    """Of a subnet; what leads from a switch is worked out when it is asked for first, and kept."""

    def __init__(self, subnet: Subnet) -> None:
        self.subnet = subnet
        self._by_switch: dict[int, Ways] = {}

    @cached_property
    def owner(self) -> NDArray[np.int32]:
        """The row of the port that owns each LID, of a switch that of port 0; NOWHERE for none, shape (LIDs,)."""
        ports = self.subnet.ports
        owner = np.full(self.subnet.tables.shape[1] or 1, NOWHERE, np.int32)
        is_switch = self.subnet.kinds[ports["node"]] == SWITCH
        rows = np.flatnonzero((ports["lid"] > 0) & (~is_switch | (ports["number"] == 0)))
        for row in rows[::-1].tolist():  # of two that have one LID, the first
            lid = int(ports["lid"][row])
            owner[lid : lid + (1 << int(ports["lmc"][row]))] = row
        return owner

    @cached_property
    def _peer(self) -> NDArray[np.int32]:
        """The far end of each port's link, NO_PEER where no packets go over it: only datagrams of direct routes do before it is active."""
        peer = self.subnet.ports["peer"]
        is_active = self.subnet.ports["state"] == ACTIVE
        carries: NDArray[np.int32] = np.where((peer >= 0) & is_active & is_active[peer], peer, NO_PEER)
        return carries

    @cached_property
    def _port_at(self) -> NDArray[np.int32]:
        """The row of each port of each switch by its number, NOWHERE where there is none, shape (switches, 256)."""
        ports = self.subnet.ports
        at = np.full((len(self.subnet.switches), 256), NOWHERE, np.int32)
        switch = self._switch_of[ports["node"]]
        rows = np.flatnonzero(switch >= 0)
        at[switch[rows], ports["number"][rows]] = rows
        at[:, NO_ROUTE] = NOWHERE
        return at

    @cached_property
    def _switch_of(self) -> NDArray[np.int32]:
        """The place among the switches of each node, NOWHERE for others, shape (nodes,)."""
        of = np.full(len(self.subnet.guids), NOWHERE, np.int32)
        of[self.subnet.switches] = np.arange(len(self.subnet.switches))
        return of

    def lids(self, port: int) -> range:
        """Those that a port owns, as far as any table reaches."""
        row = self.subnet.ports[port]
        first = int(row["lid"])
        return range(first, min(first + (1 << int(row["lmc"])), len(self.owner))) if first else range(0)

    def first_switch(self, port: int) -> int:
        """The place among the switches of the one that a host's port is linked to; NOWHERE for none."""
        peer = int(self._peer[port])
        return NOWHERE if peer == NO_PEER else int(self._switch_of[self.subnet.ports["node"][peer]])

    def from_switch(self, switch: int) -> Ways:
        """The ways of all that comes to a switch, by its place among the switches, to each LID."""
        found = self._by_switch.get(switch)
        if found is None:
            lids = np.arange(len(self.owner))
            found = self._by_switch[switch] = self._walk(np.full(len(lids), switch, np.int32), lids)
        return found

    def to_lid(self, lid: int) -> Ways:
        """The ways from each switch to one LID, one row for each switch."""
        switches = np.arange(len(self.subnet.switches), dtype=np.int32)
        return self._walk(switches, np.full(len(switches), lid))

    def _walk(self, at: NDArray[np.int32], lids: NDArray[np.intp]) -> Ways:
        subnet, node_of = self.subnet, self.subnet.ports["node"]
        owner = np.where(lids < len(self.owner), self.owner[np.minimum(lids, len(self.owner) - 1)], NOWHERE)
        owner_node = np.where(owner >= 0, node_of[owner], NOWHERE)
        arrives = (owner_node >= 0) & (subnet.switches[at] == owner_node)
        moving = (owner_node >= 0) & ~arrives & (subnet.tables.shape[1] > 0)
        columns = []
        at = at.copy()
        for _ in range(MOST_SWITCHES):
            rows = np.flatnonzero(moving)
            if not len(rows):
                break
            out = self._port_at[at[rows], subnet.tables[at[rows], lids[rows]]]
            column = np.full(len(lids), NOWHERE, np.int32)
            column[rows] = out
            columns.append(column)
            peer = np.where(out >= 0, self._peer[out], NO_PEER)
            node = np.where(peer >= 0, node_of[peer], NOWHERE)
            switch = np.where(node >= 0, self._switch_of[node], NOWHERE)
            is_there = (peer >= 0) & (node == owner_node[rows]) & ((switch >= 0) | (peer == owner[rows]))
            arrives[rows[is_there]] = True
            moving[rows[is_there | (switch < 0)]] = False
            at[rows] = switch
        shape = len(lids), 0
        leaves = np.stack(columns, axis=1) if columns else np.zeros(shape, np.int32)
        return Ways(leaves, arrives)

    def way(self, src: int, dlid: int) -> list[int] | None:
        """The rows of the ports that packets of a host's port leave by to a LID, its own first; None where they do not come there."""
        peer = int(self._peer[src])
        if peer == NO_PEER or not 0 <= dlid < len(self.owner) or self.owner[dlid] < 0:
            return None
        switch = self.first_switch(src)
        if switch < 0:
            return [src] if peer == self.owner[dlid] else None
        ways = self.from_switch(switch)
        if not ways.arrives[dlid]:
            return None
        return [src, *(row for row in ways.leaves[dlid].tolist() if row >= 0)]
