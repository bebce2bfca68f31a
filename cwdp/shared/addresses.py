"""IP addresses as people write them, and packed as rows of messages have them; the LIDs of InfiniBand.

Packed, an address has 16 bytes in network order, IPv4 as ::ffff:a.b.c.d.
"""

from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Annotated

from msgspec import Meta, Struct

Address = IPv4Address | IPv6Address


class PortLids(Struct, frozen=True):
    """The first LID of a port, and its LMC: how many bits of its LIDs are path bits (IBTA volume 1, 4.1.3)."""

    lid: Annotated[int, Meta(ge=1, le=0xBFFF)]
    lmc: Annotated[int, Meta(ge=0, le=7)]


class IbPort(Struct, frozen=True):
    """A port of InfiniBand whose programs take its LIDs: what its host calls it (`cwdp.shared.ib.names.nic_name`), its first GID, and its LIDs."""

    nic: Annotated[str, Meta(min_length=1, max_length=80)]
    gid: str
    lids: PortLids


def read_address(text: str) -> Address:
    """An address; ::ffff:a.b.c.d is the IPv4 address in it, as in the dataplane.

    Raises:
        ValueError: it is none, or names an interface (fe80::1%eth0).
    """
    address = ip_address(text)
    if isinstance(address, IPv4Address):
        return address
    if address.scope_id is not None:
        raise ValueError(f"{text!r} names an interface")
    return unmapped(address)


def unmapped(address: IPv6Address) -> Address:
    """The IPv4 address that one of the form ::ffff:a.b.c.d stands for; others as they are."""
    return address.ipv4_mapped or address


def address_bytes(address: Address) -> bytes:
    """An address, packed."""
    return bytes(10) + b"\xff\xff" + address.packed if address.version == 4 else address.packed


def bytes_address(packed: bytes) -> Address:
    """The address that `address_bytes` was made from.

    Raises:
        ValueError: it has not 16 bytes.
    """
    return unmapped(IPv6Address(packed))


def is_of_a_host(address: Address) -> bool:
    """Whether an address could be that of a host behind switches; broadcasts the kernel refuses."""
    if address.version == 6 and address.is_reserved:  # some use the reserved ones of IPv4
        return False
    return not (
        address.is_multicast or address.is_unspecified or address.is_loopback or address.is_link_local
    )
