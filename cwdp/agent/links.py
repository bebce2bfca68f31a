"""Links and addresses of this network namespace, followed by netlink."""

import asyncio
import ipaddress
import logging
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from pyroute2 import AsyncIPRoute, NetlinkError
from pyroute2.netlink.rtnl import RTMGRP_IPV4_IFADDR, RTMGRP_IPV6_IFADDR, RTMGRP_LINK

RETRY_S = 0.2
IFF_UP_LOWER_UP = 0x1 | 0x10000
SCOPE_UNIVERSE = 0
IFA_F_UNUSABLE = 0x08 | 0x40  # duplicate or tentative

_log = logging.getLogger("cwdp.agent")


@dataclass
class Link:
    """An interface as last heard of."""

    index: int
    mac: str
    carrier: bool
    addresses: list[str] = field(default_factory=list)

    def address(self, family: socket.AddressFamily) -> str | None:
        """The first address of a family, in the order that the kernel lists them."""
        version = 4 if family == socket.AF_INET else 6
        return next((a for a in self.addresses if ipaddress.ip_address(a).version == version), None)


class LinkTable:
    """Every interface by name. `on_change` is called with the name of one whose carrier or address changed."""

    def __init__(self, on_change: Callable[[str], None]) -> None:
        self._links: dict[str, Link] = {}
        self._on_change = on_change

    def get(self, ifname: str) -> Link | None:
        """What is known of an interface."""
        return self._links.get(ifname)

    def carrier(self, ifname: str) -> bool:
        """Whether an interface is up and has carrier."""
        link = self._links.get(ifname)
        return link is not None and link.carrier

    async def follow(self) -> None:
        """Read the present state, then follow it for ever."""
        while True:
            try:
                async with AsyncIPRoute() as ip:
                    await ip.bind(RTMGRP_LINK | RTMGRP_IPV4_IFADDR | RTMGRP_IPV6_IFADDR)
                    await self._read_all(ip)
                    while True:
                        async for message in ip.get():
                            self.take(message)
            except (NetlinkError, OSError) as error:
                _log.warning("netlink failed, reading everything anew error=%s", error)
                await asyncio.sleep(RETRY_S)

    async def _read_all(self, ip: AsyncIPRoute) -> None:
        self._links.clear()
        async for message in await ip.link("dump"):
            self.take(message)
        async for message in await ip.addr("dump"):
            self.take(message)

    def take(self, message: Any) -> None:
        """Take in one netlink message; those of other kinds are passed over."""
        match message["event"]:
            case "RTM_NEWLINK" | "RTM_DELLINK" if message["family"] != socket.AF_UNSPEC:
                pass  # a bridge speaks of its port, not of the link
            case "RTM_NEWLINK":
                self._new_link(message)
            case "RTM_DELLINK":
                self._forget(message.get_attr("IFLA_IFNAME"))
            case "RTM_NEWADDR" | "RTM_DELADDR":
                self._address(message, new=message["event"] == "RTM_NEWADDR")

    def _new_link(self, message: Any) -> None:
        name = message.get_attr("IFLA_IFNAME")
        carrier = message["flags"] & IFF_UP_LOWER_UP == IFF_UP_LOWER_UP
        mac = message.get_attr("IFLA_ADDRESS") or ""
        known = [(n, link) for n, link in self._links.items() if link.index == message["index"]]
        old_name, old = known[0] if known else (name, None)
        if old_name != name:
            self._forget(old_name)
        link = Link(message["index"], mac, carrier, old.addresses if old else [])
        changed = self._links.get(name) != link
        self._links[name] = link
        if changed:
            self._on_change(name)

    def _forget(self, name: str) -> None:
        if self._links.pop(name, None):
            self._on_change(name)

    def _address(self, message: Any, *, new: bool) -> None:
        found = [(name, link) for name, link in self._links.items() if link.index == message["index"]]
        if not found or message["scope"] != SCOPE_UNIVERSE:
            return
        name, link = found[0]
        flags = message.get_attr("IFA_FLAGS") or message["flags"]
        address = message.get_attr("IFA_LOCAL") or message.get_attr("IFA_ADDRESS")
        usable = new and not flags & IFA_F_UNUSABLE
        if usable == (address in link.addresses):
            return
        if usable:
            link.addresses.append(address)
        else:
            link.addresses.remove(address)
        self._on_change(name)
