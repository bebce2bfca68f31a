"""Where each link is in the fabric: the tiers of its ends, its leaf, its rail. Arrays over all links at once. Pure.

The same tiers and rails as those of `manager.fabric.model`, at a cost that a fabric of 100,000 NICs can bear.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from manager.fabric.routes import DirectedLink, is_nic, is_private

NIC, LEAF, UNKNOWN = 0, 1, -1

Numbers = NDArray[np.intp]


@dataclass(frozen=True)
class LinkPlaces:
    """The place of each link; arrays of shape (links,).

    Attributes:
        links: whose places they are.
        src_tier, dst_tier: 0 for a NIC, 1 for a leaf, one more for each step up, -1 where that is not known.
        leaf: the place in `leaves` of the leaf at one end, the one that the link starts at where both ends are leaves;
            -1 for none.
        rail: the place in `rails` of the rail that the leaf belongs to, -1 for none.
        leaves: the leaves' names in order.
        rails: the interface names of NICs, in order, where no two of them share a leaf; else nothing.
        numbers: the place of each link in `links`.
    """

    links: Sequence[DirectedLink]
    src_tier: Numbers
    dst_tier: Numbers
    leaf: Numbers
    rail: Numbers
    leaves: tuple[str, ...]
    rails: tuple[str, ...]
    numbers: dict[tuple[str, str], int] = field(repr=False)


def link_places(links: Sequence[DirectedLink]) -> LinkPlaces:
    """Find the place of each link."""
    ends, names = _ends(links)
    tier = _tiers(ends, names)
    leaf_nodes = sorted(np.flatnonzero(tier == LEAF).tolist(), key=names.__getitem__)
    leaf_of = np.full(len(names) + 1, -1)
    leaf_of[leaf_nodes] = np.arange(len(leaf_nodes))
    src, dst = leaf_of[ends].T
    leaf = np.where(src >= 0, src, dst)
    rail_of, rails = _rails(ends, tier, leaf, names, len(leaf_nodes))
    return LinkPlaces(
        links=links,
        src_tier=tier[ends[:, 0]],
        dst_tier=tier[ends[:, 1]],
        leaf=leaf,
        rail=np.append(rail_of, -1)[leaf],
        leaves=tuple(names[node] for node in leaf_nodes),
        rails=rails,
        numbers={(link.a, link.b): i for i, link in enumerate(links)},
    )


def link_tiers(links: Sequence[DirectedLink]) -> tuple[Numbers, Numbers]:
    """The tier at which each link begins, and at which it ends, as in `LinkPlaces`; shape (links,) each."""
    ends, names = _ends(links)
    src, dst = _tiers(ends, names)[ends].T
    return src, dst


def _ends(links: Sequence[DirectedLink]) -> tuple[Numbers, list[str]]:
    """The numbers of the nodes at both ends of each link, shape (links, 2); and the nodes' names by number."""
    nodes: dict[str, int] = {}
    flat = [nodes.setdefault(node, len(nodes)) for link in links for node in link]
    return np.array(flat, np.intp).reshape(-1, 2), list(nodes)


def _tiers(ends: Numbers, names: Sequence[str]) -> Numbers:
    """The distance of each node from the nearest NIC, shape (nodes,)."""
    nics = np.array([is_nic(name) for name in names], bool)
    hidden = np.array([is_private(name) for name in names], bool)
    tier = np.where(nics, NIC, UNKNOWN)
    ends = ends[~hidden[ends].any(axis=1)]
    level = NIC
    while True:
        of_ends = tier[ends]
        above = ends[(of_ends[:, ::-1] == level) & (of_ends == UNKNOWN)]
        if not len(above):
            return tier
        level += 1
        tier[above] = level


def _rails(
    ends: Numbers, tier: Numbers, leaf: Numbers, names: Sequence[str], leaves: int
) -> tuple[Numbers, tuple[str, ...]]:
    """The rail of each leaf, -1 for none, shape (leaves,); and the rails' names."""
    of_ends = tier[ends]
    to_nic = (of_ends.min(axis=1, initial=LEAF) == NIC) & (of_ends.max(axis=1, initial=NIC) == LEAF)
    nic = np.where(of_ends[:, 0] == NIC, ends[:, 0], ends[:, 1])[to_nic].tolist()
    ifnames = [names[node].rpartition("/")[2] for node in nic]
    rails = tuple(sorted(set(ifnames)))
    place = {name: i for i, name in enumerate(rails)}
    found = np.full(leaves, -1)
    numbers = np.array([place[name] for name in ifnames], np.intp)
    found[leaf[to_nic]] = numbers
    if len(rails) < 2 or (found[leaf[to_nic]] != numbers).any():
        return np.full(leaves, -1), ()
    return found, rails
