"""Whether a hello makes sense."""

from ipaddress import IPv4Address, IPv6Address

from cwdp.shared.bus.messages import LARGEST_VERSION, Hello, Nic


def is_sane(hello: Hello) -> bool:
    """Whether others can be told of a host as it says it is: its names and addresses go to its peers."""
    nics = [nic.ifname for nic in hello.nics] + [port.nic for port in hello.ib_ports]
    names = [hello.host, *nics]
    if not all(name and "/" not in name and name.isprintable() for name in names):
        return False
    if len(nics) != len(set(nics)) or not 0 <= hello.desired_version <= LARGEST_VERSION:
        return False
    try:
        if len({IPv6Address(port.gid) for port in hello.ib_ports}) != len(hello.ib_ports):
            return False
        for nic in hello.nics:
            IPv4Address(nic.ipv4 or "0.0.0.0")  # noqa: S104 - parsed, not bound
            IPv6Address(nic.ipv6 or "::")
            if nic.ud is not None and (nic.transport != "ud" or IPv6Address(nic.ud.gid) != _only_gid(nic)):
                return False
    except ValueError:
        return False
    return True


def _only_gid(nic: Nic) -> IPv6Address | None:
    """The address of a NIC that has one, as a GID; None where it has both or neither."""
    if nic.ipv4 is not None and nic.ipv6 is not None:
        return None
    address = f"::ffff:{nic.ipv4}" if nic.ipv4 is not None else nic.ipv6
    return None if address is None else IPv6Address(address)
