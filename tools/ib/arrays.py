"""A subnet that no simulator runs, as arrays, and the counters of its traffic. Pure."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from cwdp.shared.ib.counters import NAMES, WAIT, WORD_BYTES, Growth
from cwdp.shared.ib.subnet import ACTIVE, CHANNEL_ADAPTER, NO_ROUTE, PORT, SWITCH, Subnet
from tools.ib.topology import LANE_BPS, LANES, RATE_BPS, TICKS_PER_S, Clos, Port

_SENT, _WAIT = NAMES.index("sent_words"), NAMES.index(WAIT)


def subnet_of(topology: Clos, lmc: int = 2) -> Subnet:
    """A subnet that is well: each LID of a host is reached over another spine."""
    nodes = topology.nodes()
    places = [(node, number) for node, of in nodes.items() for number in sorted(of)]
    row, place = {port: i for i, port in enumerate(places)}, {node: i for i, node in enumerate(nodes)}
    ports = np.zeros(len(places), PORT)
    ports["node"] = [place[node] for node, _ in places]
    ports["number"] = [number for _, number in places]
    ports["peer"] = [row[nodes[node][number]] for node, number in places]
    ports["state"], ports["is_linked"] = ACTIVE, True
    ports["width"] = ports["widest"] = LANES
    ports["lane_bps"] = ports["fastest_bps"] = LANE_BPS
    hosts = [node for node in nodes if node.startswith("h")]
    for i, host in enumerate(hosts):
        ports["lid"][row[host, 1]], ports["lmc"][row[host, 1]] = (i + 1) << lmc, lmc
    kinds = np.array([CHANNEL_ADAPTER if node.startswith("h") else SWITCH for node in nodes], np.uint8)
    guids = np.arange(1, len(nodes) + 1, dtype=np.uint64)
    return Subnet(guids, tuple(nodes), kinds, ports, _tables(nodes, hosts, lmc))


def _tables(nodes: dict[str, dict[int, Port]], hosts: list[str], lmc: int) -> NDArray[np.uint8]:
    switches = [node for node in nodes if not node.startswith("h")]
    to: dict[tuple[str, str], list[int]] = {}
    for node in switches:
        for number, (far, _) in sorted(nodes[node].items()):
            to.setdefault((node, far), []).append(number)
    ups = {
        node: [n for n, (far, _) in sorted(nodes[node].items()) if far.startswith("s")] for node in switches
    }
    tables = np.full((len(switches), (len(hosts) + 1) << lmc), NO_ROUTE, np.uint8)
    for i, host in enumerate(hosts):
        leaf, number = nodes[host][1]
        for lid in range((i + 1) << lmc, (i + 2) << lmc):
            for at, switch in enumerate(switches):
                ways = [number] if switch == leaf else to.get((switch, leaf)) or ups[switch]
                tables[at, lid] = ways[lid % len(ways)]
    return tables


def rows_of(subnet: Subnet, ports: Sequence[Port]) -> NDArray[np.intp]:
    """The rows of ports in a subnet by `subnet_of`, shape (ports,)."""
    names = [subnet.names[node] for node in subnet.ports["node"].tolist()]
    row = {port: i for i, port in enumerate(zip(names, subnet.ports["number"].tolist(), strict=True))}
    return np.array([row[port] for port in ports], np.intp)


def growth_of(
    subnet: Subnet, rows: NDArray[np.intp], sends: NDArray[np.float64], waits: NDArray[np.float64]
) -> Growth:
    """Counters of a second.

    Args:
        subnet: by `subnet_of`.
        rows: of the ports that the two arrays are of, shape (ports,).
        sends: the share of the second in which each sends, shape (ports,).
        waits: the share in which it waits, shape (ports,).
    """
    per_s = np.zeros((len(subnet.ports), len(NAMES)))
    per_s[rows, _SENT] = sends * RATE_BPS / 8 / WORD_BYTES
    per_s[rows, _WAIT] = waits * TICKS_PER_S
    return Growth(per_s, np.zeros(per_s.shape, bool))
