"""IP addresses as people and messages write them."""

from ipaddress import IPv4Address, IPv6Address, ip_address

Address = IPv4Address | IPv6Address


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
    return address.ipv4_mapped or address
