"""From probed pairs to each host's document: addresses, ports that select paths, and rates."""

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Literal

import msgspec
import numpy as np

from cwdp.shared.bus.messages import Desired, Nic, ProbeEdge, nic_id
from manager.probing.probe_graph import GraphNic, Pairs, build

FIRST_PORT = 49152
PORT_MASK = 0x3FFF
_DRAWN = tuple(range(FIRST_PORT, FIRST_PORT + PORT_MASK + 1))
"""Those that may be drawn, for all pairs the same objects: of a large fleet a million are kept."""

MOST_AHEAD = 2**32
"""Versions: a change of every host's document each millisecond for 50 days."""

UD_PAIRS_PER_S = 200.0
"""Both ends of a probe by UD queue pairs are programs in user space, and a NIC answers as many as it sends."""

PortChoice = Callable[[str, str, list[int]], list[int]]
"""From a NIC and a destination address: as many ports as those that would do, over different paths if it can."""

Family = Literal["4", "6", "both"]
Member = tuple[str, Nic]


def graph_nics(members: Iterable[Member]) -> list[GraphNic]:
    """Members as nodes of the probe graph."""
    return [
        GraphNic(
            name=nic_id(host, nic.ifname),
            host=host,
            families=(nic.ipv4 is not None) | (nic.ipv6 is not None) << 1,
        )
        for host, nic in members
    ]


def build_pairs(members: Sequence[Member], *, degree: int, seed: int) -> Pairs:
    """The probe graph of each transport by itself, since no probe of one is answered by the other.

    Returns:
        Pairs of indices into `members`, int64, shape (pairs, 2).
    """
    parts = []
    for transport in ("xdp", "ud"):
        mine = np.array([i for i, (_, nic) in enumerate(members) if nic.transport == transport], np.int64)
        pairs = build(graph_nics([members[i] for i in mine.tolist()]), degree=degree, seed=seed)
        parts.append(mine[pairs])
    return np.concatenate(parts)


def edges_by_host(
    members: Sequence[Member],
    pairs: Pairs,
    *,
    family: Family,
    paths: int,
    pairs_per_s: float,
    choose: PortChoice = lambda _src, _dst_addr, ports: ports,
) -> dict[str, list[ProbeEdge]]:
    """What each host probes: both ends of a pair initiate, over the same paths with the ports swapped.

    Args:
        members: (host, NIC), in the order that `pairs` indexes.
        pairs: int64, shape (pairs, 2).
        family: Which addresses a pair uses that has both; "both" alternates over the pairs.
        paths: Source ports of each pair, each way.
        pairs_per_s: Probe pairs of one NIC, divided over its peers; at most UD_PAIRS_PER_S of one by UD queue pairs.
        choose: Changes the ports of one direction, where their paths are known.
    """
    return EdgeMaker(family=family, paths=paths, pairs_per_s=pairs_per_s, choose=choose).make(members, pairs)


class EdgeMaker:
    """Makes what hosts probe again and again; an edge that stays the same is the same object as before.

    Args:
        family, paths, pairs_per_s, choose: as for `edges_by_host`.
    """

    def __init__(self, *, family: Family, paths: int, pairs_per_s: float, choose: PortChoice) -> None:
        self._family, self._paths, self._pairs_per_s, self._choose = family, paths, pairs_per_s, choose
        self._members: dict[str, Member] = {}
        self._ends: dict[tuple[str, str], _Ends] = {}
        self._by_host: dict[str, list[ProbeEdge]] = {}

    @property
    def paths(self) -> int:
        """Source ports of each pair, each way."""
        return self._paths

    @paths.setter
    def paths(self, paths: int) -> None:
        if paths != self._paths:
            self._paths = paths
            self._ends.clear()

    def make(self, members: Sequence[Member], pairs: Pairs) -> dict[str, list[ProbeEdge]]:
        """See `edges_by_host`; a host's list is the same as before where all of its edges are."""
        names = [_name(member) for member in members]
        self._members = {
            name: member if (known := self._members.get(name)) is None or known != member else known
            for name, member in zip(names, members, strict=True)
        }
        degree = np.bincount(pairs.ravel(), minlength=len(members)).tolist()
        edges: dict[str, list[ProbeEdge]] = {host: [] for host, _ in members}
        before, self._ends = self._ends, {}
        for a, b in pairs.tolist():
            first, second = (a, b) if names[a] <= names[b] else (b, a)
            key = names[first], names[second]
            one, other = self._members[key[0]], self._members[key[1]]
            ends = before.get(key)
            if ends is None or ends.first is not one or ends.second is not other:
                ends = self._ends_of(one, other)
            self._ends[key] = ends
            there, back = ends.edges(key, (degree[first], degree[second]), self._choose)
            edges[one[0]].append(there)
            edges[other[0]].append(back)
        kept = self._by_host
        self._by_host = {host: kept[host] if kept.get(host) == mine else mine for host, mine in edges.items()}
        return dict(self._by_host)

    def _ends_of(self, first: Member, second: Member) -> "_Ends":
        key = _pair_key(first, second)
        ports = draw_ports(key, 2 * self._paths)
        return _Ends(
            first=first,
            second=second,
            addresses=_addresses(first, second, self._family),
            own=(_own_ports(first, key, self._paths), _own_ports(second, key, self._paths)),
            usual=(ports[: self._paths], ports[self._paths :]),
            rates=(_rate(first[1], self._pairs_per_s), _rate(second[1], self._pairs_per_s)),
        )


