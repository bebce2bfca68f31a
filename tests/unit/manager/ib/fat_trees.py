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


Wire = tuple[tuple[int, int], tuple[int, int]]
SPINE, LEAF, HOST = 0x1000, 0x2000, 0x10_000
"""The first GUIDs."""


def fat_tree(shape: Shape, first_lid: int = 1) -> Subnet:
    """A tree: LIDs of adapters from the first on, spread over uplinks by their number."""
    place = _places(shape)
    names = {SPINE + i: f"s{i}" for i in range(shape.spines)} | {
        LEAF + i: f"l{i}" for i in range(shape.leaves)
    }
    for guid in place:
        host, adapter = divmod(guid - HOST, 16)
        names[guid] = f"h{host} mlx5_{adapter}" if shape.adapters > 1 else f"h{host}"
    guids = sorted(names)
    wires = [*_above(shape), *(((guid, 1), end) for guid, end in place.items())]
    ends = sorted({end for wire in wires for end in wire} | {(guid, 0) for guid in guids if guid < HOST})
    row = {end: i for i, end in enumerate(ends)}
    ports = np.zeros(len(ends), PORT)
    ports["node"], ports["number"] = [guids.index(guid) for guid, _ in ends], [number for _, number in ends]
    ports["peer"], ports["state"], ports["is_linked"] = NO_PEER, 4, ports["number"] > 0
    ports["width"], ports["widest"], ports["lane_bps"], ports["fastest_bps"] = 4, 4, LANE_BPS, LANE_BPS
    for a, b in wires:
        ports["peer"][row[a]], ports["peer"][row[b]] = row[b], row[a]
    lids = {guid: first_lid + i for i, guid in enumerate(sorted(place))}
    for guid, lid in lids.items():
        ports["lid"][row[guid, 1]] = lid
    kinds = np.array([CHANNEL_ADAPTER if guid in place else SWITCH for guid in guids], np.uint8)
    return Subnet(
        np.array(guids, np.uint64), tuple(names[g] for g in guids), kinds, ports, _tables(shape, place, lids)
    )


def _places(shape: Shape) -> dict[int, tuple[int, int]]:
    """The leaf and its port that each adapter is linked to, by GUIDs."""
    used = dict.fromkeys(range(shape.leaves), 0)
    place = {}
    for host in range(shape.leaves * shape.hosts):
        for adapter in range(shape.adapters):
            leaf = (host // shape.hosts + adapter) % shape.leaves
            used[leaf] += 1
            place[HOST + 16 * host + adapter] = LEAF + leaf, used[leaf]
    return place


def _above(shape: Shape) -> Iterator[Wire]:
    """Links between leaves and spines."""
    down = shape.hosts * shape.adapters
    for leaf in range(shape.leaves):
        for spine in range(shape.spines):
            for k in range(shape.parallel):
                up, to = down + 1 + spine * shape.parallel + k, 1 + leaf * shape.parallel + k
                yield (LEAF + leaf, up), (SPINE + spine, to)


def _tables(shape: Shape, place: dict[int, tuple[int, int]], lids: dict[int, int]) -> NDArray[np.uint8]:
    """Spines first, as their GUIDs are lower."""
    tables = np.full((shape.spines + shape.leaves, max(lids.values()) + 1), NO_ROUTE, np.uint8)
    for guid, lid in lids.items():
        leaf, number = place[guid]
        up = shape.hosts * shape.adapters + 1 + lid % (shape.spines * shape.parallel)
        tables[shape.spines :, lid] = up
        tables[shape.spines + leaf - LEAF, lid] = number
        tables[: shape.spines, lid] = 1 + (leaf - LEAF) * shape.parallel + lid % shape.parallel
    return tables


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
