"""XDP at the responder: sound requests are answered on the spot, all others are passed on and counted."""

import itertools
import time
from dataclasses import dataclass

import pytest
from machine import XDP_PASS, XDP_TX, Machine
from probes import KEY_ID, REPLY_PORT, TOS, Probe, rebuilt, reflected, request, signed
from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Dot1AD, Dot1Q, Ether
from scapy.packet import Packet

from cwdp.dataplane.abi import BOUND_UNSYNCED, Reason

pytestmark = pytest.mark.kernel

T1 = 1_000_000_007
OTHER_KEY = bytes(range(100, 116))
REFLECTED = {Reason.REQUEST_REFLECTED: 1}


@dataclass(frozen=True)
class Row:
    description: str
    packet: Packet
    counted: dict[Reason, int]


def with_udp(packet: Packet, **fields: int) -> Packet:
    """The packet with other UDP fields, all else, the signature too, as it was."""
    changed = packet.copy()
    for name, value in fields.items():
        setattr(changed[UDP], name, value)
    return changed


SOUND = [
    Row(f"IPv{version}, {vlans} VLAN tags", signed(request(version, vlans, seq=7, path=2), T1), REFLECTED)
    for version, vlans in itertools.product((4, 6), (0, 1, 2))
]
REFUSED = [
    Row("unknown key", signed(request(key_id=KEY_ID + 1), T1), {Reason.REQUEST_UNKNOWN_KEY: 1}),
    Row("a key of the same index", signed(request(key_id=KEY_ID + 2), T1), {Reason.REQUEST_UNKNOWN_KEY: 1}),
    Row("signed with another key", signed(request(), T1, OTHER_KEY), {Reason.REQUEST_BAD_MAC: 1}),
    Row("not signed", request(), {Reason.REQUEST_BAD_MAC: 1}),
    Row(
        "source port changed on the way",
        with_udp(signed(request(), T1), sport=50002),
        {Reason.REQUEST_BAD_PORT: 1},
    ),
    Row("no port for the reply", signed(request(reply_port=0), T1), {Reason.REQUEST_BAD_PORT: 1}),
    Row("another version", signed(request(version=2), T1), {Reason.BAD_VERSION: 1}),
    Row("kind 0", signed(request(kind=0), T1), {Reason.BAD_KIND: 1}),
    Row("kind 3", signed(request(kind=3), T1), {Reason.BAD_KIND: 1}),
    Row("UDP length too long", with_udp(signed(request(), T1), len=89), {Reason.BAD_LENGTH: 1}),
    Row("UDP length too short", with_udp(signed(request(), T1), len=87), {Reason.BAD_LENGTH: 1}),
]


@pytest.mark.parametrize("row", SOUND, ids=lambda row: row.description)
def test_reflects(dataplane: Machine, row: Row) -> None:
    before = time.monotonic_ns()
    run = dataplane.ingress(row.packet)
    after = time.monotonic_ns()
    probe = run.dissected[Probe]
    assert before <= probe.t2 <= probe.t3 <= after
    assert run.packet == bytes(reflected(row.packet, probe.t2, probe.t3))
    assert (run.verdict, run.counted) == (XDP_TX, row.counted)


@pytest.mark.parametrize("version", [4, 6])
@pytest.mark.parametrize("ttl", [1, 2, 63, 64, 65, 128, 255])
def test_turns_the_headers(dataplane: Machine, version: int, ttl: int) -> None:
    packet = signed(request(version, 2), T1)
    packet[IP if version == 4 else IPv6].fields["ttl" if version == 4 else "hlim"] = ttl
    if version == 4:
        del packet[IP].chksum
    packet = rebuilt(packet)
    out = dataplane.ingress(packet).dissected
    assert (out[Ether].src, out[Ether].dst) == (packet[Ether].dst, packet[Ether].src)
    assert (out[Dot1AD].vlan, out[Dot1AD].prio, out[Dot1Q].vlan, out[Dot1Q].prio) == (100, 3, 42, 5)
    assert (out[UDP].sport, out[UDP].dport, out[UDP].chksum) == (REPLY_PORT, 4791, 0)
    ip = out[IP] if version == 4 else out[IPv6]
    there = packet[IP] if version == 4 else packet[IPv6]
    assert (ip.src, ip.dst) == (there.dst, there.src)
    assert ip.ttl == 64 if version == 4 else ip.hlim == 64
    assert (ip.tos if version == 4 else ip.tc) == TOS
    if version == 4:
        assert ip.chksum == rebuilt_checksum(out)


def rebuilt_checksum(packet: Packet) -> int:
    """The checksum that scapy computes for the IPv4 header."""
    fresh = packet.copy()
    del fresh[IP].chksum
    return int(rebuilt(fresh)[IP].chksum)


def test_header_checksum_of_every_value(dataplane: Machine) -> None:
    """RFC 1624 differs from RFC 1141 where the sum wraps: walk the identifier through the corners."""
    for identifier in [0, 1, *range(0x00FF, 0x10000, 0x0FD3), 0xFFFE, 0xFFFF]:
        packet = signed(request(), T1)
        packet[IP].id = identifier
        del packet[IP].chksum
        out = dataplane.ingress(rebuilt(packet)).dissected
        assert out[IP].chksum == rebuilt_checksum(out)


@pytest.mark.parametrize("row", REFUSED, ids=lambda row: row.description)
def test_refuses(dataplane: Machine, row: Row) -> None:
    run = dataplane.ingress(row.packet)
    assert (run.verdict, run.packet, run.counted) == (XDP_PASS, bytes(row.packet), row.counted)


def test_either_of_two_keys_and_never_a_dropped_one(dataplane: Machine) -> None:
    dataplane.maps.set_key(KEY_ID + 1, OTHER_KEY)
    old, new = signed(request(), T1), signed(request(key_id=KEY_ID + 1), T1, OTHER_KEY)
    assert dataplane.ingress(old).counted == REFLECTED
    out = dataplane.ingress(new)
    times = out.dissected[Probe]
    assert out.packet == bytes(reflected(new, times.t2, times.t3, key=OTHER_KEY))
    dataplane.maps.drop_key(KEY_ID)
    assert dataplane.ingress(old).counted == {Reason.REQUEST_UNKNOWN_KEY: 1}
    assert dataplane.ingress(new).counted == REFLECTED


@pytest.mark.parametrize("offset_ns", [0, 1, -1, 2_500_000_000, -(10**18), 2**62])
def test_tells_offset_and_bound(dataplane: Machine, offset_ns: int) -> None:
    dataplane.maps.write_clock(
        ref_local_ns=time.monotonic_ns(), offset_ns=offset_ns, drift=0.0, bound_ns=41.2, bound_drift=0.0
    )
    packet = signed(request(), T1)
    run = dataplane.ingress(packet)
    probe = run.dissected[Probe]
    assert (probe.peer_offset, probe.bound_ns) == (offset_ns, 42)
    want = reflected(packet, probe.t2, probe.t3, peer_offset=offset_ns, bound_ns=42)
    assert run.packet == bytes(want)


def test_an_unsynced_responder_says_so(dataplane: Machine) -> None:
    probe = dataplane.ingress(signed(request(), T1)).dissected[Probe]
    assert (probe.peer_offset, probe.bound_ns) == (0, BOUND_UNSYNCED)


def test_a_template_of_this_host_can_be_answered_by_it(dataplane: Machine) -> None:
    sent = dataplane.egress(request()).dissected
    assert dataplane.ingress(sent).counted == REFLECTED
