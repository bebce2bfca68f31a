"""Who probes whom: a random graph over NICs, nearly regular, connected, and the same for the same NICs.

NICs are put on a few rings, each ring an order by a hash of (seed, ring, name), and every NIC is joined to
its neighbours on each ring. One ring alone connects all; a union of random rings is an expander with
overwhelming probability (Friedman, "A proof of Alon's second eigenvalue conjecture", 2008). What the
rings cannot give (a pair twice, two NICs of one host, no address family in common) is made up for by
edge switches that keep all other degrees.

The graph depends on the set of NICs and the seed only, so a restarted manager arrives at the same one, and
a NIC that comes or goes disturbs its ring neighbours only: about 3/2 `degree` edges change on average,
up to twice that among a few dozen NICs, where rings collide more.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

PASSES = 64

Pairs = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class GraphNic:
    """A NIC as the graph sees it. `families` is a bit set: 1 for IPv4, 2 for IPv6."""

    name: str
    host: str
    families: int


def build(nics: Sequence[GraphNic], *, degree: int, seed: int) -> Pairs:
    """Choose the probed pairs.

    Args:
        nics: The NICs, in any order; names are unique.
        degree: Peers of each NIC, fewer where there are not enough to choose from; at least 2.
        seed: Another seed gives another graph.

    Returns:
        Pairs of indices into `nics`, int64, shape (pairs, 2), each pair once, sorted.
    """
    assert degree >= 2
    if len(nics) < 2:
        return np.empty((0, 2), np.int64)
    by_name = sorted(range(len(nics)), key=lambda i: nics[i].name)
    draft = _Draft([nics[i] for i in by_name], degree, seed)
    draft.fill()
    draft.connect()
    original = np.asarray(by_name, np.int64)
    pairs = np.sort(original[draft.pairs()], axis=1)
    return pairs[np.lexsort((pairs[:, 1], pairs[:, 0]))]


class _Draft:
    """A graph in the making over NICs in order of name."""

    def __init__(self, nics: Sequence[GraphNic], degree: int, seed: int) -> None:
        self._degree = degree
        hosts = {host: i for i, host in enumerate(dict.fromkeys(nic.host for nic in nics))}
        self._host = np.array([hosts[nic.host] for nic in nics], np.int64)
        self._families = np.array([nic.families for nic in nics], np.int64)
        self._hash = np.array([name_hash(nic.name, seed) for nic in nics], np.uint64)
        first = self._candidates()
        self._peers: list[set[int]] = [set() for _ in nics]
        for a, b in first.tolist():
            self._add(a, b)

    def pairs(self) -> Pairs:
        """All pairs, each once, shape (pairs, 2)."""
        flat = [(a, b) for a, peers in enumerate(self._peers) for b in peers if a < b]
        return np.array(flat, np.int64).reshape(-1, 2)

    def fill(self) -> None:
        """Give NICs that have too few peers more, while that is possible."""
        wanting = deque(sorted((i for i in range(len(self._peers)) if self._lacks(i)), key=self._rank))
        passes_left = PASSES
        while wanting:
            partners = [b for b in wanting if self._lacks(b)]
            a = wanting.popleft()
            while self._lacks(a):
                if self._join(a, partners) or self._wedge(a, partners):
                    continue
                deprived = self._pass_on(a, passes_left) if passes_left > 0 else None
                if deprived is None:
                    break
                passes_left -= 1
                wanting.append(deprived)

    def connect(self) -> None:
        """Join separate parts by switching one edge of each, where addresses allow it."""
        while True:
            count, part = self._parts()
            if count == 1 or not any(self._bridge(0, other, part) for other in range(1, count)):
                return

    def _candidates(self) -> Pairs:
        """The rings' legal edges, each once, never more than `degree` at a NIC, shape (pairs, 2)."""
        n = self._host.size
        if n - 1 <= self._degree:
            pairs = np.stack(np.triu_indices(n, 1), axis=1).astype(np.int64)
            return pairs[self._legal_pairs(pairs)]
        rings = [self._ring(k) for k in range(self._degree // 2)]
        if self._degree % 2:
            rings.append(self._ring(self._degree // 2)[::2][: n // 2])
        pairs = np.sort(np.concatenate(rings), axis=1)
        _, first = np.unique(pairs[:, 0] * n + pairs[:, 1], return_index=True)
        distinct: Pairs = pairs[np.sort(first)]
        return distinct[self._legal_pairs(distinct)]

    def _ring(self, k: int) -> Pairs:
        """The edges of ring `k`, shape (n, 2).

        Where some NICs have IPv4 only and others IPv6 only, each kind takes a stretch of the ring of its
        own, and those with both are strewn over the two, another way on each ring.
        """
        place = mix(self._hash + np.uint64((k + 1) * _GOLDEN % 2**64))
        side = np.where(self._families == 3, place & np.uint64(1), self._families == 2)
        if not (np.any(self._families == 1) and np.any(self._families == 2)):
            side[:] = 0
        order: NDArray[np.int64] = np.lexsort((place, side)).astype(np.int64)
        ring: Pairs = np.stack([order, np.roll(order, -1)], axis=1)
        return ring

    def _legal_pairs(self, pairs: Pairs) -> NDArray[np.bool_]:
        a, b = pairs[:, 0], pairs[:, 1]
        legal: NDArray[np.bool_] = (self._host[a] != self._host[b]) & (
            self._families[a] & self._families[b] != 0
        )
        return legal

    def _free(self, a: int, b: int) -> bool:
        """Whether a and b may be joined and are not yet."""
        return (
            b not in self._peers[a]
            and bool(self._host[a] != self._host[b])
            and bool(self._families[a] & self._families[b])
        )

    def _lacks(self, a: int) -> bool:
        return len(self._peers[a]) < self._degree

    def _rank(self, a: int) -> int:
        return int(self._hash[a])

    def _add(self, a: int, b: int) -> None:
        self._peers[a].add(b)
        self._peers[b].add(a)

    def _remove(self, a: int, b: int) -> None:
        self._peers[a].discard(b)
        self._peers[b].discard(a)

    def _join(self, a: int, partners: Sequence[int]) -> bool:
        """Join a to another NIC that lacks a peer."""
        for b in partners:
            if b != a and self._lacks(b) and self._free(a, b):
                self._add(a, b)
                return True
        return False

    def _wedge(self, a: int, partners: Sequence[int]) -> bool:
        """Replace an edge (x, y) by (a, x) and (b, y), where b lacks a peer too, or is a itself."""
        others = [b for b in partners if b != a and self._lacks(b)]
        if len(self._peers[a]) + 2 <= self._degree:
            others.append(a)
        for x, y in self._edges_from(a) if others else ():
            for u, v in ((x, y), (y, x)):
                if not self._free(a, u):
                    continue
                b = next((b for b in others if b != u and b != v and self._free(b, v)), None)  # noqa: PLR1714
                if b is not None:
                    self._remove(u, v)
                    self._add(a, u)
                    self._add(b, v)
                    return True
        return False

    def _pass_on(self, a: int, turn: int) -> int | None:
        """Join a to a NIC that gives up a peer for it, and return that peer, which lacks one now."""
        free = [x for x in range(len(self._peers)) if x != a and self._free(a, x)]
        if not free:
            return None
        x = free[turn % len(free)]
        deprived = sorted(self._peers[x])[turn // len(free) % len(self._peers[x])]
        self._remove(x, deprived)
        self._add(a, x)
        return deprived

    def _edges_from(self, a: int) -> Iterator[tuple[int, int]]:
        """Edges that don't touch a, in an order of a's own that does not depend on who else is there."""
        order = np.argsort(self._hash ^ self._hash[a], kind="stable").tolist()
        for x in order:
            for y in sorted(self._peers[x], key=self._rank):
                if a not in (x, y):
                    yield x, y

    def _parts(self) -> tuple[int, NDArray[np.int32]]:
        n = len(self._peers)
        pairs = self.pairs()
        graph = coo_array((np.ones(len(pairs), np.int8), (pairs[:, 0], pairs[:, 1])), shape=(n, n))
        count, part = connected_components(graph, directed=False)
        return int(count), part

    def _bridge(self, one: int, other: int, part: NDArray[np.int32]) -> bool:
        """Join two parts; a switched edge is taken from a cycle, so that neither part falls apart."""
        left, right = np.flatnonzero(part == one).tolist(), np.flatnonzero(part == other).tolist()
        if self._join_parts(left, right):
            return True
        right_edges = self._cycle_edges(right)
        for a, b in self._cycle_edges(left):
            for c, d in right_edges:
                for u, v in ((c, d), (d, c)):
                    if self._free(a, u) and self._free(b, v):
                        self._remove(a, b)
                        self._remove(c, d)
                        self._add(a, u)
                        self._add(b, v)
                        return True
        return False

    def _join_parts(self, left: list[int], right: list[int]) -> bool:
        lacking = [b for b in right if self._lacks(b)]
        return any(self._join(a, lacking) for a in left if self._lacks(a)) if lacking else False

    def _cycle_edges(self, nodes: list[int]) -> list[tuple[int, int]]:
        """Edges of a part that are outside of one of its spanning trees."""
        parent = {nodes[0]: -1}
        queue = deque(nodes[:1])
        outside = []
        while queue:
            a = queue.popleft()
            for b in sorted(self._peers[a]):
                if b not in parent:
                    parent[b] = a
                    queue.append(b)
                elif a < b and parent[a] != b and parent[b] != a:
                    outside.append((a, b))
        return outside


_GOLDEN = 0x9E3779B97F4A7C15  # 2**64 over the golden ratio


def name_hash(name: str, seed: int) -> int:
    """A NIC's place in the world, 64 bits."""
    key = seed.to_bytes(8, "little", signed=True)
    return int.from_bytes(blake2b(name.encode(), digest_size=8, key=key).digest(), "little")


def mix(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """SplitMix64's finaliser (Steele, Lea, Flood 2014): independent-looking values for each ring."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
