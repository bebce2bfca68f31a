"""Steered packets: another source port, with an ICRC and a UDP checksum that agree, and nothing else changed."""

from dataclasses import dataclass, field
from typing import Any

import pytest
import roce
from machine import TC_ACT_UNSPEC, Machine, Run, qp_key
from probes import SPORT, network, rebuilt
from scapy.contrib.roce import BTH
from scapy.layers.inet import IP, UDP, IPOption_NOP
from scapy.layers.inet6 import IPv6, IPv6ExtHdrDestOpt, IPv6ExtHdrFragment
from scapy.layers.l2 import Dot1Q, Ether
from scapy.packet import Packet

from cwdp.dataplane import abi
from cwdp.dataplane.abi import Direction, Reason
from cwdp.dataplane.steering.steering import Steer

pytestmark = pytest.mark.kernel

PORT = 60_001
IP_AT, UDP_AT, PSN_AT = 14, 20, 20 + 8 + 9
LONGEST_LINEAR = 3_400
"""Payload bytes; BPF_PROG_TEST_RUN makes no longer buffer for tc. test_steer_wire.py goes on from here."""

FAMILIES = pytest.mark.parametrize("ip_version", [4, 6], ids=["IPv4", "IPv6"])
CHECKSUMS = pytest.mark.parametrize("checksum", [False, True], ids=["no checksum", "checksum"])


def steer(dataplane: Machine, packet: Packet, **wanted: Any) -> None:
    """Have the packet's queue pair leave with PORT, and be known."""
    dataplane.steer(packet, Steer(PORT, **wanted))
    dataplane.leave(packet)


def assert_rewritten(run: Run, expected: bytes) -> None:
    assert (run.verdict, run.counted) == (TC_ACT_UNSPEC, {Reason.STEER_REWRITTEN: 1})
    assert run.packet == expected


@FAMILIES
@pytest.mark.parametrize("vlans", [0, 1, 2])
@CHECKSUMS
def test_every_opcode(dataplane: Machine, checksum: bool, vlans: int, ip_version: int) -> None:
    steer(dataplane, roce.data(ip_version=ip_version))
    for name in roce.OPCODES:
        packet = roce.data(name, 30, checksum=checksum, vlans=vlans, ip_version=ip_version)
        assert_rewritten(dataplane.leave(packet), roce.steered(packet, PORT))


@FAMILIES
@CHECKSUMS
def test_every_length(dataplane: Machine, checksum: bool, ip_version: int) -> None:
    """Small ones all, with every number of pad bytes, then every 61st."""
    steer(dataplane, roce.data(ip_version=ip_version))
    for payload in (*range(130), *range(130, LONGEST_LINEAR, 61)):
        packet = roce.data(payload=payload, ip_version=ip_version, checksum=checksum)
        assert packet[BTH].padcount == -payload % 4
        assert_rewritten(dataplane.leave(packet), roce.steered(packet, PORT))


@FAMILIES
def test_every_bit_of_the_port(dataplane: Machine, ip_version: int) -> None:
    packet = roce.data(ip_version=ip_version)
    steer(dataplane, packet)
    for old in (0, 1, 0xFFFF, *(PORT ^ 1 << bit for bit in range(16))):
        packet = roce.data(ip_version=ip_version, sport=old)
        assert_rewritten(dataplane.leave(packet), roce.steered(packet, PORT))


def test_lengths_and_ports_in_turn(dataplane: Machine) -> None:
    """What is kept of the last answers belongs to them only."""
    packets = [roce.data(payload=n, sport=port) for port in (50_000, 50_001) for n in (0, 4, 8, 1024, 1028)]
    steer(dataplane, packets[0])
    for packet in (*packets, *packets, *reversed(packets)):
        assert_rewritten(dataplane.leave(packet), roce.steered(packet, PORT))


def test_the_port_that_it_has_already(dataplane: Machine) -> None:
    packet = roce.data(sport=PORT)
    steer(dataplane, packet)
    run = dataplane.leave(packet)
    assert (run.verdict, run.packet, run.counted) == (TC_ACT_UNSPEC, bytes(packet), {})


