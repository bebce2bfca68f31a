"""The fabric as people know it: switches by tier, links, which NIC sits at which leaf, rails. Pure.

Of Ethernet it is read off the links that paths cross, so a link that no known path crosses is not in it. Of InfiniBand all
links are known.
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from manager.fabric.routes import MARK, DirectedLink, PackedPaths, Routes, is_private

Cable = tuple[str, str]
"""A link without direction, the lower node (or the lower name) first."""


@dataclass(frozen=True)
class Node:
    """A switch. `tier` is 1 for leaves, one more for each step up; `answers` is false for one that is only inferred."""

    name: str
    tier: int
    answers: bool


@dataclass(frozen=True)
class KnownLinks:
    """What is known without any path over it: InfiniBand's fabric.

    Attributes:
        links: each way by itself.
        nics: at their ends.
        leaves: switches all of whose links are known.
    """

    links: tuple[DirectedLink, ...] = ()
    nics: frozenset[str] = frozenset()
    leaves: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Model:
    """What a snapshot of routes says of the fabric.

    Attributes:
        routes: the snapshot.
        nics: every NIC (`HOST/IFNAME`) at an end of a path or of such a link.
        known: links that are known without any path over them.
    """

    routes: Routes
    nics: frozenset[str]
    known: tuple[DirectedLink, ...] = ()

    @cached_property
    def crossed(self) -> tuple[DirectedLink, ...]:
        """Links that some path crosses, by their numbers."""
        paths = self.routes.paths
        if isinstance(paths, PackedPaths):
            numbers = np.flatnonzero(np.bincount(paths.used())).tolist()
        else:
            numbers = sorted({link for links in paths.values() for link in links})
        return tuple(self.routes.links[number] for number in numbers)

    @cached_property
    def links(self) -> frozenset[DirectedLink]:
        """Those that are known, and those that some path crosses, but for those into the unknown of one path alone."""
        return frozenset((*self.known, *(link for link in self.crossed if not is_private(link.b))))

    @cached_property
    def seats(self) -> Mapping[str, tuple[str, ...]]:
        """The switches that each NIC hangs from; one, unless it is connected twice or its links answer differently."""
        found = defaultdict[str, set[str]](set)
        for a, b in self.links:
            if a in self.nics and b not in self.nics:
                found[a].add(b)
            elif b in self.nics and a not in self.nics:
                found[b].add(a)
        return {nic: tuple(sorted(found[nic])) for nic in sorted(found)}

    @cached_property
    def cables(self) -> frozenset[Cable]:
        """Links between switches, both directions as one."""
        tier = {node.name: node.tier for node in self.nodes}
        pairs = ((a, b) for a, b in self.links if a in tier and b in tier)
        return frozenset((a, b) if (tier[a], a) <= (tier[b], b) else (b, a) for a, b in pairs)

    @cached_property
    def nodes(self) -> tuple[Node, ...]:
        """Every switch, leaves first: a tier is the distance from the nearest NIC."""
        beside = defaultdict[str, set[str]](set)
        for a, b in self.links:
            if a not in self.nics and b not in self.nics:
                beside[a].add(b)
                beside[b].add(a)
        tier = {switch: 1 for switches in self.seats.values() for switch in switches}
        edge = list(tier)
        while edge:
            above = sorted({other for switch in edge for other in beside[switch]} - tier.keys())
            tier |= dict.fromkeys(above, tier[edge[0]] + 1)
            edge = above
        nodes = (Node(name, level, not name.startswith(MARK)) for name, level in tier.items())
        return tuple(sorted(nodes, key=lambda node: (node.tier, node.name)))

    @cached_property
    def rails(self) -> Mapping[str, tuple[str, ...]]:
        """The leaves at which the NICs of each interface name sit, where no two names share one; else nothing."""
        leaves = defaultdict[str, set[str]](set)
        for nic, switches in self.seats.items():
            leaves[nic.rpartition("/")[2]].update(switches)
        total = sum(len(switches) for switches in leaves.values())
        if len(leaves) < 2 or len(set().union(*leaves.values())) < total:
            return {}
        return {ifname: tuple(sorted(switches)) for ifname, switches in sorted(leaves.items())}
