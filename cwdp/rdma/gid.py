"""GIDs of RoCE: 16 bytes, written as an IPv6 address."""

from functools import cache
from ipaddress import IPv6Address


@cache
def gid_bytes(gid: str) -> bytes:
    """A GID's 16 bytes."""
    return IPv6Address(gid).packed


def gid_text(gid: bytes | str) -> str:
    """A GID in its shortest form; one that stands for an IPv4 address with dots."""
    address = IPv6Address(gid)
    return f"::ffff:{address.ipv4_mapped}" if address.ipv4_mapped else str(address)
