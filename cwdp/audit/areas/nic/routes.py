"""Routes, name servers, and how the kernel answers for addresses."""

import ipaddress
from collections.abc import Iterator
from functools import partial

from cwdp.audit.answers import Links, Route, Routes
from cwdp.audit.notes import Notes, whole
from cwdp.audit.source import Source
from cwdp.audit.subjects import Found, default_routes
from cwdp.audit.unreadable import Unreadable

CONF = "proc/sys/net/ipv4/conf"
NIC_ROUTES, MAIN = 256, 254
ALL = {4: str(ipaddress.IPv4Address(0)), 6: "::"}


def read(source: Source, found: Found) -> Iterator[Notes]:
    """Facts of the area `routes`."""
    host = Notes("host")
    host.note("dns_servers", lambda: dns_servers(source.text("etc/resolv.conf")))
    host.note("default_routes", lambda: _default_routes(source))
    host.note("rp_filter", lambda: max(_setting(source, where, "rp_filter") for where in ("all", "default")))
    host.note("arp_ignore", lambda: _setting(source, "all", "arp_ignore"))
    host.note("arp_announce", lambda: _setting(source, "all", "arp_announce"))
    yield host
    for nic in found.nics:
        notes = Notes("nic", nic.name)
        notes.note("routes", partial(_routes, source, nic.name))
        yield notes


def dns_servers(text: str) -> list[str]:
    """In the order in which they are asked."""
    words = (line.split() for line in text.splitlines())
    return [line[1] for line in words if len(line) > 1 and line[0] == "nameserver"]


def _names(source: Source) -> dict[int, str]:
    return {link.index: link.name for link in source.ask(Links).links}


def _default_routes(source: Source) -> list[str]:
    names = _names(source)
    return [f"ipv{family} {names.get(index, index)}" for family, index in default_routes(source)]


def _setting(source: Source, where: str, name: str) -> int:
    """Documentation/networking/ip-sysctl.rst."""
    return whole(source.text(f"{CONF}/{where}/{name}"))


def _routes(source: Source, name: str) -> list[str]:
    index = {found: number for number, found in _names(source).items()}.get(name)
    found = [route for route in source.ask(Routes).routes if index in route.interfaces]
    if len(found) > NIC_ROUTES:
        raise Unreadable(f"{len(found):,} routes")
    return [_text(route) for route in sorted(found, key=_order)]


def _order(route: Route) -> tuple[bool, int, int, bytes, int]:
    """The main table first."""
    return route.table != MAIN, route.table, route.family, _packed(route.destination), route.prefix


def _packed(address: str) -> bytes:
    try:
        return ipaddress.ip_address(address).packed
    except ValueError:
        return address.encode()


def _text(route: Route) -> str:
    """Such as `10.0.0.0/24`, or `0.0.0.0/0 table 101` of another table than the main one."""
    where = f"{route.destination or ALL.get(route.family, '')}/{route.prefix}"
    return where if route.table == MAIN else f"{where} table {route.table}"
