"""What IP addresses and headers have in common wherever they are built or read."""

import fcntl
import math
import socket
import struct

import numpy as np

_SIOCGIFMTU = 0x8921  # netdevice(7)


def family_of(address: str) -> socket.AddressFamily:
    """The family of an IP address in text."""
    return socket.AF_INET6 if ":" in address else socket.AF_INET


def internet_checksum(data: bytes) -> int:
    """The checksum of RFC 1071 over data of even length whose checksum field is 0."""
    total = int(np.frombuffer(data, dtype=">u2").sum(dtype=np.uint64))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def mtu_bytes(of: socket.socket, ifname: str) -> float:
    """What an interface of the socket's namespace takes; no bound where that is not to be had: then sending tells."""
    try:
        answer = fcntl.ioctl(of, _SIOCGIFMTU, struct.pack("16si16x", ifname.encode(), 0))
    except OSError:
        return math.inf
    return int(struct.unpack_from("=i", answer, 16)[0])
