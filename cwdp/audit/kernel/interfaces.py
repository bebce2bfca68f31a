"""Interfaces, addresses and routes by rtnetlink: thousands of them in a tenth of a second.

The messages are those of linux/rtnetlink.h, linux/if_link.h and linux/if_addr.h.
"""

import socket
import struct
from collections.abc import Iterator

from cwdp.audit.answers import Address, Addresses, Link, Links, Route, Routes
from cwdp.dataplane.kernel.netlink import NLM_F_DUMP, ask, attributes, text

RTM_GETLINK, RTM_GETADDR, RTM_GETROUTE = 18, 22, 26
IFINFOMSG, IFADDRMSG, RTMSG = struct.Struct("=BxHiII"), struct.Struct("=BBBBI"), struct.Struct("=8BI")
IFLA_IFNAME, IFLA_MTU, IFLA_LINK, IFLA_MASTER, IFLA_LINKINFO = 3, 4, 5, 10, 18
IFLA_CARRIER_CHANGES, IFLA_LINK_NETNSID = 35, 37
IFLA_INFO_KIND, IFLA_INFO_SLAVE_KIND = 1, 4
IFA_ADDRESS, IFA_LOCAL = 1, 2
RTA_DST, RTA_OIF, RTA_PRIORITY, RTA_MULTIPATH, RTA_TABLE = 1, 4, 6, 9, 15
RTNEXTHOP = struct.Struct("=HBBi")
RTN_UNICAST, RTM_F_CLONED = 1, 0x200
VERSIONS = {socket.AF_INET: 4, socket.AF_INET6: 6}
ADDRESS_BYTES = {4: socket.AF_INET, 16: socket.AF_INET6}


def links() -> Links:
    """All interfaces of this network namespace.

    Raises:
        OSError: the kernel does not tell.
    """
    body = IFINFOMSG.pack(socket.AF_UNSPEC, 0, 0, 0, 0)
    return Links([_link(message) for message in ask(RTM_GETLINK, body, NLM_F_DUMP)])


def addresses() -> Addresses:
    """All IP addresses of it.

    Raises:
        OSError: as `links`.
    """
    body = IFADDRMSG.pack(socket.AF_UNSPEC, 0, 0, 0, 0)
    return Addresses([_address(message) for message in ask(RTM_GETADDR, body, NLM_F_DUMP)])


def routes() -> Routes:
    """All unicast routes of it.

    Raises:
        OSError: as `links`.
    """
    body = RTMSG.pack(socket.AF_UNSPEC, *[0] * 8)
    return Routes([route for message in ask(RTM_GETROUTE, body, NLM_F_DUMP) for route in _route(message)])


def _link(message: bytes) -> Link:
    _, hardware, index, flags, _ = IFINFOMSG.unpack_from(message)
    told = attributes(message[IFINFOMSG.size :])
    info = attributes(told.get(IFLA_LINKINFO, b""))
    changes = told.get(IFLA_CARRIER_CHANGES)
    return Link(
        index=index,
        name=text(told.get(IFLA_IFNAME, b"")),
        hardware=hardware,
        kind=text(info.get(IFLA_INFO_KIND, b"")),
        port_kind=text(info.get(IFLA_INFO_SLAVE_KIND, b"")),
        master=_number(told.get(IFLA_MASTER)),
        lower=0 if IFLA_LINK_NETNSID in told else _number(told.get(IFLA_LINK)),
        mtu=_number(told.get(IFLA_MTU)),
        flags=flags,
        carrier_changes=None if changes is None else _number(changes),
    )


def _address(message: bytes) -> Address:
    _, prefix, _, scope, index = IFADDRMSG.unpack_from(message)
    told = attributes(message[IFADDRMSG.size :])
    return Address(index, _ip(told.get(IFA_LOCAL) or told.get(IFA_ADDRESS, b"")), prefix, scope)


def _route(message: bytes) -> Iterator[Route]:
    """A route, if it is one for forwarding to others."""
    family, prefix, _, _, table, _, _, kind, flags = RTMSG.unpack_from(message)
    if kind != RTN_UNICAST or flags & RTM_F_CLONED or family not in VERSIONS:
        return
    told = attributes(message[RTMSG.size :])
    single = [_number(told[RTA_OIF])] if RTA_OIF in told else []
    yield Route(
        family=VERSIONS[family],
        destination=_ip(told.get(RTA_DST, b"")),
        prefix=prefix,
        interfaces=[*single, *_hops(told.get(RTA_MULTIPATH, b""))],
        table=_number(told[RTA_TABLE]) if RTA_TABLE in told else table,
        metric=_number(told.get(RTA_PRIORITY)),
    )


def _hops(data: bytes) -> Iterator[int]:
    """The interface of each `struct rtnexthop`."""
    while len(data) >= RTNEXTHOP.size:
        length, _, _, index = RTNEXTHOP.unpack_from(data)
        yield index
        data = data[max(length, RTNEXTHOP.size) + 3 & ~3 :]


def _ip(data: bytes) -> str:
    return socket.inet_ntop(ADDRESS_BYTES[len(data)], data) if len(data) in ADDRESS_BYTES else ""


def _number(data: bytes | None) -> int:
    return int.from_bytes(data or b"", "little")
