"""Which spine each source port leads over, found out by sending packets and reading the switches' counters."""

import socket
from collections.abc import Sequence
from ipaddress import IPv4Address

from cwdp.dataplane.abi import ROCE_PORT
from tools.lab import status
from tools.lab.lab import Host, Lab
from tools.lab.netns import netns_enter

AT_ONCE = 4
UNIT = 32  # packets; half as many of others' may pass meanwhile


def spines_by_port(lab: Lab, source: Host, target: Host, ports: Sequence[int]) -> dict[int, str]:
    """The spine that packets to RoCEv2's port take, for each source port; over IPv4, between different leaves.

    A few at a time: port k of them sends UNIT * 2^k packets, so that one reading of the counters tells them apart.
    Next to nothing else may be sent from below the source's leaf meanwhile.

    Args:
        lab: a lab that is up and idle.
        source: the host that sends, from its first NIC.
        target: the host that is sent to, at its first NIC.
        ports: UDP source ports.
    """
    found: dict[int, str] = {}
    for start in range(0, len(ports), AT_ONCE):
        found |= _of_few(lab, source, target, ports[start : start + AT_ONCE])
    return found


def _of_few(lab: Lab, source: Host, target: Host, ports: Sequence[int]) -> dict[int, str]:
    leaf = source.nics[0].leaf
    before = _sent(lab, leaf)
    for order, port in enumerate(ports):
        _send(source, target.nics[0].ipv4, port, UNIT * 2**order)
    after = _sent(lab, leaf)
    found: dict[int, str] = {}
    for spine, sent in after.items():
        count = (sent - before[spine] + UNIT // 2) // UNIT
        found |= {port: spine for order, port in enumerate(ports) if count >> order & 1}
    return found


def _sent(lab: Lab, leaf: str) -> dict[str, int]:
    """Packets that a leaf has sent to each spine."""
    sent = {}
    for link in status.collect(lab.name)["links"]:
        for end, other in zip(link["ends"], reversed(link["ends"]), strict=True):
            if end["node"] == leaf and other["node"] in lab.topology.spines:
                sent[other["node"]] = end["tx_packets"]
    return sent


def _send(source: Host, target: IPv4Address, port: int, count: int) -> None:
    with netns_enter(source.netns), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as out:
        out.bind((str(source.nics[0].ipv4), port))
        for _ in range(count):
            out.sendto(bytes(64), (str(target), ROCE_PORT))
