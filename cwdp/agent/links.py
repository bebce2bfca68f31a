"""Links and addresses of this network namespace, followed by netlink."""

import asyncio
import ipaddress
import logging
import socket
from collections.abc import Callable, Iterable
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
    name: str
    mac: str
    carrier: bool
    addresses: list[str] = field(default_factory=list)

    def address(self, family: socket.AddressFamily) -> str | None:
        """The first address of a family, in the order that the kernel listed them."""
        version = 4 if family == socket.AF_INET else 6
        return next((a for a in self.addresses if ipaddress.ip_address(a).version == version), None)


class Links:
    """Every interface, as netlink messages tell it one by one.

    Attributes:
        by_index, by_name: the same interfaces.
    """

    def __init__(self) -> None:
        self.by_index: dict[int, Link] = {}
        self.by_name: dict[str, Link] = {}

    def get(self, name: str) -> Link | None:
        """What is known of an interface."""
        return self.by_name.get(name)

    def take(self, message: Any) -> list[str]:
        """Take in one message; the names of the interfaces whose carrier, MAC or address it changed."""
        match message["event"]:
            case "RTM_NEWLINK" | "RTM_DELLINK" if message["family"] != socket.AF_UNSPEC:
                return []  # a bridge speaks of its port, not of the link
            case "RTM_NEWLINK":
                return self._new_link(message)
            case "RTM_DELLINK":
                return self._forget(message.get_attr("IFLA_IFNAME"))
            case "RTM_NEWADDR" | "RTM_DELADDR":
                return self._address(message, new=message["event"] == "RTM_NEWADDR")
        return []

    def changed_since(self, before: "Links") -> list[str]:
        """The names of the interfaces that are not as they were; addresses that are still there keep their order."""
        for index, link in self.by_index.items():
            if old := before.by_index.get(index):
                kept = [address for address in old.addresses if address in link.addresses]
                link.addresses = kept + [a for a in link.addresses if a not in old.addresses]
        names = before.by_name | self.by_name
        return [name for name in names if self.get(name) != before.get(name)]

    def _new_link(self, message: Any) -> list[str]:
        index, name = message["index"], message.get_attr("IFLA_IFNAME")
        carrier = message["flags"] & IFF_UP_LOWER_UP == IFF_UP_LOWER_UP
        mac = message.get_attr("IFLA_ADDRESS") or ""
        old = self.by_index.get(index)
        changed = self._forget(old.name) if old and old.name != name else []
        link = Link(index, name, mac, carrier, old.addresses if old else [])
        if (named := self.by_name.get(name)) != link:
            changed.append(name)
        if named is not None:
            del self.by_index[named.index]
        self.by_index[index] = self.by_name[name] = link
        return changed

    def _forget(self, name: str) -> list[str]:
        link = self.by_name.pop(name, None)
        if link is None:
            return []
        del self.by_index[link.index]
        return [name]

    def _address(self, message: Any, *, new: bool) -> list[str]:
        link = self.by_index.get(message["index"])
        if link is None or message["scope"] != SCOPE_UNIVERSE:
            return []
        flags = message.get_attr("IFA_FLAGS") or message["flags"]
        address = message.get_attr("IFA_LOCAL") or message.get_attr("IFA_ADDRESS")
        usable = new and not flags & IFA_F_UNUSABLE
        if usable == (address in link.addresses):
            return []
        if usable:
            link.addresses.append(address)
        else:
            link.addresses.remove(address)
        return [link.name]


class LinkTable:
    """Every interface by name. `on_change` is called with the name of one whose carrier or address changed."""

    def __init__(self, on_change: Callable[[str], None]) -> None:
        self._links = Links()
        self._on_change = on_change

    def get(self, ifname: str) -> Link | None:
        """What is known of an interface."""
        return self._links.get(ifname)

    def carrier(self, ifname: str) -> bool:
        """Whether an interface is up and has carrier."""
        link = self._links.get(ifname)
        return link is not None and link.carrier

    async def follow(self) -> None:
        """Read the present state, then follow it for ever. What overflowed meanwhile is read anew."""
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
        self.renew([message for dump in (ip.link, ip.addr) async for message in await dump("dump")])

    def renew(self, messages: Iterable[Any]) -> None:
        """Take in all that there is now, links before their addresses; only what differs is told."""
        before, self._links = self._links, Links()
        for message in messages:
            self._links.take(message)
        for name in self._links.changed_since(before):
            self._on_change(name)

    def take(self, message: Any) -> None:
        """Take in one netlink message; those of other kinds are passed over."""
        for name in self._links.take(message):
            self._on_change(name)