@CHECKSUMS
@pytest.mark.parametrize("vlans", [0, 2])
def test_flow_label(dataplane: Machine, vlans: int, checksum: bool) -> None:
    """The label follows the port; traffic class and version beside it stay."""
    packet = roce.data(ip_version=6, vlans=vlans, checksum=checksum)
    steer(dataplane, packet, flow_label=True)
    assert_rewritten(dataplane.leave(packet), roce.steered(packet, PORT, flow_label=True))


def test_flow_label_over_ipv4(dataplane: Machine) -> None:
    packet = roce.data()
    steer(dataplane, packet, flow_label=True)
    assert_rewritten(dataplane.leave(packet), roce.steered(packet, PORT))


def psn_of_a_zero_checksum() -> int:
    """A PSN with which the packet, steered, has a sum of zero. (2^16 is 1 modulo 65535, so a number modulo that is
    the sum of its 16-bit words.)
    """
    datagram = bytearray(roce.steered(roce.data(), PORT)[IP_AT:])
    udp_length = len(datagram) - UDP_AT
    for psn in range(2**24):
        datagram[PSN_AT : PSN_AT + 3] = psn.to_bytes(3, "big")
        datagram[-4:] = roce.icrc(datagram[:-4])
        summed = int.from_bytes(datagram[12:], "big") + 17 + udp_length
        if summed % 0xFFFF == 0:
            return psn
    raise AssertionError


def test_a_checksum_that_comes_out_as_zero(dataplane: Machine) -> None:
    """Is sent as its other form, all ones (RFC 768): zero would say that there is none."""
    packet = roce.data(psn=psn_of_a_zero_checksum(), checksum=True)
    expected = roce.steered(packet, PORT)
    assert Ether(expected)[UDP].chksum == 0xFFFF
    steer(dataplane, packet)
    assert_rewritten(dataplane.leave(packet), expected)


@pytest.mark.parametrize("trailer", [b"\0", bytes(6), b"\xa5" * 64])
@CHECKSUMS
def test_a_trailer_is_carried_along(dataplane: Machine, checksum: bool, trailer: bytes) -> None:
    packet = roce.data(payload=0, checksum=checksum)
    steer(dataplane, packet)
    assert_rewritten(dataplane.leave(bytes(packet) + trailer), roce.steered(packet, PORT) + trailer)


@dataclass(frozen=True)
class Row:
    description: str
    packet: Packet | bytes
    counted: dict[Reason, int] = field(default_factory=dict)


def changed(packet: Packet, layer: type[Packet], **fields: int) -> Packet:
    """The packet with fields that were not filled in by scapy."""
    packet = packet.copy()
    for name, value in fields.items():
        setattr(packet[layer], name, getattr(packet[layer], name) + value)
    return packet


V4, V6 = roce.data(), roce.data(ip_version=6)
ODD = {Reason.STEER_BAD_LENGTH: 1}
LEFT_ALONE = [
    Row("IP length too long", changed(V4, IP, len=4), ODD),
    Row("IP length too short", changed(V4, IP, len=-4), ODD),
    Row("IP length zero", changed(V4, IP, len=-V4[IP].len), ODD),
    Row("IPv6 length too long", changed(V6, IPv6, plen=4), ODD),
    Row("IPv6 length zero (a jumbogram)", changed(V6, IPv6, plen=-V6[IPv6].plen), ODD),
    Row("UDP length too long", changed(V4, UDP, len=4), ODD),
    Row("UDP length too short", changed(V4, UDP, len=-4), ODD),
    Row("UDP length zero", changed(V4, UDP, len=-V4[UDP].len), ODD),
    Row("both lengths beyond the frame", changed(changed(V4, UDP, len=4), IP, len=4), ODD),
    Row("both lengths beyond the frame, IPv6", changed(changed(V6, UDP, len=4), IPv6, plen=4), ODD),
    Row("no whole words", changed(changed(V4, UDP, len=-1), IP, len=-1), ODD),
    Row("cut short of the ICRC", bytes(V4)[:-4], ODD),
    Row("the BTH cut", bytes(V4)[:53]),
    Row("too short for an ICRC", changed(changed(V4, UDP, len=-68), IP, len=-68), ODD),
    Row("a fragment", changed(V4, IP, frag=1)),
    Row("IP options", rebuilt(Ether() / network(options=[IPOption_NOP()] * 4) / V4[UDP])),
    Row("an extension header", rebuilt(Ether() / network(6) / IPv6ExtHdrDestOpt() / V6[UDP])),
    Row("a fragment header", rebuilt(Ether() / network(6) / IPv6ExtHdrFragment() / V6[UDP])),
    Row("three VLAN tags", rebuilt(Ether() / Dot1Q() / Dot1Q() / Dot1Q() / V4[IP])),
    Row("another port", changed(V4, UDP, dport=1)),
]


