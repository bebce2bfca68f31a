"""What is not a probe, or not a whole one: both programs leave it as it came."""

from dataclasses import dataclass

import pytest
from machine import TC_ACT_UNSPEC, XDP_PASS, XDP_TX, Machine
from probes import Probe, link, network, rebuilt, reflected, request, signed, transport
from scapy.layers.inet import ICMP, IP, TCP, UDP, IPOption_NOP, IPOption_Timestamp
from scapy.layers.inet6 import IPv6, IPv6ExtHdrDestOpt, IPv6ExtHdrFragment, IPv6ExtHdrHopByHop
from scapy.layers.l2 import ARP, Dot1Q, Ether
from scapy.packet import Packet, Raw

from cwdp.dataplane import abi
from cwdp.dataplane.abi import Reason

pytestmark = pytest.mark.kernel

T1 = 1_000_000_007
BODY = transport() / Probe()


@dataclass(frozen=True)
class Row:
    description: str
    packet: Packet


NOT_OURS = [
    Row("ARP", link() / ARP()),
    Row("an unknown EtherType", Ether(type=0x88B5) / Raw(bytes(100))),
    Row("an 802.3 length", Ether(type=100) / Raw(bytes(100))),
    Row("TCP", link() / network() / TCP(dport=4791) / Raw(bytes(100))),
    Row("TCP over IPv6", link() / network(6) / TCP(dport=4791) / Raw(bytes(100))),
    Row("ICMP", link() / network() / ICMP() / Raw(bytes(100))),
    Row("another UDP port", link() / network() / transport(dport=4792) / Probe()),
    Row("from the port of probes to another", link() / network() / transport(4791, 4792) / Probe()),
    Row("an empty datagram", link() / network() / UDP(sport=1, dport=4791)),
    Row("the first fragment", link() / network(flags="MF") / BODY),
    Row("a middle fragment", link() / network(flags="MF", frag=100) / BODY),
    Row("the last fragment", link() / network(frag=100) / BODY),
    Row("an IP option", link() / network(options=[IPOption_NOP()] * 4) / BODY),
    Row("an IP timestamp option", link() / network(options=IPOption_Timestamp()) / BODY),
    Row("an IPv6 fragment header", link() / network(6) / IPv6ExtHdrFragment(m=0, offset=0) / BODY),
    Row("an IPv6 hop-by-hop header", link() / network(6) / IPv6ExtHdrHopByHop() / BODY),
    Row("IPv6 destination options", link() / network(6) / IPv6ExtHdrDestOpt() / BODY),
    Row("an IP version of 5", link() / network(version=5) / BODY),
    Row("an IPv6 version of 4", link() / network(6, version=4) / BODY),
    Row("an IP header length of 4 words", link() / network(ihl=4) / BODY),
    Row("IPv6 under the EtherType of IPv4", Ether(type=0x0800) / network(6) / BODY),
    Row("three VLAN tags", link(2) / Dot1Q(vlan=1) / network() / BODY),
    Row("a probe in IP in IP", link() / network() / network() / BODY),
]

ROCE = [
    Row("an RC write", link() / network() / transport(opcode=0x0A, dqpn=17) / Raw(bytes(1024))),
    Row("a datagram to our queue pair", link() / network() / transport(opcode=0x64) / Raw(bytes(100))),
    Row("our opcode to another queue pair", link() / network() / transport(dqpn=17) / bytes(Probe())),
    Row("another magic", link() / network() / transport() / Probe(magic=0x50445743)),
    Row("a BTH and nothing behind it", link() / network() / transport()),
]


@pytest.mark.parametrize("row", NOT_OURS, ids=lambda row: row.description)
def test_is_not_ours(dataplane: Machine, row: Row) -> None:
    packet = bytes(row.packet)
    run = dataplane.ingress(packet)
    assert (run.verdict, run.packet, run.counted) == (XDP_PASS, packet, {})
    run = dataplane.leave(packet)
    assert (run.verdict, run.packet, run.counted) == (TC_ACT_UNSPEC, packet, {})
    run = dataplane.egress(packet)
    assert (run.verdict, run.packet) == (TC_ACT_UNSPEC, packet)
    assert run.counted == {Reason.PROBE_BAD_TEMPLATE: 1}


