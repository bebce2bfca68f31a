"""What was swept and read of a subnet, as arrays. Pure."""

import numpy as np

from cwdp.ib.sweep import End, Fabric
from cwdp.ib.tables import Tables
from cwdp.shared.ib.subnet import NO_PEER, PORT, Subnet


def snapshot(fabric: Fabric, tables: Tables) -> Subnet:
    """The subnet of a sweep, with its tables."""
    nodes = [fabric.nodes[guid] for guid in sorted(fabric.nodes)]
    ends = [End(node.guid, number) for node in nodes for number in sorted(node.ports)]
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
    switches = [tables.row[node.guid] for node in nodes if node.is_switch]
    return Subnet(
        np.array([node.guid for node in nodes], np.uint64),
        tuple(node.name for node in nodes),
        np.array([node.kind for node in nodes], np.uint8),
        ports,
        tables.ports[switches],
        tuple(row[end] for end in fabric.silent if end in row),
    )