@pytest.mark.parametrize("row", LEFT_ALONE, ids=lambda row: row.description)
def test_left_alone(dataplane: Machine, row: Row) -> None:
    for whole in (V4, V6):
        steer(dataplane, whole, flow_label=True)
    run = dataplane.leave(row.packet)
    assert (run.verdict, run.packet, run.counted) == (TC_ACT_UNSPEC, bytes(row.packet), row.counted)


@FAMILIES
@pytest.mark.parametrize("gso_size", [40, 1024])
def test_several_datagrams_in_one_buffer(dataplane: Machine, gso_size: int, ip_version: int) -> None:
    packet = roce.data(ip_version=ip_version)
    steer(dataplane, packet, flow_label=True)
    run = dataplane.leave(packet, gso_size=gso_size)
    assert (run.packet, run.counted) == (bytes(packet), {Reason.STEER_GSO: 1})


@FAMILIES
def test_only_the_queue_pair_that_is_meant(dataplane: Machine, ip_version: int) -> None:
    """The far end's address and QPN are the key; reserved bits beside the QPN are none of it."""
    packet = roce.data(ip_version=ip_version)
    steer(dataplane, packet)
    for other in (
        roce.data(ip_version=ip_version, dqpn=roce.QPN ^ 1),
        roce.data(ip_version=ip_version, dst="10.0.1.3" if ip_version == 4 else "fd00:1::3"),
        roce.data(ip_version=10 - ip_version),
    ):
        assert dataplane.leave(other).packet == bytes(other)
    marked = roce.data(ip_version=ip_version, fecn=1, becn=1, resv6=0x3F)
    assert_rewritten(dataplane.leave(marked), roce.steered(marked, PORT))


def test_set_moved_and_let_go_while_packets_flow(dataplane: Machine) -> None:
    """A change holds from the next packet on."""
    packet = roce.data()
    key = qp_key(packet)
    assert dataplane.leave(packet).packet == bytes(packet)
    for port in (50_100, 50_101, 65_535, 49_152):
        dataplane.steering.set(key, Steer(port))
        run = dataplane.leave(packet)
        assert run.packet == roce.steered(packet, port)
        assert int(dataplane.qp(Direction.EGRESS)["used_sport"]) == port
    dataplane.steering.unset(key)
    assert dataplane.leave(packet).packet == bytes(packet)
    assert int(dataplane.qp(Direction.EGRESS)["used_sport"]) == SPORT


def test_ingress_changes_nothing(dataplane: Machine) -> None:
    packet = roce.data()
    steer(dataplane, packet)
    assert dataplane.ingress(packet).packet == bytes(packet)


def test_probes_are_not_steered(dataplane: Machine) -> None:
    """They have the port of the path that they are to see."""
    probe = rebuilt(roce.data(dqpn=abi.BTH_QPN))
    probe[BTH].opcode = abi.BTH_OPCODE
    steer(dataplane, probe)
    raw = bytearray(bytes(probe))
    raw[54:58] = abi.PROBE_MAGIC.to_bytes(4, "big")
    assert dataplane.leave(bytes(raw)).packet == bytes(raw)