@pytest.mark.parametrize("row", ROCE, ids=lambda row: row.description)
def test_is_a_queue_pairs(dataplane: Machine, row: Row) -> None:
    """RoCEv2 that is no probe is followed, not touched; with the mark of probes it is a bad template."""
    packet = bytes(row.packet)
    for counted in ({Reason.QP_ADDED: 1}, {}):
        run = dataplane.ingress(packet)
        assert (run.verdict, run.packet, run.counted) == (XDP_PASS, packet, counted)
        run = dataplane.leave(packet)
        assert (run.verdict, run.packet, run.counted) == (TC_ACT_UNSPEC, packet, counted)
    run = dataplane.egress(packet)
    assert (run.verdict, run.packet) == (TC_ACT_UNSPEC, packet)
    assert run.counted == {Reason.PROBE_BAD_TEMPLATE: 1}


REQUEST, REPLY = signed(request(), T1), reflected(signed(request(), T1), T1, T1)
REQUEST6 = signed(request(6, 2), T1)


@pytest.mark.parametrize("whole", [REQUEST, REPLY, REQUEST6], ids=["request", "reply", "tagged IPv6 request"])
def test_cut_at_every_length(dataplane: Machine, whole: Packet) -> None:
    """Passed on; counted from the magic on, before which it might be any queue pair's."""
    packet = bytes(whole)
    magic_end = packet.index(b"CWDP") + 4
    dataplane.ingress(packet[: magic_end - 1])
    for length in range(14, len(packet)):
        run = dataplane.ingress(packet[:length])
        assert (run.verdict, run.packet) == (XDP_PASS, packet[:length]), f"cut to {length} bytes"
        assert run.counted == ({} if length < magic_end else {Reason.BAD_LENGTH: 1}), f"cut to {length} bytes"


@pytest.mark.parametrize("whole", [REQUEST, REQUEST6], ids=["IPv4", "IPv6"])
@pytest.mark.parametrize("change", [-88, -1, 1, 4, 1000])
def test_lengths_that_disagree(dataplane: Machine, whole: Packet, change: int) -> None:
    for layer, name in ((UDP, "len"), (IP, "len"), (IPv6, "plen")):
        if layer not in whole:
            continue
        packet = whole.copy()
        setattr(packet[layer], name, getattr(packet[layer], name) + change)
        run = dataplane.ingress(packet)
        assert (run.verdict, run.packet) == (XDP_PASS, bytes(packet))
        assert run.counted == {Reason.BAD_LENGTH: 1}


@pytest.mark.parametrize("trailer", [b"\0", bytes(6), b"\xa5" * 64])
def test_a_trailer_behind_the_datagram_is_carried_along(dataplane: Machine, trailer: bytes) -> None:
    """Padding by a switch is no part of the datagram and changes nothing."""
    run = dataplane.ingress(bytes(REQUEST) + trailer)
    probe = run.dissected[Probe]
    assert run.verdict == XDP_TX
    assert run.packet == bytes(reflected(REQUEST, probe.t2, probe.t3)) + trailer


def test_a_longer_datagram_is_no_probe(dataplane: Machine) -> None:
    packet = rebuilt(link() / network() / transport() / Probe() / Raw(b"more"))
    assert packet[UDP].len == abi.PROBE_PACKET.itemsize + 4
    run = dataplane.ingress(packet)
    assert (run.verdict, run.packet, run.counted) == (XDP_PASS, bytes(packet), {Reason.BAD_LENGTH: 1})


def test_dont_fragment_is_no_fragment(dataplane: Machine) -> None:
    packet = signed(rebuilt(link() / network(flags="DF") / BODY), T1)
    assert dataplane.ingress(packet).verdict == XDP_TX
