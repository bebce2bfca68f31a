"""Raw sockets: for whole IP packets out, and for ICMP errors in. They need CAP_NET_RAW."""

import socket
import struct
from collections.abc import Collection

from cwdp.agent.probing.sender import IPV6_HDRINCL

_SOL_RAW = 255
_ICMP_FILTER = 1  # linux/icmp.h: a bit for each type to be kept back
_ICMP6_FILTER = 1  # linux/icmpv6.h: the same, 256 bits
_RAW = socket.SOCK_RAW | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK


def icmp_socket(family: socket.AddressFamily, kinds: Collection[int]) -> socket.socket:
    """A raw socket that hears ICMP of these types (each below 32) only.

    Raises:
        OSError: it cannot be made.
    """
    is_v4 = family == socket.AF_INET
    mask = struct.pack("=I", 0xFFFFFFFF & ~sum(1 << number for number in set(kinds)))
    ears = socket.socket(family, _RAW, socket.IPPROTO_ICMP if is_v4 else socket.IPPROTO_ICMPV6)
    try:
        if is_v4:
            ears.setsockopt(_SOL_RAW, _ICMP_FILTER, mask)
        else:
            ears.setsockopt(socket.IPPROTO_ICMPV6, _ICMP6_FILTER, mask + b"\xff" * 28)
    except OSError:
        ears.close()
        raise
    return ears


def sending_socket(ifname: str, family: socket.AddressFamily) -> socket.socket:
    """A raw socket for whole IP packets; without the mark by which the dataplane signs probes.

    Raises:
        OSError: it cannot be made or bound to the interface.
    """
    out = socket.socket(family, _RAW, socket.IPPROTO_RAW)
    try:
        out.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, ifname.encode() + b"\0")
        if family == socket.AF_INET6:
            out.setsockopt(socket.IPPROTO_IPV6, IPV6_HDRINCL, 1)
    except OSError:
        out.close()
        raise
    return out
