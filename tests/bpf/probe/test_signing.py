"""Who is signed for: the agent's own sockets. A mark can be set by whoever has CAP_NET_RAW, as containers often do."""

import socket
import subprocess
from collections.abc import Iterator

import numpy as np
import pytest
import roce
from machine import TC_ACT_UNSPEC, Machine
from numpy.typing import NDArray
from probes import KEY_ID, SOURCES, Probe, request, signed
from scapy.layers.inet import IP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Ether
from wire import Wire

from cwdp.agent.probing import packets
from cwdp.agent.probing.sender import BatchSender
from cwdp.dataplane import abi
from cwdp.dataplane.abi import Reason, Sender, SlotState
from cwdp.dataplane.steering.steering import Steer

pytestmark = pytest.mark.kernel

SEQ = 77
FAMILIES = pytest.mark.parametrize("ip_version", [4, 6], ids=["IPv4", "IPv6"])

FORGE = """
import socket, sys
mark, packet, destination = int(sys.argv[1]), bytes.fromhex(sys.argv[2]), sys.argv[3]
family = socket.AF_INET6 if ":" in destination else socket.AF_INET
with socket.socket(family, socket.SOCK_RAW, socket.IPPROTO_RAW) as forger:
    forger.setsockopt(socket.SOL_SOCKET, socket.SO_MARK, mark)
    forger.sendto(packet, (destination, 0))
"""
ONLY_NET_RAW = [
    "setpriv",
    "--reuid=65534",
    "--regid=65534",
    "--clear-groups",
    "--bounding-set=-all,+net_raw",
    "--inh-caps=-all,+net_raw",
    "--ambient-caps=-all,+net_raw",
]


@pytest.fixture
def wire(dataplane: Machine) -> Iterator[Wire]:
    """A wire, with a way to where probes go."""
    made = Wire(dataplane)
    made.give_route(*SOURCES[4])
    made.give_route(*SOURCES[6])
    try:
        yield made
    finally:
        made.close()


def test_a_socket_that_is_not_the_agents(dataplane: Machine) -> None:
    packet = request(seq=SEQ)
    run = dataplane.leave(packet, mark=abi.MARK)
    assert (run.verdict, run.packet) == (TC_ACT_UNSPEC, bytes(packet))
    assert run.counted == {Reason.PROBE_NOT_OURS: 1}
    assert not dataplane.maps.slots["tag"].any()


def test_the_mark_on_somebodys_data_changes_nothing_else(dataplane: Machine) -> None:
    """It is steered as without."""
    packet = roce.data()
    dataplane.steer(packet, Steer(60_001))
    assert dataplane.leave(packet, mark=abi.MARK).packet == roce.steered(packet, 60_001)


@FAMILIES
def test_cap_net_raw_is_not_enough(dataplane: Machine, wire: Wire, ip_version: int) -> None:
    """A process that has this capability alone, as root in a container, sends a request with the mark."""
    template = request(ip_version, seq=SEQ)
    datagram = bytes(template[IP] if ip_version == 4 else template[IPv6])
    before = dataplane.maps.counters()
    command = ["/usr/bin/python3", "-I", "-c", FORGE, str(abi.MARK), datagram.hex(), SOURCES[ip_version][1]]
    with dataplane.namespace.entered():
        subprocess.run([*ONLY_NET_RAW, *command], check=True, cwd="/")
    probe = Ether(wire.received())[Probe]
    after = dataplane.maps.counters()
    assert (probe.seq, probe.t1, probe.mac) == (SEQ, 0, 0)
    assert not dataplane.maps.slots["tag"].any()
    assert after["probe_sent"] == before["probe_sent"]
    assert after["probe_not_ours"] == before["probe_not_ours"] + 1


@pytest.mark.parametrize("sender", list(Sender))
def test_the_agents_sockets_are_signed_for(dataplane: Machine, wire: Wire, sender: Sender) -> None:
    """Until another one takes its place."""
    ip_version = 6 if sender.name.endswith("IPV6") else 4
    first, second = (_batch_sender(dataplane, ip_version) for _ in range(2))
    dataplane.maps.sign_for(sender, first.cookie)
    assert_signed(wire, dataplane, first)
    dataplane.maps.sign_for(sender, second.cookie)
    assert_signed(wire, dataplane, second)
    assert first.send(0, 1) == (1, 0)
    assert Ether(wire.received())[Probe].mac == 0
    for each in (first, second):
        each.close()


def assert_signed(wire: Wire, dataplane: Machine, sender: BatchSender) -> None:
    assert sender.send(0, 1) == (1, 0)
    got = Ether(wire.received())
    assert got[Probe].mac == signed(got, got[Probe].t1)[Probe].mac != 0
    assert dataplane.state(SEQ) == (SEQ, SlotState.SENT)


def _batch_sender(dataplane: Machine, ip_version: int) -> BatchSender:
    source, destination = SOURCES[ip_version]
    path = packets.Path(0, source, destination, 50_001, 50_002)
    templates: NDArray[np.void] = packets.requests([path], KEY_ID, abi.ROCE_PORT)
    templates["packet"]["probe"]["seq"] = SEQ
    family = socket.AF_INET6 if ip_version == 6 else socket.AF_INET
    with dataplane.namespace.entered():
        return BatchSender("roce0", family, templates)
