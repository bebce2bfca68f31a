"""Interfaces, addresses and routes by rtnetlink."""

from collections.abc import Iterator
from typing import Any

from pyroute2 import IPRoute
from pyroute2.netlink.exceptions import NetlinkError

from cwdp.audit.answers import Address, Addresses, Link, Links, Route, Routes
from cwdp.audit.unreadable import Unreadable

RTN_UNICAST = 1
AF_INET, AF_INET6 = 2, 10
RTM_F_CLONED = 0x200


def links() -> Links:
    """All interfaces of this network namespace."""
    with IPRoute() as ip:
        return Links([_link(one) for one in _asked(ip.get_links)])


def addresses() -> Addresses:
    """All IP addresses of it."""
    with IPRoute() as ip:
        return Addresses(
            [
                Address(
                    one["index"],
                    one.get_attr("IFA_LOCAL") or one.get_attr("IFA_ADDRESS") or "",
                    one["prefixlen"],
                    one["scope"],
                )
                for one in _asked(ip.get_addr)
            ]
        )


def routes() -> Routes:
    """All unicast routes of it."""
    with IPRoute() as ip:
        found = [*_asked(ip.get_routes, family=AF_INET), *_asked(ip.get_routes, family=AF_INET6)]
    return Routes([_route(one) for one in found if _is_route(one)])


def _asked(question: Any, **settings: int) -> Iterator[Any]:
    try:
        yield from question(**settings)
    except NetlinkError as error:
        raise Unreadable(f"the kernel does not tell: {error}") from error


def _link(told: Any) -> Link:
    info = told.get_attr("IFLA_LINKINFO")
    return Link(
        index=told["index"],
        name=told.get_attr("IFLA_IFNAME"),
        hardware=told["ifi_type"],
        kind=(info and info.get_attr("IFLA_INFO_KIND")) or "",
        port_kind=(info and info.get_attr("IFLA_INFO_SLAVE_KIND")) or "",
        master=told.get_attr("IFLA_MASTER") or 0,
        lower=told.get_attr("IFLA_LINK") or 0,
        mtu=told.get_attr("IFLA_MTU") or 0,
        flags=told["flags"],
        carrier_changes=told.get_attr("IFLA_CARRIER_CHANGES"),
    )


def _is_route(told: Any) -> bool:
    return bool(told["type"] == RTN_UNICAST and not told["flags"] & RTM_F_CLONED)


def _route(told: Any) -> Route:
    hops = told.get_attr("RTA_MULTIPATH") or []
    single = told.get_attr("RTA_OIF")
    return Route(
        family=4 if told["family"] == AF_INET else 6,
        destination=told.get_attr("RTA_DST") or "",
        prefix=told["dst_len"],
        interfaces=[*([single] if single else []), *(hop["oif"] for hop in hops)],
        table=told.get_attr("RTA_TABLE") or told["table"],
        metric=told.get_attr("RTA_PRIORITY") or 0,
    )
