"""A walk's packets as bytes, and the ICMP errors that answer them.

They are probes of `cwdp.agent.tracing.packets`, made longer: the dataplane of who sends one neither steers nor counts it, and
who receives one neither reflects it nor takes it for a queue pair's. The receiver counts `bad_length`, and leaves it
to its stack.
"""

import socket
import struct
from dataclasses import dataclass, replace
from ipaddress import IPv6Address
from typing import Literal

from cwdp.agent.probing.packets import IPV4_HEADER, IPV6_HEADER
from cwdp.agent.tracing import packets as tracing
from cwdp.agent.tracing.packets import FlowPath, HopProbe, quote_in, udp_checksum

KINDS = {socket.AF_INET: (3, 11), socket.AF_INET6: (1, 2, 3)}
"""ICMP types that answer: unreachable or too big, and expired (RFC 792); with IPv6 one for each (RFC 4443)."""

_DONT_FRAGMENT = 0x4000
_FRAGMENTATION_NEEDED = 4
_PACKET_TOO_BIG = 2


@dataclass(frozen=True)
class HopAnswer:
    """An ICMP error: who sent it, what it quotes (from the IP header on), and the MTU that a `too_big` tells, 0 for none."""

    responder: str
    kind: Literal["expired", "too_big", "unreachable"]
    quote: bytes
    mtu_bytes: int = 0

    @property
    def tos(self) -> int:
        """TOS or traffic class of what is quoted: as it came to the responder (RFC 1812 4.3.2.3)."""
        return tos_of(self.quote)


def build(path: FlowPath, hop_limit: int, port: int, *, size_bytes: int, tos: int) -> HopProbe:
    """A packet with a nonce of its own, and with DF over IPv4.

    Args:
        path: of UDP.
        hop_limit: after how many hops it is to expire.
        port: the destination port.
        size_bytes: of the IP packet, at least 128.
        tos: of the IPv4 header, or traffic class.
    """
    draft = tracing.build(path, hop_limit, port).packet
    packet = bytearray(draft + bytes(size_bytes - len(draft)))
    if path.family == socket.AF_INET:
        header = IPV4_HEADER
        packet[1] = tos
        struct.pack_into("!H", packet, 2, size_bytes)
        struct.pack_into("!H", packet, 6, _DONT_FRAGMENT)
    else:
        header = IPV6_HEADER
        struct.pack_into("!I", packet, 0, 6 << 28 | tos << 20)
        struct.pack_into("!H", packet, 4, size_bytes - header)
    struct.pack_into("!HH", packet, header + 4, size_bytes - header, 0)
    struct.pack_into("!H", packet, header + 6, udp_checksum(path, bytes(packet[header:])))
    return HopProbe(path, hop_limit, bytes(packet))


def tos_of(packet: bytes) -> int:
    """TOS or traffic class of an IP packet, of at least two bytes."""
    return packet[1] if packet[0] >> 4 == 4 else (packet[0] & 0xF) << 4 | packet[1] >> 4


def read_icmpv4(data: bytes) -> HopAnswer | None:
    """What a raw socket for ICMP gave, IP header included; None for what is no answer to any walk."""
    answer = tracing.read_icmpv4(data)
    if answer is None:
        return None
    read = HopAnswer(answer.responder, answer.kind, answer.quote)
    start = (data[0] & 0xF) * 4
    if answer.kind == "unreachable" and data[start + 1] == _FRAGMENTATION_NEEDED:
        (mtu_bytes,) = struct.unpack_from("!H", data, start + 6)  # RFC 1191 4
        return replace(read, kind="too_big", mtu_bytes=mtu_bytes)
    return read


def read_icmpv6(data: bytes, responder: str) -> HopAnswer | None:
    """What a raw socket for ICMPv6 gave, and from whom; None for what is no answer to any walk."""
    if data[:1] != bytes([_PACKET_TOO_BIG]):
        answer = tracing.read_icmpv6(data, responder)
        return None if answer is None else HopAnswer(answer.responder, answer.kind, answer.quote)
    quote = quote_in(6, data)
    if quote is None:
        return None
    (mtu_bytes,) = struct.unpack_from("!I", data, 4)  # RFC 4443 3.2
    return HopAnswer(str(IPv6Address(responder.partition("%")[0])), "too_big", quote, mtu_bytes)
