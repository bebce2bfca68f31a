"""Subnets for tests of the manager's part, as a reader would tell them."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from cwdp.shared.ib.names import Names
from cwdp.shared.ib.subnet import CHANNEL_ADAPTER, NO_PEER, NO_ROUTE, PORT, SWITCH, Subnet

LANE_BPS, LANES = 25_000_000_000, 4
SPINES_FROM, LEAVES_FROM, HOSTS_FROM = 0x1000, 0x2000, 0x3000


def clos(
    *, leaves: int = 4, spines: int = 4, hosts: int = 4, lmc: int = 2, names: Mapping[str, str] | None = None
) -> Subnet:
    """Leaves that are each joined to all spines; LID `base + i` of a host goes by spine `(base + i) % spines`.

    Args:
        leaves: how many.
        spines: how many.
        hosts: of each leaf.
        lmc: of each host.
        names: other descriptions, by those that nodes would have.
    """
    guids = [
        *(SPINES_FROM + i for i in range(spines)),
        *(LEAVES_FROM + i for i in range(leaves)),
        *(HOSTS_FROM + i for i in range(leaves * hosts)),
    ]
    plain = [
        *(f"s{i}" for i in range(spines)),
        *(f"l{i}" for i in range(leaves)),
        *(f"h{i} mlx5_0" for i in range(leaves * hosts)),
    ]
    counts = [*[leaves] * spines, *[hosts + spines] * leaves, *[1] * (leaves * hosts)]
    kinds = [SWITCH] * (spines + leaves) + [CHANNEL_ADAPTER] * (leaves * hosts)
    rows = {}
    ports = []
    for node, (count, kind) in enumerate(zip(counts, kinds, strict=True)):
        for number in range(0 if kind == SWITCH else 1, count + 1):
            rows[node, number] = len(ports)
            lid = node + 1 if kind == SWITCH and number == 0 else 0
            own = 64 + (node - spines - leaves << lmc) if kind != SWITCH else lid
            is_linked = number > 0
            ports.append(
                (
                    node,
                    number,
                    own,
                    lmc if kind != SWITCH else 0,
                    1,
                    4,
                    is_linked,
                    LANES,
                    LANES,
                    LANE_BPS,
                    LANE_BPS,
                    NO_PEER,
                )
            )
    table = np.array(ports, PORT)
    for leaf in range(leaves):
        node = spines + leaf
        for spine in range(spines):
            _wire(table, rows[node, hosts + 1 + spine], rows[spine, leaf + 1])
        for host in range(hosts):
            _wire(table, rows[node, host + 1], rows[spines + leaves + leaf * hosts + host, 1])
    lids = 64 + (leaves * hosts << lmc)
    tables = np.full((spines + leaves, -(-lids // 64) * 64), NO_ROUTE, np.uint8)
    for number in range(leaves * hosts):
        leaf, place = divmod(number, hosts)
        for lid in range(64 + (number << lmc), 64 + ((number + 1) << lmc)):
            tables[:spines, lid] = leaf + 1
            tables[spines:, lid] = hosts + 1 + lid % spines
            tables[spines + leaf, lid] = place + 1
    return Subnet(
        np.array(guids, np.uint64),
        tuple((names or {}).get(name, name) for name in plain),
        np.array(kinds, np.uint8),
        table,
        tables,
        (),
        (LEAVES_FROM, ""),
        np.array([guids[node] + number for node, number in rows], np.uint64),
    )


def _wire(table: np.ndarray[tuple[int], np.dtype[np.void]], a: int, b: int) -> None:
    table["peer"][a], table["peer"][b] = b, a


def cut(subnet: Subnet, *rows: int) -> Subnet:
    """Without the links of some ports."""
    ports = subnet.ports.copy()
    for row in rows:
        ports["peer"][ports["peer"][row]] = NO_PEER
        ports["peer"][row] = NO_PEER
    return replace(subnet, ports=ports)


def port(subnet: Subnet, node: str, number: int) -> int:
    """The row of a port by the description of its node."""
    of = subnet.names.index(node)
    (row,) = np.flatnonzero((subnet.ports["node"] == of) & (subnet.ports["number"] == number))
    return int(row)


def named(subnet: Subnet, rows: Sequence[int]) -> list[str]:
    """Ports for people."""
    return [Names(subnet).ports[row] for row in rows]
