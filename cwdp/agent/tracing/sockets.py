"""Raw sockets for ICMP errors in. They need CAP_NET_RAW."""

import socket
import struct
from collections.abc import Collection

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
