"""What IP addresses and headers have in common wherever they are built or read."""

import socket

import numpy as np


def family_of(address: str) -> socket.AddressFamily:
    """The family of an IP address in text."""
    return socket.AF_INET6 if ":" in address else socket.AF_INET


def internet_checksum(data: bytes) -> int:
    """The checksum of RFC 1071 over data of even length whose checksum field is 0."""
    total = int(np.frombuffer(data, dtype=">u2").sum(dtype=np.uint64))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF
