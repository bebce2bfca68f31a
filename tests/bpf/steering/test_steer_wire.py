"""Steering in buffers as real senders make them: jumbo frames in page fragments, headers outside the linear part,
checksums left to the device, several datagrams in one, pages of a file."""

import os
import socket
from collections.abc import Iterator

import pytest
import roce
from kernels import PACKETS_OF_UDP_SEGMENTS
from machine import Machine
from probes import SOURCES
from scapy.layers.inet import UDP
from scapy.layers.l2 import Ether
from wire import Shape, Wire, pseudo_header_sum, received_form

from cwdp.dataplane.steering.steering import Steer

pytestmark = pytest.mark.kernel

PORT = 60_001
LONGEST_PAYLOAD = 9_000
PAGE = 4_096
UDP_BYTES, BTH_BYTES = 8, 12
UDP_AT = roce.UDP_AT[4]
FAMILIES = pytest.mark.parametrize("ip_version", [4, 6], ids=["IPv4", "IPv6"])


@pytest.fixture
def wire(dataplane: Machine) -> Iterator[Wire]:
    """A wire whose dataplane steers the queue pair of `roce.data` over both families."""
    for ip_version in (4, 6):
        dataplane.steer(roce.data(ip_version=ip_version), Steer(PORT))
    made = Wire(dataplane)
    try:
        yield made
    finally:
        made.close()


def assert_steered(wire: Wire, frame: bytes, ip_version: int, shape: Shape | None = None) -> None:
    assert wire.carry(frame, shape) == roce.from_port(frame, ip_version, PORT)


def test_the_fast_reference_against_scapy() -> None:
    for ip_version in (4, 6):
        for payload in (0, 1, 2, 3, 1024, LONGEST_PAYLOAD):
            packet = roce.data(payload=payload, ip_version=ip_version)
            assert roce.plain(payload, ip_version) == bytes(packet)
            assert roce.from_port(bytes(packet), ip_version, PORT) == roce.steered(packet, PORT)


@FAMILIES
def test_every_length_up_to_jumbo_frames(wire: Wire, ip_version: int) -> None:
    """Those of a page and more come in fragments, with no more than the Ethernet header in the linear part."""
    for payload in range(LONGEST_PAYLOAD + 1):
        assert_steered(wire, roce.plain(payload, ip_version), ip_version)


@FAMILIES
@pytest.mark.parametrize("vlans", [0, 1, 2])
def test_headers_outside_the_linear_part(wire: Wire, vlans: int, ip_version: int) -> None:
    packet = roce.data(payload=PAGE, ip_version=ip_version, vlans=vlans)
    for linear in range(14, 120):
        assert wire.carry(bytes(packet), Shape(linear)) == received_form(roce.steered(packet, PORT)), linear


@pytest.mark.parametrize("vlans", [0, 2])
@pytest.mark.parametrize("payload", [10, 2 * PAGE])
def test_the_flow_label(wire: Wire, dataplane: Machine, payload: int, vlans: int) -> None:
    packet = roce.data(payload=payload, ip_version=6, vlans=vlans)
    dataplane.steer(packet, Steer(PORT, flow_label=True))
    assert wire.carry(bytes(packet)) == received_form(roce.steered(packet, PORT, flow_label=True))


@FAMILIES
@pytest.mark.parametrize("payload", [10, 2 * PAGE])
def test_a_checksum_in_fragments(wire: Wire, payload: int, ip_version: int) -> None:
    packet = roce.data(payload=payload, ip_version=ip_version, checksum=True)
    assert wire.carry(bytes(packet)) == roce.steered(packet, PORT)


@FAMILIES
@pytest.mark.parametrize("payload", [10, 2 * PAGE])
def test_a_checksum_left_to_the_device(wire: Wire, payload: int, ip_version: int) -> None:
    """What stands in its place, the sum of the pseudo-header, does not know the ports."""
    packet = roce.data(payload=payload, ip_version=ip_version)
    packet[UDP].chksum = pseudo_header_sum(packet)
    expected = Ether(roce.steered(roce.data(payload=payload, ip_version=ip_version), PORT))
    expected[UDP].chksum = packet[UDP].chksum
    shape = Shape(checksum_at=roce.UDP_AT[ip_version])
    assert wire.carry(bytes(packet), shape) == bytes(expected)


@pytest.mark.skipif(
    not PACKETS_OF_UDP_SEGMENTS,
    reason="this kernel's packet sockets take one datagram a buffer: Linux 6.2 takes more",
)
@FAMILIES
def test_several_datagrams_in_one_buffer(wire: Wire, dataplane: Machine, ip_version: int) -> None:
    """Are not taken apart: they leave as they came, and are counted."""
    packet = roce.data(payload=2 * PAGE, ip_version=ip_version)
    before = dataplane.maps.counters()["steer_gso"]
    shape = Shape(checksum_at=roce.UDP_AT[ip_version], gso_bytes=1024)
    assert wire.carry(bytes(packet), shape) == bytes(packet)
    assert dataplane.maps.counters()["steer_gso"] == before + 1


@pytest.mark.parametrize("payload", [16, 1024, PAGE, 2 * PAGE])
def test_pages_of_a_file(wire: Wire, payload: int) -> None:
    """sendfile puts the file's own pages into the packet: the ICRC at its end is rewritten, the file is not."""
    datagram = roce.plain(payload)[UDP_AT + UDP_BYTES :]
    bth, content = datagram[:BTH_BYTES], datagram[BTH_BYTES:]
    file = os.memfd_create("payload")
    os.write(file, content)
    with wire.udp_socket(*SOURCES[4]) as sender:
        sender.send(bth, socket.MSG_MORE)
        assert os.sendfile(sender.fileno(), file, 0, len(content)) == len(content)
        out = wire.received()
        own_port = sender.getsockname()[1]
    assert Ether(out)[UDP].sport == PORT
    assert out[UDP_AT + UDP_BYTES : -4] == datagram[:-4]
    before = roce.from_port(out, 4, own_port)
    assert xor(out[-4:], content[-4:]) == xor(roce.from_port(out, 4, PORT)[-4:], before[-4:])
    assert os.pread(file, len(content), 0) == content
    os.close(file)


def xor(a: bytes, b: bytes) -> bytes:
    return bytes(x ^ y for x, y in zip(a, b, strict=True))
