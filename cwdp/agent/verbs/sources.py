"""What queue pairs of this host are sent from, GIDs of RoCE v2 and LIDs of InfiniBand; and what the kernel counts of that.

That is what a device has sent, and what a queue pair has where somebody has bound a counter to it (`rdma statistic qp`).
"""

import asyncio
import time
from collections.abc import Callable, Collection
from ipaddress import IPv6Address
from pathlib import Path
from typing import NamedTuple

from cwdp.agent.verbs.orders import VerbsSource
from cwdp.errors import RdmaError
from cwdp.rdma import netlink, sysfs
from cwdp.rdma.netlink import BoundCounter
from cwdp.rdma.port import ROCE_V2
from cwdp.rdma.sysfs import SYSFS
from cwdp.shared.ib.names import nic_name

MOST = 4_096
NET = Path("/sys/class/net")
INFINIBAND = "InfiniBand"
PORT_WORD_BYTES = 4
"""What port_xmit_data counts in (IBTA 16.1.3.5)."""

BOUND_SENT = "rdma_tx_bytes"
"""The only one of bytes that leave: of mlx5 from Linux 6.15 on, an optional counter."""

LOOK_S, LOOK_SHARE = 1.0, 20
"""Between two looks where there are such counters; a twentieth of the time at most."""

SELDOM_S = 30.0
"""Where there are none."""


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


def lid_sources(root: Path = SYSFS) -> list[VerbsSource]:
    """Every port of InfiniBand that has a LID."""
    found = []
    for port in sysfs.ports(root):
        lids = sysfs.port_lids(port.device, port.port, root) if port.link_layer == INFINIBAND else None
        gid = sysfs.gid(port.device, port.port, 0, root)
        if lids is not None and gid is not None:
            name = nic_name(port.device, port.port)
            found.append(VerbsSource(name, port.device, port.port, 0, gid.gid, *lids))
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


class BoundCounts:
    """What the kernel last said.

    Args:
        read: the counters of all devices.
    """

    def __init__(self, read: Callable[[], list[BoundCounter]] = netlink.bound_counters) -> None:
        self._read = read
        self._sent: dict[tuple[str, int], int] = {}

    def of(self, device: str, lqpn: int) -> int | None:
        """Bytes that a queue pair has sent, in equal parts where several have one counter; None where it has none."""
        return self._sent.get((device, lqpn))

    async def follow(self, is_needed: Callable[[], bool]) -> None:
        """Read them now and then, for ever."""
        while True:
            began_s = time.monotonic()
            if is_needed():
                await self.look()
            took_s = time.monotonic() - began_s
            await asyncio.sleep(max(LOOK_S if self._sent else SELDOM_S, LOOK_SHARE * took_s))

    async def look(self) -> None:
        """Read them, in a thread."""
        try:
            found = await asyncio.to_thread(self._read)
        except (RdmaError, OSError):
            found = []
        self._sent = {
            (counter.device, lqpn): counter.values[BOUND_SENT] // len(counter.lqpns)
            for counter in found
            if BOUND_SENT in counter.values
            for lqpn in counter.lqpns
        }


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None
