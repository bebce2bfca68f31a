"""Two hosts on one link, each a network namespace with the dataplane on its end of a veth."""

import socket
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from ipaddress import IPv4Address

import numpy as np
from numpy.typing import NDArray
from pyroute2 import IPRoute

from cwdp.dataplane.abi import ROCE_PORT, Direction
from cwdp.dataplane.loading import loader
from cwdp.dataplane.pinned import tree
from cwdp.dataplane.pinned.maps import Maps
from cwdp.shared.slices import SliceSet
from cwdp.slices.slicing import Slicing
from tools.lab import process
from tools.lab.network import netns

NIC = "roce0"
MTU = 9000
ETHERNET_BYTES = 14
QUEUE_S = 0.25
MIN_QUEUE_BYTES = 64 * 1024
ADDRESSES = {"a": IPv4Address("10.77.0.1"), "b": IPv4Address("10.77.0.2")}
MACS = {"a": "02:00:00:77:00:01", "b": "02:00:00:77:00:02"}


@dataclass
class Pair:
    """Host a sends, host b receives. Made by `pair`.

    Attributes:
        maps: of each host's dataplane.
        slicing: of host a.
    """

    prefix: str
    maps: dict[str, Maps]
    slicing: Slicing

    def apply(self, wanted: SliceSet) -> None:
        """Have these slices on host a."""
        with netns.netns_enter(self.prefix + "a"), tree.locked():
            self.slicing.apply(wanted)

    def delete(self) -> None:
        """Have no slices on host a."""
        with netns.netns_enter(self.prefix + "a"), tree.locked():
            self.slicing.delete()

    @contextmanager
    def flood(
        self, qpn: int, frame_bytes: int, *, dscp: int = 0, interval_s: float = 0.0, rate_bps: int = 0
    ) -> Iterator[None]:
        """Frames from a to b for a while, with pauses, or as fast as they go: with a queue of `QUEUE_S` at a rate."""
        queue_bytes = max(round(rate_bps / 8 * QUEUE_S), MIN_QUEUE_BYTES)
        given = (ADDRESSES["b"], qpn, frame_bytes, dscp, interval_s, queue_bytes)
        sender = process.start(
            self.prefix + "a", [sys.executable, "-m", "tools.experiments.slices.flood", *map(str, given)]
        )
        try:
            yield
        finally:
            sender.kill()
            sender.wait()

    def received(self) -> dict[int, tuple[int, int]]:
        """Packets and bytes (of Ethernet frames without FCS) that have arrived at host b, by destination QPN."""
        return totals(self.maps["b"].qps[Direction.INGRESS])


def totals(table: NDArray[np.void]) -> dict[int, tuple[int, int]]:
    """Packets and bytes of Ethernet frames by QPN, of a table of dtype `abi.QP`; a QPN may have several places."""
    found: dict[int, tuple[int, int]] = {}
    for row in table[table["tag"] != 0]:
        packets, frame_bytes = found.get(int(row["key"]["qpn"]), (0, 0))
        packets += int(row["packets"])
        frame_bytes += int(row["bytes"] + ETHERNET_BYTES * row["packets"])
        found[int(row["key"]["qpn"])] = packets, frame_bytes
    return found


@contextmanager
def pair(prefix: str) -> Iterator[Pair]:
    """Two hosts for a while; their namespaces are the prefix and a, and b."""
    with ExitStack() as stack:
        for host in ADDRESSES:
            netns.create(prefix + host, "cwdp bench")
            stack.callback(netns.remove, prefix + host)
        _join(prefix)
        maps = {host: stack.enter_context(_loaded(prefix + host)) for host in ADDRESSES}
        ip = stack.enter_context(netns.open_netlink(prefix + "a"))
        with netns.netns_enter(prefix + "a"):
            slicing = Slicing(maps["a"], ip, NIC)
        stack.enter_context(_sink(prefix + "b"))
        yield Pair(prefix, maps, slicing)


def _join(prefix: str) -> None:
    with netns.netns_enter(prefix + "a"), IPRoute() as ip:
        peer = {
            "ifname": NIC,
            "address": MACS["b"],
            "mtu": MTU,
            "net_ns_fd": str(netns.RUN_DIR / (prefix + "b")),
        }
        ip.link("add", ifname=NIC, kind="veth", address=MACS["a"], mtu=MTU, peer=peer)
    for host, other in (("a", "b"), ("b", "a")):
        with netns.open_netlink(prefix + host) as ip:
            index = ip.link_lookup(ifname=NIC)[0]
            ip.link("set", index=index, state="up")
            ip.addr("add", index=index, address=str(ADDRESSES[host]), prefixlen=24)
            ip.neigh("add", dst=str(ADDRESSES[other]), lladdr=MACS[other], ifindex=index, state=0x80)


def _sink(namespace: str) -> socket.socket:
    """A socket that takes what arrives and never reads it, so that nobody is told of a closed port."""
    with netns.netns_enter(namespace):
        opened = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    opened.bind((str(ADDRESSES["b"]), ROCE_PORT))
    return opened


@contextmanager
def _loaded(namespace: str) -> Iterator[Maps]:
    with netns.netns_enter(namespace):
        loader.load(NIC)
        maps = Maps(tree.here(NIC))
    try:
        yield maps
    finally:
        maps.close()
        with netns.netns_enter(namespace):
            loader.unload(NIC)
