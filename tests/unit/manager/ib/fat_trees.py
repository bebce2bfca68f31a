"""Subnets that never were: fat trees as arrays, what their counters do when they are well, and what goes wrong on them."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from cwdp.shared.ib.counters import NAMES, WORD_BYTES, Growth
from cwdp.shared.ib.subnet import CHANNEL_ADAPTER, NO_PEER, NO_ROUTE, PORT, SWITCH, Subnet

LANE_BPS = 25_000_000_000
RATE_BPS = 4 * LANE_BPS
TICKS_PER_S = LANE_BPS / 64
"""Of a port that waits all the time, by ticks of eight bytes on a lane."""


@dataclass(frozen=True)
class Shape:
    """Leaves below spines; `parallel` links between each two; `adapters` of a host, each to the next leaf."""

    leaves: int = 4
    spines: int = 3
    hosts: int = 4
    parallel: int = 1
    adapters: int = 1


def fat_tree(shape: Shape, first_lid: int = 1) -> Subnet:
    """A tree: LIDs of adapters from the first on, spread over uplinks by their number."""
    names: dict[int, str] = {}
    wires: list[tuple[tuple[int, int], tuple[int, int]]] = []
    down = shape.hosts * shape.adapters
    spine_guids = [0x1000 + i for i in range(shape.spines)]
    leaf_guids = [0x2000 + i for i in range(shape.leaves)]
    names |= {guid: f"s{i}" for i, guid in enumerate(spine_guids)}
    names |= {guid: f"l{i}" for i, guid in enumerate(leaf_guids)}
    for leaf, here in enumerate(leaf_guids):
        for spine, there in enumerate(spine_guids):
            for k in range(shape.parallel):
                up, to = down + 1 + spine * shape.parallel + k, 1 + leaf * shape.parallel + k
                wires.append(((here, up), (there, to)))
    place: dict[int, tuple[int, int]] = {}
    used = dict.fromkeys(leaf_guids, 0)
    for host in range(shape.leaves * shape.hosts):
        for adapter in range(shape.adapters):
            guid = 0x10_000 + host * 16 + adapter
            leaf_guid = leaf_guids[(host // shape.hosts + adapter) % shape.leaves]
            used[leaf_guid] += 1
            names[guid] = f"h{host} mlx5_{adapter}" if shape.adapters > 1 else f"h{host}"
            wires.append(((guid, 1), (leaf_guid, used[leaf_guid])))
            place[guid] = leaf_guid, used[leaf_guid]
    guids = sorted(names)
    ends = sorted({end for wire in wires for end in wire} | {(g, 0) for g in spine_guids + leaf_guids})
    row = {end: i for i, end in enumerate(ends)}
    of_node = {guid: i for i, guid in enumerate(guids)}
    ports = np.zeros(len(ends), PORT)
    ports["node"], ports["number"] = [of_node[g] for g, _ in ends], [n for _, n in ends]
    ports["peer"], ports["state"], ports["is_linked"] = NO_PEER, 4, ports["number"] > 0
    ports["width"], ports["widest"], ports["lane_bps"], ports["fastest_bps"] = 4, 4, LANE_BPS, LANE_BPS
    for a, b in wires:
        ports["peer"][row[a]], ports["peer"][row[b]] = row[b], row[a]
    lids = {guid: first_lid + i for i, guid in enumerate(sorted(place))}
    for guid, lid in lids.items():
        ports["lid"][row[guid, 1]] = lid
    tables = np.full((len(names) - len(place), first_lid + len(place)), NO_ROUTE, np.uint8)
    switch = {guid: i for i, guid in enumerate(sorted(spine_guids + leaf_guids))}
    for guid, lid in lids.items():
        leaf_guid, number = place[guid]
        up = lid % (shape.spines * shape.parallel)
        for other in leaf_guids:
            tables[switch[other], lid] = number if other == leaf_guid else down + 1 + up
        for other in spine_guids:
            leaf = leaf_guids.index(leaf_guid)
            tables[switch[other], lid] = 1 + leaf * shape.parallel + lid % shape.parallel
    kinds = np.array([CHANNEL_ADAPTER if guid in place else SWITCH for guid in guids], np.uint8)
    return Subnet(np.array(guids, np.uint64), tuple(names[g] for g in guids), kinds, ports, tables)


def without(subnet: Subnet, links: list[tuple[int, int]], nodes: tuple[int, ...] = ()) -> Subnet:
    """A subnet in which links, by the rows of their ports, are down, and nodes do not answer."""
    ports = subnet.ports.copy()
    for row in (row for link in links for row in link):
        ports["peer"][row], ports["state"][row], ports["is_linked"][row] = NO_PEER, 1, False
    return kept(replace(subnet, ports=ports), ~np.isin(np.arange(len(subnet.guids)), nodes))


def kept(subnet: Subnet, nodes: NDArray[np.bool_]) -> Subnet:
    """Only some nodes, with all their ports."""
    rows = nodes[subnet.ports["node"]]
    new_node, new_row = np.cumsum(nodes) - 1, np.cumsum(rows) - 1
    ports = subnet.ports[rows].copy()
    ports["node"] = new_node[ports["node"]]
    far = ports["peer"]
    ports["peer"] = np.where((far != NO_PEER) & rows[far], new_row[far], NO_PEER)
    return Subnet(
        subnet.guids[nodes],
        tuple(name for name, is_kept in zip(subnet.names, nodes.tolist(), strict=True) if is_kept),
        subnet.kinds[nodes],
        ports,
        subnet.tables[nodes[subnet.switches]],
    )


def links_of(subnet: Subnet, node: int) -> list[tuple[int, int]]:
    """The links of a node by the rows of their ports, its own first."""
    rows = np.flatnonzero((subnet.ports["node"] == node) & (subnet.ports["peer"] != NO_PEER)).tolist()
    return [(row, int(subnet.ports["peer"][row])) for row in rows]


@dataclass
class Traffic:
    """Counters of a subnet that is well: bursts of data, a few waits, a symbol error now and then."""

    draw: np.random.Generator
    per_s: dict[tuple[int, str], float] = field(default_factory=dict)

    def growth(self, subnet: Subnet) -> Growth:
        """Of a second; what is in `per_s`, by row and counter, is added."""
        count = len(subnet.ports)
        grown = np.zeros((count, len(NAMES)))
        linked = subnet.ports["peer"] != NO_PEER
        load = np.where(self.draw.random(count) < 0.02, 1.0, self.draw.random(count) * 0.8) * linked
        words = load * RATE_BPS / 8 / WORD_BYTES
        far = np.where(linked, subnet.ports["peer"], 0)
        columns = [NAMES.index(name) for name in ("sent_words", "received_words")]
        grown[:, columns[0]], grown[:, columns[1]] = words, np.where(linked, words[far], 0)
        waits = self.draw.random(count) ** 8 * 0.05 + (self.draw.random(count) < 0.002) * 0.3
        grown[:, NAMES.index("send_wait")] = waits * TICKS_PER_S * linked
        for name, share in (
            ("symbol_errors", 2e-4),
            ("receive_errors", 5e-5),
            ("remote_physical_errors", 5e-5),
        ):
            grown[:, NAMES.index(name)] = (self.draw.random(count) < share) * linked
        for (row, name), value in self.per_s.items():
            grown[row, NAMES.index(name)] += value
        return Growth(grown, np.zeros_like(grown, bool))


def way(subnet: Subnet, src: int, dst: int) -> Iterator[int]:
    """Rows of the ports that packets of one adapter's port to another's leave by."""
    ports, lid = subnet.ports, int(subnet.ports["lid"][dst])
    table = {node: i for i, node in enumerate(subnet.switches.tolist())}
    row = {(int(p["node"]), int(p["number"])): i for i, p in enumerate(ports)}
    here = src
    while True:
        yield here
        there = int(ports["peer"][here])
        if there == dst:
            return
        node = int(ports["node"][there])
        here = row[node, int(subnet.tables[table[node], lid])]
