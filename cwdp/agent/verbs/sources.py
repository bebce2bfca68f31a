"""What queue pairs of this host are sent from: the RoCE v2 GIDs of its NICs' RDMA devices, and what the devices have sent."""

from collections.abc import Collection
from ipaddress import IPv6Address
from pathlib import Path
from typing import NamedTuple

from cwdp.agent.verbs.orders import VerbsSource
from cwdp.rdma import sysfs
from cwdp.rdma.port import ROCE_V2
from cwdp.rdma.sysfs import SYSFS

MOST = 4_096
NET = Path("/sys/class/net")
PORT_WORD_BYTES = 4
"""What port_xmit_data counts in (IBTA 16.1.3.5)."""


class Sent(NamedTuple):
    """What a NIC has sent since its device came up."""

    packets: int
    bytes: int


def sources(nics: Collection[str], root: Path = SYSFS) -> list[VerbsSource]:
    """Every RoCE v2 GID of an address of these NICs, by device, port and index."""
    found = []
    for port in sysfs.ports(root):
        for gid in sysfs.port_gids(port.device, port.port, root):
            if gid.netdev in nics and gid.type == ROCE_V2 and not IPv6Address(gid.gid).is_link_local:
                assert gid.netdev is not None
                found.append(VerbsSource(gid.netdev, gid.device, gid.port, gid.index, gid.gid))
    return found[:MOST]


def sent(nic: str, device: str, port: int, root: Path = SYSFS, net: Path = NET) -> Sent | None:
    """What a NIC has sent: by its device's counters, or where that has none by the interface's; None where neither tells."""
    counters = root / device / "ports" / str(port) / "counters"
    words, packets = _number(counters / "port_xmit_data"), _number(counters / "port_xmit_packets")
    if words is not None and packets is not None:
        return Sent(packets, words * PORT_WORD_BYTES)
    statistics = net / nic / "statistics"
    octets, packets = _number(statistics / "tx_bytes"), _number(statistics / "tx_packets")
    return None if octets is None or packets is None else Sent(packets, octets)


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None
