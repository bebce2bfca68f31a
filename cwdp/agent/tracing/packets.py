"""Hop-limited probes as bytes, and the ICMP errors that answer them.

A probe has the headers of the flow whose path it is to share. The dataplane knows it for a probe of ours, so it is
neither steered nor counted as a queue pair's packet; it is no request either, so nobody reflects it.
"""

import secrets
import socket
import struct
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address
from typing import Literal

from cwdp.agent.inet import family_of, internet_checksum
from cwdp.agent.probing import packets
from cwdp.agent.probing.packets import IPV4_HEADER, IPV6_HEADER

UDP_HEADER = 8
FLOW_LABEL_MASK = 0x3FFF
"""Of a port, what the flow label of a TCP path's segments is."""

_ICMP_HEADER = 8
_LEAST_ICMPV4 = IPV4_HEADER + _ICMP_HEADER + IPV4_HEADER + UDP_HEADER
_LEAST_ICMPV6 = _ICMP_HEADER + IPV6_HEADER + UDP_HEADER
_KINDS: "dict[tuple[int, int], Kind]" = {
    (4, 11): "expired",  # RFC 792
    (4, 3): "unreachable",
    (6, 3): "expired",  # RFC 4443
    (6, 1): "unreachable",
}

Kind = Literal["expired", "unreachable"]
QuoteKey = tuple[bytes, bytes, bytes]


@dataclass(frozen=True)
class FlowPath:
    """A path to trace: the interface to send from, addresses of one family, and the source port that selects it.

    `protocol` is IPPROTO_TCP for the path of TCP connections, 0 for that of RoCEv2.
    """

    ifname: str
    source: str
    destination: str
    sport: int
    protocol: int = 0

    @property
    def family(self) -> socket.AddressFamily:
        """AF_INET or AF_INET6."""
        return family_of(self.destination)

    @property
    def pair(self) -> tuple[str, str]:
        """All paths between which have one end."""
        return self.ifname, self.destination


@dataclass(frozen=True)
class HopProbe:
    """A packet that is to expire after `hop_limit` hops.

    What a forger would have to guess is random: the IPv4 identification and, by way of the payload, the UDP
    checksum, so 32 bits of the least quote (RFC 792: the IP header and 8 bytes), and 104 where a quote goes on. Over TCP it is
    the sequence number in place of the checksum.
    """

    path: FlowPath
    hop_limit: int
    packet: bytes

    @property
    def key(self) -> QuoteKey:
        """By what its quotes are found."""
        return quote_key(self.packet)

    def is_quoted_by(self, quote: bytes) -> bool:
        """Whether all of a quote is this packet's, but for what switches may change (hop limit, DSCP, ECN)."""
        sent, header = self.packet, _header_length(self.packet)
        if _header_length(quote) != header or _unchanging(quote) != _unchanging(sent):
            return False
        shown = min(len(quote), len(sent))
        return quote[header:shown] == sent[header:shown]


@dataclass(frozen=True)
class Answer:
    """An ICMP error: who sent it, and what it quotes (from the IP header on)."""

    responder: str
    kind: Kind
    quote: bytes


def build(path: FlowPath, hop_limit: int, port: int) -> HopProbe:
    """A probe with a nonce of its own; `port` is the destination port."""
    draft = packets.requests(
        [packets.Path(0, path.source, path.destination, path.sport, 0, path.protocol)], 0, port
    )
    ip, packet = draft["ip"], draft["packet"]
    nonce = int.from_bytes(secrets.token_bytes(13))
    if not path.protocol:
        packet["bth"]["psn"] = nonce & 0xFFFFFF
    packet["probe"]["kind"] = 0
    packet["probe"]["t1"] = nonce >> 24 & 0xFFFFFFFFFFFFFFFF
    if path.family == socket.AF_INET:
        ip["ttl"], ip["id"] = hop_limit, (nonce >> 88) or 1  # the kernel would replace 0
    else:
        ip["hop_limit"] = hop_limit
    if path.protocol:
        if path.family == socket.AF_INET6:
            ip["flow"] |= path.sport & FLOW_LABEL_MASK
        packet["len"], packet["check"] = struct.unpack("!HH", secrets.token_bytes(4))
    else:
        packet["check"] = udp_checksum(path, packet.tobytes())
    return HopProbe(path, hop_limit, draft.tobytes())


def quote_key(packet: bytes) -> QuoteKey:
    """Destination, source port and UDP checksum, or half of the sequence number, of an IP packet with UDP or TCP in it."""
    header = _header_length(packet)
    address = 4 if header == IPV4_HEADER else 16
    return packet[header - address : header], packet[header : header + 2], packet[header + 6 : header + 8]


def read_icmpv4(data: bytes) -> Answer | None:
    """What a raw socket for ICMP gave, IP header included; None for what is no answer to any probe."""
    if len(data) < _LEAST_ICMPV4 or data[0] >> 4 != 4:
        return None
    start = (data[0] & 0xF) * 4
    return _answer(4, str(IPv4Address(data[12:16])), data[start:])


def read_icmpv6(data: bytes, responder: str) -> Answer | None:
    """What a raw socket for ICMPv6 gave, and from whom; None for what is no answer to any probe."""
    if len(data) < _LEAST_ICMPV6:
        return None
    return _answer(6, str(IPv6Address(responder.partition("%")[0])), data)


def quote_in(version: int, icmp: bytes) -> bytes | None:
    """What an ICMP error quotes, from the IP header on, if that could be a probe; `version` is that of IP."""
    quote = icmp[_ICMP_HEADER:]
    header = IPV4_HEADER if version == 4 else IPV6_HEADER
    protocol = 9 if version == 4 else 6
    if len(quote) < header + UDP_HEADER:
        return None
    first = 0x45 if version == 4 else 0x60
    mask = 0xFF if version == 4 else 0xF0
    if quote[0] & mask != first or quote[protocol] not in (socket.IPPROTO_UDP, socket.IPPROTO_TCP):
        return None
    return quote


def _answer(version: int, responder: str, icmp: bytes) -> Answer | None:
    kind = _KINDS.get((version, icmp[0])) if icmp else None
    quote = quote_in(version, icmp)
    return None if kind is None or quote is None else Answer(responder, kind, quote)


def _header_length(packet: bytes) -> int:
    return IPV4_HEADER if packet[0] >> 4 == 4 else IPV6_HEADER


def _unchanging(packet: bytes) -> bytes:
    """What no switch changes of an IP header: the identification and addresses, over IPv6 the addresses."""
    if _header_length(packet) == IPV4_HEADER:
        return packet[4:6] + packet[12:20]
    return packet[8:40]


def udp_checksum(path: FlowPath, datagram: bytes) -> int:
    """RFC 768 and RFC 8200 8.1, over a datagram whose checksum field is 0.

    RoCEv2 sends none, but a host drops IPv6 datagrams without one unheard, and no answer would come from it.
    """
    ends = b"".join(socket.inet_pton(path.family, address) for address in (path.source, path.destination))
    pseudo = ends + struct.pack("!II", len(datagram), socket.IPPROTO_UDP)
    return internet_checksum(pseudo + datagram + bytes(len(datagram) % 2)) or 0xFFFF
