"""What was swept and read of a subnet, as arrays. Pure."""

from collections import Counter
from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from cwdp.ib.sweep import End, Fabric, Node
from cwdp.ib.tables import Tables
from cwdp.shared.ib.subnet import DEFAULT_PREFIX, KEY, NO_PEER, PORT, Subnet


def snapshot(
    fabric: Fabric, tables: Tables, keys: Mapping[End, tuple[int, ...]] = MappingProxyType({})
) -> Subnet:
    """The subnet of a sweep, with its tables and the P_Keys of ports."""
    nodes, ends = [fabric.nodes[guid] for guid in sorted(fabric.nodes)], ends_of(fabric)
    row = {end: i for i, end in enumerate(ends)}
    of_node = {node.guid: i for i, node in enumerate(nodes)}
    ports = np.zeros(len(ends), PORT)
    for i, end in enumerate(ends):
        port = fabric.nodes[end.guid].ports[end.port]
        peer = row.get(fabric.links.get(end, end), i)
        ports[i] = (
            of_node[end.guid],
            end.port,
            port.lid,
            port.lmc,
            port.sm_lid,
            port.state,
            port.is_linked,
            port.width,
            port.widest,
            port.lane_bps,
            port.fastest_bps,
            NO_PEER if peer == i else peer,
        )
    _undo_one_sided(ports)
    switches = [tables.row[node.guid] for node in nodes if node.is_switch]
    return Subnet(
        np.array([node.guid for node in nodes], np.uint64),
        tuple(node.name for node in nodes),
        np.array([node.kind for node in nodes], np.uint8),
        ports,
        tables.ports[switches],
        tuple(row[end] for end in fabric.silent if end in row),
        (_manager(nodes), ""),
        np.array([fabric.nodes[end.guid].port_guids.get(end.port, 0) for end in ends], np.uint64),
        max((port.prefix for node in nodes for port in node.ports.values()), default=0) or DEFAULT_PREFIX,
        np.array([(i, key) for i, end in enumerate(ends) for key in keys.get(end, ())], KEY),
    )


def ends_of(fabric: Fabric) -> list[End]:
    """The port of each row."""
    return [End(guid, number) for guid in sorted(fabric.nodes) for number in sorted(fabric.nodes[guid].ports)]


def _undo_one_sided(ports: NDArray[np.void]) -> None:
    """A link of which the far end is linked elsewhere, as where two nodes have one GUID, is none; in place."""
    peer = ports["peer"]
    linked = np.flatnonzero(peer != NO_PEER)
    peer[linked[peer[peer[linked]] != linked]] = NO_PEER


def _manager(nodes: Sequence[Node]) -> int:
    """The GUID of the node that owns the LID of the subnet manager; 0 where there is none."""
    lids = Counter(port.sm_lid for node in nodes for port in node.ports.values() if port.sm_lid)
    for lid, _ in lids.most_common(1):
        for node in nodes:
            if any(port.lid <= lid < port.lid + (1 << port.lmc) for port in node.ports.values() if port.lid):
                return node.guid
    return 0
