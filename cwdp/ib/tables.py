"""Where switches send what: their linear forwarding tables. The ways by them are in `cwdp.shared.ib.routes`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cwdp.ib.attributes import (
    LIDS_A_BLOCK,
    NO_ROUTE,
    ask_forwarding,
    ask_switch,
    read_forwarding,
    read_linear_top,
)
from cwdp.ib.sweep import Asks, End, Fabric, Node
from cwdp.shared.ib.names import node_names, port_name

MOST_LIDS = 0xC000
"""Unicast (IBTA 4.1.3)."""


@dataclass(frozen=True)
class Tables:
    """The tables of all switches.

    Attributes:
        row: the place of each switch in `ports`, by its GUID.
        ports: the port by which each sends packets to each LID, `NO_ROUTE` for none, shape (switches, LIDs).
    """

    row: Mapping[int, int]
    ports: NDArray[np.uint8]


def read_tables(asker: Asks, fabric: Fabric) -> Tables:
    """Ask all switches for their tables; a block that does not come has no routes.

    Raises:
        RdmaError: the port cannot send or receive.
    """
    switches = sorted((node for node in fabric.nodes.values() if node.is_switch), key=lambda node: node.guid)
    tops = [
        min(read_linear_top(data) if data is not None else 0, MOST_LIDS - 1)
        for data in asker.ask([ask_switch(node.path) for node in switches])
    ]
    lids = LIDS_A_BLOCK * (1 + max(tops, default=0) // LIDS_A_BLOCK)
    ports = np.full((len(switches), lids), NO_ROUTE, np.uint8)
    blocks = [(row, block) for row, top in enumerate(tops) for block in range(1 + top // LIDS_A_BLOCK) if top]
    told = asker.ask([ask_forwarding(switches[row].path, block) for row, block in blocks])
    for (row, block), data in zip(blocks, told, strict=True):
        if data is not None:
            ports[row, block * LIDS_A_BLOCK : (block + 1) * LIDS_A_BLOCK] = read_forwarding(data)
    return Tables({node.guid: i for i, node in enumerate(switches)}, ports)


def named(nodes: Mapping[int, Node], ends: Sequence[End]) -> list[str]:
    """Ports as people read them: `SWITCH:PORT` or `HOST/DEVICE`; `nodes` are all of the subnet."""
    every = [nodes[guid] for guid in sorted(nodes)]
    names = node_names((node.name, node.guid, node.kind) for node in every)
    name_of = {node.guid: name for node, name in zip(every, names, strict=True)}
    return [port_name(name_of[end.guid], end.port, nodes[end.guid].kind) for end in ends]
