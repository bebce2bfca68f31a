"""Where this host sends what is for an address, policy routing included."""

import socket
from collections.abc import Iterable, Mapping
from ipaddress import ip_address

from pyroute2 import IPRoute, NetlinkError

from cwdp.dataplane.kernel.interface import ifindex_of
from cwdp.errors import CwdpError, SteeringError
from cwdp.shared.addresses import Address

FAMILIES = {4: socket.AF_INET, 6: socket.AF_INET6}


def require_routed(ifname: str, dst: Address) -> None:
    """Make sure that an interface is the way to an address, from one of its own addresses at least.

    Raises:
        InterfaceError: there is no such interface.
        SteeringError: packets for the address leave elsewhere, or nowhere.
    """
    ifindex = ifindex_of(ifname)
    family = FAMILIES[dst.version]
    with IPRoute() as ip:
        sources = [a.get_attr("IFA_ADDRESS") for a in ip.get_addr(family=family, index=ifindex)]
        if any(_leaves_by(ip, family, dst, source) == ifindex for source in (*sources, None)):
            return
        elsewhere = _leaves_by(ip, family, dst, None)
        names = [link.get_attr("IFLA_IFNAME") for link in ip.get_links(elsewhere)] if elsewhere else []
    where = f"leaves by {names[0]}" if names else "has no route"
    raise SteeringError(
        f"what goes to {dst} does not leave by {ifname}: it {where}", f"see: ip route get {dst}"
    )


def unrouted(ifname: str, addresses: set[Address]) -> dict[Address, CwdpError]:
    """The addresses that are not reached by a NIC, and how that is known."""
    found: dict[Address, CwdpError] = {}
    for address in addresses:
        try:
            require_routed(ifname, address)
        except CwdpError as error:
            found[address] = error
    return found


def _leaves_by(ip: IPRoute, family: int, dst: Address, source: str | None) -> int | None:
    """The index of the interface by which the kernel would send; None where it would not."""
    given = {"src": source} if source else {}
    try:
        route = ip.route("get", family=family, dst=str(dst), **given)[0]
    except (NetlinkError, IndexError):
        return None
    index: int | None = route.get_attr("RTA_OIF")
    return index


def gateways(
    ifname: str, sources: Mapping[int, Address], dsts: Iterable[Address]
) -> dict[Address, Address | None]:
    """The next hops of what an interface sends; None where that is the destination itself.

    Args:
        ifname: the interface.
        sources: its own addresses by IP version.
        dsts: the destinations; those that it does not lead to are left out.
    """
    found: dict[Address, Address | None] = {}
    ifindex = ifindex_of(ifname)
    with IPRoute() as ip:
        for dst in dsts:
            if dst.version not in sources:
                continue
            given = {"dst": str(dst), "src": str(sources[dst.version]), "oif": ifindex}
            try:
                route = ip.route("get", family=FAMILIES[dst.version], **given)[0]
            except (NetlinkError, IndexError):
                continue
            via = route.get_attr("RTA_VIA")
            address = route.get_attr("RTA_GATEWAY") or (via and via["addr"])
            found[dst] = ip_address(address) if address else None
    return found
