"""The problem: links, candidate paths and queue pairs as arrays."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Indices = NDArray[np.intp]
Mask = NDArray[np.bool_]

DEAD = 1e6
"""A link without capacity counts as one with so much less than any other, so that all have a place nevertheless."""


@dataclass(frozen=True, eq=False)
class PathSet:
    """Candidate paths. Where paths differ in length or pairs in number of candidates, the rest is filled up.

    Attributes:
        links: link numbers by hop, pair and candidate, shape (hops, pairs, candidates). `link_count` itself stands
            for no link. Places without a candidate repeat the pair's first one.
        link_count: how many links there are.
    """

    links: Indices
    link_count: int

    @classmethod
    def of(cls, pairs: Sequence[Sequence[Sequence[int]]], link_count: int) -> "PathSet":
        """From the links of each candidate of each pair; every pair has at least one candidate."""
        hops = max((len(path) for paths in pairs for path in paths), default=1)
        candidates = max(map(len, pairs), default=1)
        links = np.full((max(hops, 1), len(pairs), candidates), link_count, dtype=np.intp)
        for pair, paths in enumerate(pairs):
            for k in range(candidates):
                path = paths[k if k < len(paths) else 0]
                links[: len(path), pair, k] = path
        return cls(links, link_count)

    @property
    def candidates(self) -> int:
        """Candidates of each pair, repeated ones included."""
        return int(self.links.shape[2])

    def taken(self, pair: Indices, choice: Indices) -> list[Indices]:
        """The link at each hop of queue pairs of some pairs that take some candidates, each of shape (n,)."""
        place = pair * self.candidates + choice
        return [links.ravel().take(place) for links in self.links]

    @cached_property
    def repeats(self) -> Mask:
        """Places that only repeat the pair's first candidate, shape (pairs, candidates)."""
        repeats: Mask = (self.links == self.links[:, :, :1]).all(axis=0)
        repeats[:, 0] = False
        return repeats

    @cached_property
    def groups(self) -> tuple[Indices, Indices]:
        """The different sets of links of which pairs cross one each, at whichever hop, and which of them each pair has.

        Returns:
            Sorted link numbers with repetitions, shape (sets, candidates), and set numbers, shape (hops, pairs).
        """
        ordered = np.sort(self.links, axis=2)
        again = ordered[:, :, 1:] == ordered[:, :, :-1]
        ordered[:, :, 1:][again] = np.broadcast_to(ordered[:, :, -1:], again.shape)[again]
        ordered.sort(axis=2)
        flat = ordered.reshape(-1, self.candidates)
        rows = flat.view([("", flat.dtype)] * self.candidates).ravel()
        _, first, group = np.unique(rows, return_index=True, return_inverse=True)
        return flat[first], group.reshape(self.links.shape[:2])


@dataclass(frozen=True, eq=False)
class Fabric:
    """Links and paths.

    Attributes:
        capacity_bps: of each link, shape (links,); 0 where it is dead.
        paths: the candidates over them.
    """

    capacity_bps: Floats
    paths: PathSet

    @cached_property
    def seconds_per_bit(self) -> Floats:
        """1 / capacity of each link, and 0 for the one that stands for none, shape (links + 1,)."""
        alive = self.capacity_bps[self.capacity_bps > 0]
        least = float(alive.min()) if len(alive) else 1.0
        return np.append(1.0 / np.where(self.capacity_bps > 0, self.capacity_bps, least / DEAD), 0.0)


@dataclass(frozen=True, eq=False)
class Demand:
    """Queue pairs.

    Attributes:
        pair: the pair that each belongs to, shape (n,).
        rate_bps: shape (n,), positive.
    """

    pair: Indices
    rate_bps: Floats

    @cached_property
    def by_rate(self) -> Indices:
        """Their numbers, the largest rate first, shape (n,)."""
        return np.argsort(-self.rate_bps, kind="stable")


def link_loads(fabric: Fabric, demand: Demand, choice: Indices) -> Floats:
    """The load of every link in bit/s when queue pair i takes candidate choice[i], or none where that is -1.

    Returns:
        Shape (links + 1,); the last is of what crosses no link.
    """
    loads = np.zeros(fabric.paths.link_count + 1)
    pair, rate_bps = demand.pair, demand.rate_bps
    if len(choice) and choice.min() < 0:
        placed = choice >= 0
        pair, rate_bps, choice = pair[placed], rate_bps[placed], choice[placed]
    for links in fabric.paths.taken(pair, choice):
        loads += np.bincount(links, rate_bps, len(loads))
    return loads


def utilisation(fabric: Fabric, demand: Demand, choice: Indices) -> Floats:
    """The load of every link as a share of its capacity, shape (links + 1,); the last is 0."""
    return link_loads(fabric, demand, choice) * fabric.seconds_per_bit


def fullest(fabric: Fabric, demand: Demand, choice: Indices) -> float:
    """The utilisation of the fullest link."""
    return float(utilisation(fabric, demand, choice).max())
