"""Probes as scapy packets, signed by the reference: what the programs are fed, and what they must make of it."""

import struct
from typing import Any

from scapy.contrib.roce import BTH
from scapy.fields import ByteField, IntField, LongField, ShortField, SignedLongField, XIntField, XLongField
from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Dot1AD, Dot1Q, Ether
from scapy.packet import Packet, bind_layers
from siphash import siphash_2_4

from cwdp.dataplane import abi
from cwdp.dataplane.abi import ProbeKind

KEY_ID = 6
KEY = bytes(range(16))
INITIATOR_MAC, RESPONDER_MAC = "02:00:00:00:00:01", "02:00:00:00:00:02"
SOURCES = {4: ("10.0.0.1", "10.0.1.2"), 6: ("fd00::1", "fd00:1::2")}
SPORT, REPLY_PORT = 50001, 60002
TOS = 26 << 2 | 2


class Probe(Packet):
    """`struct cwdp_probe`, written down here a second time so that the tests do not trust the generated one."""

    name = "CWDP probe"
    fields_desc = (
        XIntField("magic", 0x43574450),
        ByteField("version", 1),
        ByteField("kind", 1),
        ByteField("key_id", KEY_ID),
        ByteField("pair_position", 0),
        IntField("seq", 0),
        IntField("path", 0),
        ShortField("sport", SPORT),
        ShortField("reply_port", REPLY_PORT),
        IntField("bound_ns", 0),
        LongField("t1", 0),
        LongField("t2", 0),
        SignedLongField("peer_offset", 0),
        LongField("t3", 0),
        XLongField("mac", 0),
    )


bind_layers(BTH, Probe, opcode=abi.BTH_OPCODE)


def link(vlans: int = 0, *, reply: bool = False) -> Packet:
    """The Ethernet header with no, one (802.1Q) or two (802.1ad outside) tags."""
    source, destination = (RESPONDER_MAC, INITIATOR_MAC) if reply else (INITIATOR_MAC, RESPONDER_MAC)
    head = Ether(src=source, dst=destination)
    if vlans == 2:
        head /= Dot1AD(vlan=100, prio=3)
    if vlans:
        head /= Dot1Q(vlan=42, prio=5)
    return head


def network(ip_version: int = 4, *, reply: bool = False, ttl: int = 63, **fields: Any) -> Packet:
    """The IP header, with the traffic class of RoCEv2."""
    source, destination = SOURCES[ip_version][::-1] if reply else SOURCES[ip_version]
    if ip_version == 4:
        return IP(src=source, dst=destination, tos=TOS, ttl=ttl, id=7, **fields)
    return IPv6(src=source, dst=destination, tc=TOS, hlim=ttl, fl=0x12345, **fields)


def transport(sport: int = SPORT, dport: int = abi.ROCE_PORT, **fields: Any) -> Packet:
    """UDP and the BTH of a probe; no UDP checksum, as RoCEv2 senders do, and no ICRC."""
    bth = {"opcode": abi.BTH_OPCODE, "dqpn": abi.BTH_QPN, "icrc": 0} | fields
    return UDP(sport=sport, dport=dport, chksum=0) / BTH(**bth)


def request(ip_version: int = 4, vlans: int = 0, **fields: Any) -> Packet:
    """A template as the agent sends it: not stamped, not signed."""
    return rebuilt(link(vlans) / network(ip_version) / transport() / Probe(**fields))


def rebuilt(packet: Packet) -> Packet:
    """The packet with all lengths and checksums filled in."""
    return Ether(bytes(packet))


def addresses(packet: Packet) -> bytes:
    """Source and destination as they lie in the IP header."""
    if IP in packet:
        return bytes(packet[IP])[12:20]
    return bytes(packet[IPv6])[8:40]


def request_mac(packet: Packet, key: bytes = KEY) -> int:
    """The field `mac` of a request, as the big-endian number that scapy shows."""
    probe = packet[Probe]
    whole = bytes(probe)
    message = whole[8:12] + whole[16:20] + addresses(packet) + probe.t1.to_bytes(8, "little")[:7]
    return as_field(siphash_2_4(key, message))


def reply_mac(probe: Packet, signed_request_mac: int, key: bytes = KEY) -> int:
    """The field `mac` of a reply to the request with that `mac`."""
    message = struct.pack(">QQqQI", signed_request_mac, probe.t2, probe.peer_offset, probe.t3, probe.bound_ns)
    return as_field(siphash_2_4(key, message))


def as_field(tag: int) -> int:
    """The programs store the hash in the host's order, which is little-endian here."""
    return int.from_bytes(tag.to_bytes(8, "little"), "big")


def signed(packet: Packet, t1: int, key: bytes = KEY) -> Packet:
    """The request as the egress program must leave it at t1."""
    packet = packet.copy()
    packet[Probe].t1 = t1
    packet[Probe].mac = request_mac(packet, key)
    return packet


def reflected(
    sent: Packet,
    t2: int,
    t3: int,
    *,
    key: bytes = KEY,
    peer_offset: int = 0,
    bound_ns: int = abi.BOUND_UNSYNCED,
) -> Packet:
    """The reply that a signed request must become, built anew with checksums of scapy's own."""
    reply = sent.copy()
    reply[Ether].src, reply[Ether].dst = sent[Ether].dst, sent[Ether].src
    ip = reply[IP] if IP in reply else reply[IPv6]
    ip.src, ip.dst = ip.dst, ip.src
    if IP in reply:
        ip.ttl = 64
        del ip.chksum
    else:
        ip.hlim = 64
    reply[UDP].sport, reply[UDP].chksum = sent[Probe].reply_port, 0
    probe = reply[Probe]
    probe.kind, probe.t2, probe.t3 = ProbeKind.REPLY, t2, t3
    probe.peer_offset, probe.bound_ns = peer_offset, bound_ns
    probe.mac = reply_mac(probe, sent[Probe].mac, key)
    return rebuilt(reply)
