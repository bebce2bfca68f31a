"""The ports of InfiniBand that hosts tell of, and where in which subnet each of them is. No I/O."""

from collections import Counter
from collections.abc import Mapping
from functools import lru_cache
from ipaddress import IPv6Address
from typing import NamedTuple

from cwdp.shared.ib.subnet import SubnetKey
from manager.hosts.members import Members
from manager.ib.balance import End
from manager.ib.paths import Paths
from manager.ib.subnets import Subnets

UNUSABLE = ("claimed_twice", "elsewhere", "lids_differ")
"""Why nothing is planned for a port: two hosts tell of it, it is in no subnet that is read, or has other LIDs there."""


class Port(NamedTuple):
    """One whose programs take LIDs; `row` is its own in its subnet."""

    host: str
    is_up: bool
    end: End
    row: int = -1


class Ports:
    """Of all hosts that do more than observe.

    Attributes:
        by_addr: all that are told of by one host alone.
        placed: those of them that are in a subnet as their hosts say, by its `Subnet.key`.
        paths: of each subnet, by the same.
        unusable: ports by why nothing is planned for them now (`UNUSABLE`).
    """

    def __init__(self, members: Members, subnets: Subnets) -> None:
        self.by_addr: Mapping[str, Port] = {}
        self.placed: Mapping[SubnetKey, list[Port]] = {}
        self.paths: dict[SubnetKey, Paths] = {}
        self.unusable: Counter[str] = Counter(dict.fromkeys(UNUSABLE, 0))
        self._members, self._subnets = members, subnets

    @property
    def version(self) -> int:
        """Another one whenever a subnet is another."""
        return self._subnets.version

    def look(self, now_s: float) -> None:
        """See what there is now."""
        self.unusable = Counter(dict.fromkeys(UNUSABLE, 0))
        self.by_addr = self._told()
        left, before = dict(self.by_addr), self.paths
        self.paths, placed = {}, {}
        for now in self._subnets.now:
            name = now.subnet.key
            paths = self.paths[name] = before.get(name) or Paths(now, now_s)
            paths.see(now, now_s)
            placed[name] = self._placed(paths, left)
        self.placed = placed
        self.unusable["elsewhere"] += len(left)

    def _told(self) -> dict[str, Port]:
        found: dict[str, Port] = {}
        twice: set[str] = set()
        for name, host in self._members.hosts.items():
            for one in [] if host.hello.observe_only else host.hello.ib_ports:
                addr = address(one.gid)
                if addr in found:
                    twice.add(addr)
                found[addr] = Port(name, host.state == "up", End(one.nic, addr, one.lids))
        self.unusable["claimed_twice"] += len(twice)
        return {addr: port for addr, port in found.items() if addr not in twice}

    def _placed(self, paths: Paths, left: dict[str, Port]) -> list[Port]:
        """Take those of a subnet out of `left`."""
        placed = []
        for addr, port in list(left.items()):
            row = paths.row(_guid(addr))
            if row is None:
                continue
            del left[addr]
            there = paths.now.subnet.ports[row]
            if (int(there["lid"]), int(there["lmc"])) == (port.end.lids.lid, port.end.lids.lmc):
                placed.append(port._replace(row=row))
            else:
                self.unusable["lids_differ"] += 1
        return placed


@lru_cache(maxsize=1 << 16)
def address(gid: str) -> str:
    """A GID in the one usual form."""
    return str(IPv6Address(gid))


@lru_cache(maxsize=1 << 16)
def _guid(addr: str) -> int:
    return int(IPv6Address(addr)) & (1 << 64) - 1