@dataclass(kw_only=True)
class _Ends:
    """A pair that is probed: what its edges are made of but for what changes with the graph, and those made last.

    Attributes:
        first, second: its NICs, in order of name.
        addresses: theirs.
        own: ports that each is bound to; nothing where it may have any.
        usual: the ports to take there and back where nothing speaks for others.
        rates: probe pairs that each sends, to all of its peers.
    """

    first: Member
    second: Member
    addresses: tuple[str, str]
    own: tuple[list[int], list[int]]
    usual: tuple[list[int], list[int]]
    rates: tuple[float, float]
    made_of: tuple[list[int], list[int], tuple[int, int]] | None = None
    made: tuple[ProbeEdge, ProbeEdge] | None = None

    def edges(
        self, names: tuple[str, str], degrees: tuple[int, int], choose: PortChoice
    ) -> tuple[ProbeEdge, ProbeEdge]:
        """From the first to the second, and back."""
        here_addr, there_addr = self.addresses
        there = self.own[0] or choose(names[0], there_addr, self.usual[0])
        back = self.own[1] or choose(names[1], here_addr, self.usual[1])
        made_of = there, back, degrees
        if self.made is None or self.made_of != made_of:
            count = min(len(there), len(back))
            self.made = (
                self._edge(names, self.addresses, (there[:count], back[:count]), degrees[0], 0),
                self._edge(names[::-1], self.addresses[::-1], (back[:count], there[:count]), degrees[1], 1),
            )
            self.made_of = list(there), list(back), degrees
        return self.made

    def _edge(
        self,
        names: tuple[str, ...],
        addresses: tuple[str, ...],
        ports: tuple[list[int], list[int]],
        degree: int,
        src: int,
    ) -> ProbeEdge:
        dst = (self.second, self.first)[src][1]
        return ProbeEdge(
            src=names[0],
            dst=names[1],
            src_addr=addresses[0],
            dst_addr=addresses[1],
            sports=ports[0],
            reply_sports=ports[1],
            pairs_per_s=self.rates[src] / degree,
            dst_ud=dst.ud,
        )


class Documents:
    """The document of every host, with a version that rises only when its content changes.

    A version that a host says it follows counts only where some manager can have written it: at most `MOST_AHEAD`
    above what it was given here.
    """

    def __init__(self) -> None:
        self._current: dict[str, Desired] = {}

    def update(self, wanted: Iterable[Desired], known_versions: Mapping[str, int]) -> list[Desired]:
        """The documents that changed.

        A host that is in neither `wanted` nor `known_versions` is forgotten; one that is in the latter only
        is told to do nothing.

        Args:
            wanted: What hosts should do, whatever the version.
            known_versions: The version that each host says it follows; ours must not be lower.
        """
        changed = []
        by_host = {host: Desired(host=host, version=0, probes=[]) for host in known_versions}
        by_host |= {document.host: document for document in wanted}
        for host, document in by_host.items():
            current = self._current.get(host)
            version = current.version if current else 0
            known = _credible(known_versions.get(host, 0), version)
            if current != msgspec.structs.replace(document, version=version) or version < known:
                self._current[host] = msgspec.structs.replace(document, version=max(known, version) + 1)
                changed.append(self._current[host])
        for host in self._current.keys() - by_host.keys():
            del self._current[host]
        return changed

    def overtaken(self, known_versions: Mapping[str, int]) -> list[Desired]:
        """Documents that hosts would not take, as they follow a higher version of an earlier manager's."""
        raised = [
            msgspec.structs.replace(document, version=known + 1)
            for host, document in self._current.items()
            if document.version < (known := _credible(known_versions.get(host, 0), document.version))
        ]
        self._current.update((document.host, document) for document in raised)
        return raised


def _credible(claimed: int, version: int) -> int:
    """The version that a host says it follows, 0 where none can have come that far above its document's."""
    return claimed if claimed <= version + MOST_AHEAD else 0


def _addresses(src: Member, dst: Member, family: Family) -> tuple[str, str]:
    """The addresses of the pair in the family that it uses; both ends come to the same one."""
    by_family = {"4": (src[1].ipv4, dst[1].ipv4), "6": (src[1].ipv6, dst[1].ipv6)}
    if family == "both":
        key = _pair_key(*sorted((src, dst), key=_name))
        family = "6" if blake2b(key, digest_size=1).digest()[0] & 1 else "4"
    for choice in (by_family[family], *by_family.values()):
        here, there = choice
        if here is not None and there is not None:
            return here, there
    raise AssertionError("a pair without an address family in common")


def _own_ports(member: Member, key: bytes, count: int) -> list[int]:
    """At most so many of the ports that a NIC's UD queue pairs have, from another one on for each peer; empty for any."""
    ports = () if member[1].ud is None else member[1].ud.sports
    start = blake2b(key, digest_size=1).digest()[0] % len(ports) if ports else 0
    return [*ports[start:], *ports[:start]][:count]


def _rate(nic: Nic, pairs_per_s: float) -> float:
    return min(pairs_per_s, UD_PAIRS_PER_S) if nic.transport == "ud" else pairs_per_s


def _pair_key(first: Member, second: Member) -> bytes:
    return "\0".join(_name(member) for member in (first, second)).encode()


def _name(member: Member) -> str:
    return nic_id(member[0], member[1].ifname)


def draw_ports(key: bytes, count: int) -> list[int]:
    """`count` different ephemeral ports, the same for the same key."""
    ports: dict[int, None] = {}
    turn = 0
    while len(ports) < count:
        digest = blake2b(key, digest_size=64, salt=turn.to_bytes(2, "little")).digest()
        for drawn in struct.unpack("<32H", digest):
            ports[_DRAWN[drawn & PORT_MASK]] = None
            if len(ports) == count:
                break
        turn += 1
    return list(ports)
