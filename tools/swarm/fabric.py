"""The fabric of a swarm: rails over leaves and spines, which path a port takes, and what its links do to packets.

Several pods have leaves and spines of their own each, and every core has a link to each spine of each pod.
"""

from dataclasses import dataclass
from functools import lru_cache
from ipaddress import IPv4Address
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from manager.fabric.routes import DirectedLink
from manager.faults.finding import cable

NO_LINK = -1
MOST_NAMES = 65_536

Indices = NDArray[np.int64]
_FIRST_NIC, _FIRST_LEAF, _FIRST_SPINE, _FIRST_CORE = (
    int(IPv4Address(first)) for first in ("10.0.0.1", "172.16.0.1", "172.24.0.1", "172.31.0.1")
)
_SPINE, _CORE, _FAR_SPINE = 0, 0xD6E8FEB86659FD93, 0xA0761D6478BD642F
"""What switches of each tier mix into their hashes, so that those of one tier choose without regard to the others."""


@dataclass(frozen=True, kw_only=True)
class Size:
    """How large it is, and what is in it.

    Attributes:
        nics: of the whole fleet; hosts have `nics_per_host` of them, each on the leaf of another rail.
        pods: which have as many hosts each, one pod after another.
        hosts_per_leaf: as many hosts share their leaves.
        spines: of a pod; each has links to all leaves of it.
        cores: where there are several pods; each has links to all spines.
        line_bps: what each link carries.
        queue_pairs: by which each NIC sends.
        peers: NICs to which it does, of its job and its rail.
        job_hosts: hosts of each job, one after another.
    """

    nics: int
    pods: int = 1
    nics_per_host: int = 8
    hosts_per_leaf: int = 32
    spines: int = 32
    cores: int = 8
    line_bps: float = 400e9
    queue_pairs: int = 16
    peers: int = 4
    job_hosts: int = 16

    @property
    def hosts(self) -> int:
        """All of them."""
        return self.nics // self.nics_per_host

    @property
    def pod_hosts(self) -> int:
        """Those of a pod."""
        return self.hosts // self.pods

    @property
    def pod_leaves(self) -> int:
        """Those of a pod."""
        return -(-self.pod_hosts // self.hosts_per_leaf) * self.nics_per_host

    @property
    def leaf_links(self) -> int:
        """Between leaves and spines, of all pods, in one direction."""
        return self.pods * self.pod_leaves * self.spines

    @property
    def core_links(self) -> int:
        """Between spines and cores, in one direction."""
        return self.pods * self.spines * self.cores if self.pods > 1 else 0

    @property
    def links(self) -> int:
        """Directed ones: of the NICs, the leaves and the spines, up and down."""
        return 2 * (self.nics + self.leaf_links + self.core_links)


class Cable(NamedTuple):
    """A link both ways: as findings name it, and the numbers of its directions."""

    name: str
    links: Indices


def nic_address(nic: int) -> str:
    """Of a NIC by its number."""
    return str(IPv4Address(_FIRST_NIC + nic))


def nic_of(address: str) -> int:
    """The number of the NIC that has an address."""
    return int(IPv4Address(address)) - _FIRST_NIC


@lru_cache(MOST_NAMES)
def leaf_address(leaf: int) -> str:
    """From which a leaf answers; those of all pods are numbered one after another."""
    return str(IPv4Address(_FIRST_LEAF + leaf))


@lru_cache(MOST_NAMES)
def spine_address(spine: int) -> str:
    """From which a spine answers; those of all pods are numbered one after another."""
    return str(IPv4Address(_FIRST_SPINE + spine))


@lru_cache(MOST_NAMES)
def core_address(core: int) -> str:
    """From which a core answers."""
    return str(IPv4Address(_FIRST_CORE + core))


class SwarmFabric:
    """Links and what they do; links are numbered: all up from NICs, down to them, up from leaves, down, up from spines, down.

    Attributes:
        size: how large it is.
        loss: the share of packets that each directed link drops, shape (links + 1,); that of no link, the last, is 0.
        queue_ns: how long each link's queue is in the mean, shape (links + 1,).
    """

    def __init__(self, size: Size) -> None:
        self.size = size
        self.loss = np.zeros(size.links + 1)
        self.queue_ns = np.zeros(size.links + 1)

    def pod_of(self, nic: Indices) -> Indices:
        """The pod of each NIC."""
        pod: Indices = nic // (self.size.pod_hosts * self.size.nics_per_host)
        return pod

    def leaf_of(self, nic: Indices) -> Indices:
        """The leaf of each NIC."""
        host, rail = np.divmod(nic, self.size.nics_per_host)
        pod, place = np.divmod(host, self.size.pod_hosts)
        group = place // self.size.hosts_per_leaf
        leaf: Indices = pod * self.size.pod_leaves + group * self.size.nics_per_host + rail
        return leaf

    def switches(self, src: Indices, dst: Indices, sport: Indices) -> Indices:
        """The leaf, the spine, the core, the spine and the leaf that each path crosses, shape (paths, 5).

        NO_LINK stands where it does not: within a pod the second spine is the first, between NICs of one leaf there
        is none.
        """
        size = self.size
        here, there = self.leaf_of(src), self.leaf_of(dst)
        from_pod, to_pod = self.pod_of(src), self.pod_of(dst)
        up = from_pod * size.spines + _chosen(_SPINE, src, dst, sport, size.spines)
        if size.pods == 1:
            core, down = np.full_like(up, NO_LINK), up
        else:
            apart = from_pod != to_pod
            core = np.where(apart, _chosen(_CORE, src, dst, sport, size.cores), NO_LINK)
            far = to_pod * size.spines + _chosen(_FAR_SPINE, src, dst, sport, size.spines)
            down = np.where(apart, far, up)
        found = np.stack([here, up, core, down, there], axis=1)
        found[here == there, 1:4] = NO_LINK
        return found

    def path(self, src: Indices, dst: Indices, sport: Indices) -> Indices:
        """The links of each path in order, NO_LINK where there are fewer, shape (paths, 4); (paths, 6) with several pods."""
        size = self.size
        here, up, core, down, there = self.switches(src, dst, sport).T
        above = [self._leaf_link(here, up), self._leaf_link(there, down) + size.leaf_links]
        if size.pods > 1:
            over = [self._core_link(up, core), self._core_link(down, core) + size.core_links]
            above[1:1] = [np.where(core == NO_LINK, NO_LINK, links) for links in over]
        above = [np.where(up == NO_LINK, NO_LINK, links) for links in above]
        return np.stack([src, *above, size.nics + dst], axis=1)

    def leaf_cable(self, leaf: int, spine: int) -> Cable:
        """Between a leaf and a spine of one pod, as they are numbered over all pods."""
        up = int(self._leaf_link(np.array(leaf), np.array(spine)))
        name = cable(DirectedLink(leaf_address(leaf), spine_address(spine))).name
        return Cable(name, np.array([up, up + self.size.leaf_links]))

    def core_cable(self, spine: int, core: int) -> Cable:
        """Between a spine, as they are numbered over all pods, and a core."""
        up = int(self._core_link(np.array(spine), np.array(core)))
        name = cable(DirectedLink(spine_address(spine), core_address(core))).name
        return Cable(name, np.array([up, up + self.size.core_links]))

    def hops(self, src: Indices, dst: Indices, sport: Indices) -> list[list[str | None]]:
        """The switches of each path, by what answers to a trace."""
        found: list[list[str | None]] = []
        for here, up, core, down, there in self.switches(src, dst, sport).tolist():
            if here == there:
                found.append([leaf_address(here)])
                continue
            over = [] if core == NO_LINK else [core_address(core), spine_address(down)]
            found.append([leaf_address(here), spine_address(up), *over, leaf_address(there)])
        return found

    def _leaf_link(self, leaf: Indices, spine: Indices) -> Indices:
        """Up from a leaf; the way back is `leaf_links` further."""
        link: Indices = 2 * self.size.nics + leaf * self.size.spines + spine % self.size.spines
        return link

    def _core_link(self, spine: Indices, core: Indices) -> Indices:
        """Up from a spine; the way back is `core_links` further."""
        first = 2 * (self.size.nics + self.size.leaf_links)
        link: Indices = first + spine * self.size.cores + core
        return link


def _chosen(salt: int, src: Indices, dst: Indices, sport: Indices, count: int) -> Indices:
    """Which of so many next hops packets take: by a hash, as switches with ECMP do."""
    mixed = (src.astype(np.uint64) << np.uint64(40)) ^ (dst.astype(np.uint64) << np.uint64(16))
    mixed ^= sport.astype(np.uint64) ^ np.uint64(salt)
    mixed *= np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)
    chosen: Indices = ((mixed >> np.uint64(32)) % np.uint64(count)).astype(np.int64)
    return chosen
