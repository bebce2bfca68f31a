"""Which paths connections over InfiniBand take that are yet to be made, between ports of hosts that both have `lids = true`. No I/O.

Both ends of a connection draw its path from tables of their own and ask nobody (`cwdp/rdma/shim/ib/lids.c`). While the two tables
differ they may draw different paths, and then it fails on devices that check source LIDs. So both hosts are told the same in the
same step, seldom, and only while neither has connected anything of late; at once only where what they were told has no route.
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import lru_cache
from ipaddress import IPv6Address
from itertools import combinations, islice
from typing import NamedTuple, Protocol

from cwdp.shared.bus.messages import Desired, Spread
from manager.hosts.members import Members
from manager.ib.balance import End, spreads, why
from manager.ib.paths import Paths
from manager.ib.quiet import Quiet
from manager.ib.subnets import Subnets
from manager.queue_pairs.verbs import VerbsStore

LOOK_S = 1.0
QUIET_S = 10.0
"""Nothing was connected for so long: agents tell of queue pairs every other second."""

CALM_S = 30.0
"""Between two changes of a pair for the sake of loads."""

SETTLED_S = 5.0
"""Links and tables of a subnet have been the same for so long: a sweep is over."""

MISSING_S = 10.0
"""No host has told of a port for so long: an agent that begins anew takes less."""

MOST_ALL = 64
"""Ports of a subnet of which each may talk to each; in larger ones paths are planned for those that have queue pairs."""

PATHS_AT_ONCE = 1_024
"""Of all pairs that are looked at in one turn."""

MOST_OF_A_HOST = 4_096

REASONS = ("first", "routes", "loads", "gone", "full")
"""Why hosts are told something of a pair: for the first time, as LIDs or routes are others, as loads are; a port is gone; or why
they are told nothing: one of them is told of so many already."""

UNUSABLE = ("claimed_twice", "elsewhere", "lids_differ")
"""Why nothing is planned for a port: two hosts tell of it, it is in no subnet that is read, or has other LIDs there."""

_SHOWN = {
    "first": "for the first time",
    "routes": "for routes",
    "loads": "for loads",
    "gone": "as a port is gone",
}

_Key = tuple[str, str]
"""A NIC of a host, and the address of the far end."""


class Note(Protocol):
    """Keeps an event."""

    def __call__(self, host: str, kind: str, detail: str) -> None:
        """Of a host, or of the fleet."""


class Port(NamedTuple):
    """One whose programs take LIDs; `row` is its own in its subnet."""

    host: str
    is_up: bool
    end: End
    row: int = -1


class IbSpreads:
    """Makes them.

    Args:
        members: the hosts.
        subnets: that are read.
        verbs: queue pairs of programs.
        note: is told of changes.

    Attributes:
        counters: pairs of ports by why their hosts were told something, or nothing (`REASONS`).
        unusable: ports by why nothing is planned for them now (`UNUSABLE`).
        told: what each host is to be told.
    """

    def __init__(self, members: Members, subnets: Subnets, verbs: VerbsStore, note: Note) -> None:
        self.counters: Counter[str] = Counter(dict.fromkeys(REASONS, 0))
        self.unusable: Counter[str] = Counter(dict.fromkeys(UNUSABLE, 0))
        self.told: Mapping[str, list[Spread]] = {}
        self._ends: dict[str, _Key] = {}
        self._members, self._subnets, self._verbs, self._note = members, subnets, verbs, note
        self._spreads: dict[str, dict[_Key, Spread]] = {}
        self._paths: dict[tuple[int, int], Paths] = {}
        self._missing_s: dict[_Key, float] = {}
        self._loads_s: dict[frozenset[str], float] = {}
        self._quiet = Quiet()
        self._looked_s = -math.inf

    def take_up(self, document: Desired) -> None:
        """Go on from what a host was told last."""
        mine = {(one.nic, one.dst_addr): one for one in document.spreads if one.lids is not None}
        if mine:
            self._spreads[document.host] = mine
            self._tell()

    def stand_by(self) -> None:
        """Another manager plans from now on."""
        self._spreads, self._missing_s, self._quiet = {}, {}, Quiet()
        self._tell()

    def shares(self, src_addr: str, dst_addr: str) -> Mapping[int, float]:
        """The part of new connections between two ports that each path takes, by the destination LID; nothing where none is told."""
        host, nic = self._ends.get(src_addr, ("", ""))
        spread = self._spreads.get(host, {}).get((nic, dst_addr))
        if spread is None:
            return {}
        parts = spread.shares or [1.0] * len(spread.sports)
        return {dlid: part / sum(parts) for dlid, part in zip(spread.sports, parts, strict=False)}

    def plan(self, now_s: float) -> bool:
        """Look at all, now and then; whether hosts are to be told something else."""
        if now_s - self._looked_s < LOOK_S:
            return False
        self._looked_s = now_s
        ports = self._ports()
        self._ends = {addr: (port.host, port.end.nic) for addr, port in ports.items()}
        self._quiet.see({port.host for port in ports.values()}, self._verbs, now_s)
        done = Counter(gone=self._let_go(ports, now_s))
        for paths, placed in self._settled(ports, now_s):
            done.update(self._balance(paths, placed, now_s))
        self.counters.update(done)
        told = [f"{done[reason]} {shown}" for reason, shown in _SHOWN.items() if done[reason]]
        if told:
            self._tell()
            self._note(
                "fleet",
                "ib_spread",
                f"pairs of ports whose new connections are spread anew: {', '.join(told)}",
            )
        return bool(told)

    def _tell(self) -> None:
        self.told = {host: list(those.values()) for host, those in self._spreads.items()}

    def _ports(self) -> dict[str, Port]:
        """All that hosts tell of, by address; none that two do."""
        found: dict[str, Port] = {}
        twice: set[str] = set()
        for name, host in self._members.hosts.items():
            for one in [] if host.hello.observe_only else host.hello.ib_ports:
                addr = _address(one.gid)
                if addr in found:
                    twice.add(addr)
                found[addr] = Port(name, host.state == "up", End(one.nic, addr, one.lids))
        self.unusable = Counter(dict.fromkeys(UNUSABLE, 0) | {"claimed_twice": len(twice)})
        return {addr: port for addr, port in found.items() if addr not in twice}

    def _let_go(self, ports: Mapping[str, Port], now_s: float) -> int:
        """Of what was told of ports that are gone; how many pairs that was."""
        nics = set(self._ends.values())
        before, self._missing_s = self._missing_s, {}
        gone = 0
        for host, those in list(self._spreads.items()):
            for nic, addr in list(those):
                lost = [(host, nic)] * ((host, nic) not in nics) + [("", addr)] * (addr not in ports)
                self._missing_s.update((end, before.get(end, now_s)) for end in lost)
                if any(now_s - self._missing_s[end] >= MISSING_S for end in lost):
                    del those[nic, addr]
                    gone += 1
            if not those:
                del self._spreads[host]
        if gone:
            self._loads_s = {pair: at_s for pair, at_s in self._loads_s.items() if pair <= ports.keys()}
        return -(-gone // 2)

    def _settled(self, ports: Mapping[str, Port], now_s: float) -> Iterator[tuple[Paths, list[Port]]]:
        """Subnets to plan for, with the ports that are in them."""
        left = dict(ports)
        self._paths, before = {}, self._paths
        for now in self._subnets.now:
            name = now.subnet.key
            paths = self._paths[name] = before.get(name) or Paths(now, now_s)
            paths.see(now, now_s)
            placed = []
            for addr, port in list(left.items()):
                row = paths.row(_guid(addr))
                if row is None:
                    continue
                del left[addr]
                there = now.subnet.ports[row]
                if (int(there["lid"]), int(there["lmc"])) == (port.end.lids.lid, port.end.lids.lmc):
                    placed.append(port._replace(row=row))
                else:
                    self.unusable["lids_differ"] += 1
            if now.is_fresh and paths.settled_s(now_s) >= SETTLED_S:
                yield paths, placed
        self.unusable["elsewhere"] += len(left)

    def _balance(self, paths: Paths, placed: list[Port], now_s: float) -> Iterator[str]:
        """Change what is told of pairs of one subnet, of some in each turn; why for each."""
        pairs = self._pairs(paths, placed)
        count = PATHS_AT_ONCE >> max((port.end.lids.lmc for port in placed), default=0)
        begin = paths.turn if paths.turn < len(pairs) else 0
        paths.turn = begin + count
        for one, other in islice(pairs, begin, begin + count):
            reason = self._change(one, other, paths, now_s) if one.is_up and other.is_up else None
            if reason is not None:
                yield reason

    def _pairs(self, paths: Paths, placed: list[Port]) -> list[tuple[Port, Port]]:
        """Of ports of different hosts: all, or in a large subnet those that talk to each other or have been told of each other."""
        if len(placed) <= MOST_ALL:
            return [(a, b) for a, b in combinations(placed, 2) if a.host != b.host]
        by_row = {port.row: port for port in placed}
        by_addr = {port.end.addr: port for port in placed}
        by_gid = {IPv6Address(addr).packed: port for addr, port in by_addr.items()}
        owner = paths.now.routes.owner
        found: dict[frozenset[int], tuple[Port, Port]] = {}
        for port in placed:
            told = self._spreads.get(port.host, {})
            others = [by_addr.get(addr) for nic, addr in told if nic == port.end.nic]
            for far in self._verbs.far_ends((port.host, port.end.nic)):
                lid = 0 if any(far[:14]) else int.from_bytes(far[14:], "big")
                others.append(by_row.get(int(owner[lid])) if 0 < lid < len(owner) else by_gid.get(far))
            for other in others:
                if other is not None and other.host != port.host:
                    found.setdefault(frozenset((port.row, other.row)), (port, other))
        return list(found.values())

    def _change(self, one: Port, other: Port, paths: Paths, now_s: float) -> str | None:
        ways = paths.between(one.row, other.row)
        fresh = spreads(one.end, other.end, ways, paths.loads)
        if fresh is None:
            return None
        ends = (one.host, (one.end.nic, other.end.addr)), (other.host, (other.end.nic, one.end.addr))
        mine, theirs = (self._spreads.setdefault(host, {}) for host, _ in ends)
        reason = why((mine.get(ends[0][1]), theirs.get(ends[1][1])), fresh, ways)
        pair = frozenset((one.end.addr, other.end.addr))
        is_quiet = self._quiet.lasts_s(one.host, other.host, now_s) >= QUIET_S
        is_calm = now_s - self._loads_s.get(pair, -math.inf) >= CALM_S
        if reason is None or not (reason == "dead" or (is_quiet and (reason != "loads" or is_calm))):
            return None
        if reason == "first" and max(len(mine), len(theirs)) >= MOST_OF_A_HOST:
            return "full"
        mine[ends[0][1]], theirs[ends[1][1]] = fresh
        self._loads_s[pair] = now_s
        return "routes" if reason == "dead" else reason


@lru_cache(maxsize=1 << 16)
def _address(gid: str) -> str:
    return str(IPv6Address(gid))


@lru_cache(maxsize=1 << 16)
def _guid(addr: str) -> int:
    return int(IPv6Address(addr)) & (1 << 64) - 1
