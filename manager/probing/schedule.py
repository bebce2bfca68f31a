"""From probed pairs to each host's document: addresses, ports that select paths, and rates."""

import struct
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import Literal

import msgspec
import numpy as np

from cwdp.shared.bus.messages import Desired, Nic, ProbeEdge, nic_id
from manager.probing.probe_graph import GraphNic, Pairs, build

FIRST_PORT = 49152
PORT_MASK = 0x3FFF
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
    degree = defaultdict[int, int](int)
    for a, b in pairs.tolist():
        degree[a] += 1
        degree[b] += 1
    edges: dict[str, list[ProbeEdge]] = {host: [] for host, _ in members}
    for a, b in pairs.tolist():
        first, second = sorted((a, b), key=lambda i: _name(members[i]))
        key = _pair_key(members[first], members[second])
        ports = draw_ports(key, 2 * paths)
        here_addr, there_addr = _addresses(members[first], members[second], family)
        there = _own_ports(members[first], key, paths) or choose(
            _name(members[first]), there_addr, ports[:paths]
        )
        back = _own_ports(members[second], key, paths) or choose(
            _name(members[second]), here_addr, ports[paths:]
        )
        count = min(len(there), len(back))
        for src, dst, src_addr, dst_addr, sports, reply_sports in (
            (first, second, here_addr, there_addr, there, back),
            (second, first, there_addr, here_addr, back, there),
        ):
            edge = ProbeEdge(
                src=_name(members[src]),
                dst=_name(members[dst]),
                src_addr=src_addr,
                dst_addr=dst_addr,
                sports=sports[:count],
                reply_sports=reply_sports[:count],
                pairs_per_s=_rate(members[src][1], pairs_per_s) / degree[src],
                dst_ud=members[dst][1].ud,
            )
            edges[members[src][0]].append(edge)
    return edges


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
    return list(_drawn(key, count))


@lru_cache(65_536)
def _drawn(key: bytes, count: int) -> tuple[int, ...]:
    ports: dict[int, None] = {}
    turn = 0
    while len(ports) < count:
        digest = blake2b(key, digest_size=64, salt=turn.to_bytes(2, "little")).digest()
        ports.update(dict.fromkeys(FIRST_PORT + (v & PORT_MASK) for v in struct.unpack("<32H", digest)))
        turn += 1
    return tuple(ports)[:count]
