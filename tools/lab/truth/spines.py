"""Which spine each source port leads over, found out by sending packets and reading the switches' counters."""

import socket
import time
from collections.abc import Sequence
from ipaddress import IPv4Address

from cwdp.dataplane.abi import ROCE_PORT
from cwdp.errors import LabError
from tools.lab.lab import Host, Lab
from tools.lab.network import fabric
from tools.lab.network.fabric import Node
from tools.lab.network.netns import netns_enter
from tools.waiting import wait_for

AT_ONCE = 4
UNITS = (48, 64, 128, 256, 512, 1024)
"""Packets that the first port of a try sends; half as many of others' may pass each spine meanwhile."""

LISTEN_S, DRAIN_S, SETTLE_S = 0.3, 2.0, 0.05


def spines_by_port(lab: Lab, source: Host, target: Host, ports: Sequence[int]) -> dict[int, str]:
    """The spine that packets to RoCEv2's port take, for each source port; over IPv4, between different leaves.

    A few at a time: port k of them sends a unit of packets 2^k times, so that one reading of the counters tells them
    apart. What others send is taken off; what came out is believed when it comes out again, of more and more packets.

    Args:
        lab: a lab that is up, and at most probed.
        source: the host that sends, from its first NIC.
        target: the host that is sent to, at its first NIC.
        ports: UDP source ports.

    Raises:
        LabError: it never did.
    """
    found: dict[int, str] = {}
    for start in range(0, len(ports), AT_ONCE):
        found |= _of_few(lab, source, target, ports[start : start + AT_ONCE])
    return found


def _of_few(lab: Lab, source: Host, target: Host, ports: Sequence[int]) -> dict[int, str]:
    leaf = source.nics[0].leaf
    with fabric.open_nodes(lab.topology, [leaf]) as nodes:
        others_per_s = _rates(lab, nodes[leaf])
        before = None
        for unit in UNITS:
            already, began_s = _sent(lab, nodes[leaf]), time.monotonic()
            for order, port in enumerate(ports):
                _send(source, target.nics[0].ipv4, port, unit * 2**order)
            sent = _sent_in_the_end(lab, nodes[leaf], sum(already.values()) + unit * (2 ** len(ports) - 1))
            took_s = time.monotonic() - began_s
            own = {spine: sent[spine] - already[spine] - others_per_s[spine] * took_s for spine in sent}
            now = _told_apart({spine: round(count / unit) for spine, count in own.items()}, ports)
            if now is not None and now == before:
                return now
            before = now
    raise LabError("too much else is sent to tell which spine a port leads over", "ask while the lab is idle")


def _rates(lab: Lab, leaf: Node) -> dict[str, float]:
    """Packets a second that a leaf sends to each spine by itself."""
    before, began_s = _sent(lab, leaf), time.monotonic()
    time.sleep(LISTEN_S)
    now, took_s = _sent(lab, leaf), time.monotonic() - began_s
    return {spine: (now[spine] - before[spine]) / took_s for spine in now}


def _told_apart(units: dict[str, int], ports: Sequence[int]) -> dict[int, str] | None:
    """Which spine each port leads over, by how many units each spine was sent; None where that does not come out even."""
    found = {port: spine for order, port in enumerate(ports) for spine in units if units[spine] >> order & 1}
    is_even = len(found) == len(ports) and sum(units.values()) == 2 ** len(ports) - 1
    return found if is_even else None


def _sent(lab: Lab, leaf: Node) -> dict[str, int]:
    """Packets that a leaf has sent to each spine."""
    packets = {
        link.get_attr("IFLA_IFNAME"): link.get_attr("IFLA_STATS64")["tx_packets"]
        for link in leaf.ip.get_links()
    }
    return {spine: packets[spine] for spine in lab.topology.above[leaf.name]}


def _sent_in_the_end(lab: Lab, leaf: Node, total: int) -> dict[str, int]:
    """The same, a while after there are so many in all: packets wait in queues. After DRAIN_S, some have been lost."""
    wait_for(lambda: sum(_sent(lab, leaf).values()) >= total, DRAIN_S, poll_s=0.005)
    time.sleep(SETTLE_S)
    return _sent(lab, leaf)


def _send(source: Host, target: IPv4Address, port: int, count: int) -> None:
    with netns_enter(source.netns), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as out:
        out.bind((str(source.nics[0].ipv4), port))
        for _ in range(count):
            out.sendto(bytes(64), (str(target), ROCE_PORT))
