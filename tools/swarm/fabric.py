"""The fabric of a swarm: rails over leaves and spines, which path a port takes, and what its links do to packets."""

from dataclasses import dataclass
from ipaddress import IPv4Address

import numpy as np
from numpy.typing import NDArray

from manager.fabric.routes import DirectedLink
from manager.faults.finding import cable

NO_LINK = -1
MOST_LINKS = 4
"""Of a path: to the leaf, to the spine, to the other leaf, to the other NIC."""

Indices = NDArray[np.int64]
_FIRST_NIC, _FIRST_LEAF, _FIRST_SPINE = (
    int(IPv4Address(first)) for first in ("10.0.0.1", "172.16.0.1", "172.31.0.1")
)


@dataclass(frozen=True, kw_only=True)
class Size:
    """How large it is, and what is in it.

    Attributes:
        nics: of the whole fleet; hosts have `nics_per_host` of them, each on the leaf of another rail.
        hosts_per_leaf: as many hosts share their leaves.
        spines: each has links to all leaves.
        line_bps: what each link carries.
        queue_pairs: by which each NIC sends.
        peers: NICs to which it does, of its job and its rail.
        job_hosts: hosts of each job, one after another.
    """

    nics: int
    nics_per_host: int = 8
    hosts_per_leaf: int = 32
    spines: int = 32
    line_bps: float = 400e9
    queue_pairs: int = 16
    peers: int = 4
    job_hosts: int = 16

    @property
    def hosts(self) -> int:
        """All of them."""
        return self.nics // self.nics_per_host

    @property
    def leaves(self) -> int:
        """All of them."""
        return -(-self.hosts // self.hosts_per_leaf) * self.nics_per_host

    @property
    def links(self) -> int:
        """Directed ones: of the NICs up and down, of the leaves up and down."""
        return 2 * self.nics + 2 * self.leaves * self.spines


def nic_address(nic: int) -> str:
    """Of a NIC by its number."""
    return str(IPv4Address(_FIRST_NIC + nic))


def nic_of(address: str) -> int:
    """The number of the NIC that has an address."""
    return int(IPv4Address(address)) - _FIRST_NIC


def leaf_address(leaf: int) -> str:
    """From which a leaf answers."""
    return str(IPv4Address(_FIRST_LEAF + leaf))


def spine_address(spine: int) -> str:
    """From which a spine answers."""
    return str(IPv4Address(_FIRST_SPINE + spine))


class SwarmFabric:
    """Links and what they do; links are numbered.

    Attributes:
        size: how large it is.
        loss: the share of packets that each directed link drops, shape (links + 1,); that of no link, the last, is 0.
        queue_ns: how long each link's queue is in the mean, shape (links + 1,).
    """

    def __init__(self, size: Size) -> None:
        self.size = size
        self.loss = np.zeros(size.links + 1)
        self.queue_ns = np.zeros(size.links + 1)

    def leaf_of(self, nic: Indices) -> Indices:
        """The leaf of each NIC."""
        host, rail = np.divmod(nic, self.size.nics_per_host)
        leaf: Indices = host // self.size.hosts_per_leaf * self.size.nics_per_host + rail
        return leaf

    def spine_of(self, src: Indices, dst: Indices, sport: Indices) -> Indices:
        """Over which spine packets between leaves go: by a hash, as switches with ECMP do."""
        mixed = (src.astype(np.uint64) << np.uint64(40)) ^ (dst.astype(np.uint64) << np.uint64(16))
        mixed = (mixed ^ sport.astype(np.uint64)) * np.uint64(0x9E3779B97F4A7C15)
        mixed = (mixed ^ (mixed >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)
        spine: Indices = ((mixed >> np.uint64(32)) % np.uint64(self.size.spines)).astype(np.int64)
        return spine

    def path(self, src: Indices, dst: Indices, sport: Indices) -> Indices:
        """The links of each path in order, shape (paths, MOST_LINKS), NO_LINK where there are fewer."""
        here, there = self.leaf_of(src), self.leaf_of(dst)
        spine = self.spine_of(src, dst, sport)
        up = self.leaf_link(here, spine)
        down = self.leaf_link(there, spine) + self.size.leaves * self.size.spines
        links = np.stack([src, up, down, self.size.nics + dst], axis=1)
        links[here == there, 1:3] = NO_LINK
        return links

    def leaf_link(self, leaf: Indices | int, spine: Indices | int) -> Indices:
        """The link from a leaf to a spine; the way back is `leaves * spines` further."""
        link: Indices = np.asarray(2 * self.size.nics + np.asarray(leaf) * self.size.spines + spine, np.int64)
        return link

    def both_ways(self, leaf: int, spine: int) -> Indices:
        """Both directions of the link between a leaf and a spine."""
        up = int(self.leaf_link(leaf, spine))
        return np.array([up, up + self.size.leaves * self.size.spines])

    def cable_name(self, leaf: int, spine: int) -> str:
        """As findings name that link."""
        return cable(DirectedLink(leaf_address(leaf), spine_address(spine))).name

    def hops(self, src: int, dst: int, sport: int) -> list[str | None]:
        """The switches of a path, by what answers to a trace."""
        one, other = np.array([src]), np.array([dst])
        here, there = int(self.leaf_of(one)[0]), int(self.leaf_of(other)[0])
        if here == there:
            return [leaf_address(here)]
        spine = int(self.spine_of(one, other, np.array([sport]))[0])
        return [leaf_address(here), spine_address(spine), leaf_address(there)]
