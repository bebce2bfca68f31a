"""Who probes whom between pods: each NIC chooses a few of other pods by hashes, and both ends of a pair probe. Pure.

A NIC draws a pod for each choice, a pod of more NICs more often, and then the NIC there that ranks first by a hash of
both names (rendezvous hashing: Thaler, Ravishankar, "Using name-based mappings to increase hit rates", 1998; weighted as
by Schindelhauer, Schomaker, 2005). So a NIC has `CHOICES` pairs of its own and about as many of others', whatever the
number of pods, the leaves of a pod are met alike often, both ends' managers arrive at the same pairs, and a NIC that
comes or goes changes only the pairs that it has.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cwdp.shared.bus.messages import nic_id
from manager.probing.probe_graph import Pairs, mix, name_hash
from manager.probing.schedule import Member

CHOICES = 2
MOST_CELLS = 1 << 22
"""NICs times NICs that are ranked at once."""

U64 = NDArray[np.uint64]


@dataclass(frozen=True)
class Between:
    """The pairs with other pods.

    Attributes:
        others: NICs of other pods that are in a pair.
        pairs: places of this pod's NICs in the list that they were built over, and of the others' in `others`; int64,
            shape (pairs, 2).
    """

    others: Sequence[Member]
    pairs: Pairs

    def joined(self, members: Sequence[Member], pairs: Pairs) -> tuple[Sequence[Member], Pairs]:
        """All NICs and all pairs: this pod's own, and those with others."""
        return [*members, *self.others], np.concatenate([pairs, self.pairs + np.array([0, len(members)])])


def build_between(
    own: Sequence[Member], others: Mapping[str, Sequence[Member]], pod: str, seed: int
) -> Between:
    """The same as `pairs_between`, with those NICs only that are in a pair."""
    pairs = pairs_between(own, others, pod, seed)
    flat = [member for members in others.values() for member in members]
    used, place = np.unique(pairs[:, 1], return_inverse=True)
    return Between([flat[i] for i in used.tolist()], np.column_stack([pairs[:, 0], place]))


def pairs_between(
    own: Sequence[Member], others: Mapping[str, Sequence[Member]], pod: str, seed: int
) -> Pairs:
    """The pairs of this pod's NICs with those of other pods.

    Args:
        own: this pod's NICs that are probed.
        others: those of every other pod, by its name.
        pod: the name of this one.
        seed: another seed gives other pairs.

    Returns:
        Indices into `own` and into the others', pod after pod in their order; int64, shape (pairs, 2), each once, sorted.
    """
    pods = {pod: own, **others}
    found = [
        _choices(pods, transport, pod, seed)
        for transport in ("xdp", "ud")
        if any(nic.transport == transport for _, nic in own)
    ]
    pairs = np.concatenate([np.zeros((0, 2), np.int64), *found])
    return np.unique(pairs, axis=0)


def _choices(pods: Mapping[str, Sequence[Member]], transport: str, own: str, seed: int) -> Pairs:
    """What the NICs of one transport choose that concerns a pod: those of this pod, and those of others that choose it."""
    names = [pod for pod in sorted(pods) if pods[pod]]
    places = {pod: _places(pods[pod], transport) for pod in names}
    hashes = {pod: _hashes(pods[pod], places[pod], seed) for pod in names}
    families = {pod: _families(pods[pod], places[pod]) for pod in names}
    first = dict(zip(_others(pods, own), _starts(pods, own), strict=True))
    found = []
    for pod in names:
        targets = [name for name in names if name != pod and len(places[name])]
        if not targets or not len(places[pod]):
            continue
        drawn = _draw_pods(hashes[pod], targets, [len(places[name]) for name in targets], seed)
        for i, target in enumerate(targets):
            if own not in (pod, target):
                continue
            count = (drawn == i).sum(axis=1)
            mine = np.flatnonzero(count)
            chosen = _rank(
                hashes[pod][mine],
                hashes[target],
                families[pod][mine][:, None] & families[target],
                count[mine],
            )
            here, there = places[pod][mine[chosen[:, 0]]], places[target][chosen[:, 1]]
            found.append((here, there + first[target]) if pod == own else (there, here + first[pod]))
    return np.concatenate([np.zeros((0, 2), np.int64), *(np.column_stack(each) for each in found)])


def _others(pods: Mapping[str, Sequence[Member]], own: str) -> list[str]:
    return [pod for pod in pods if pod != own]


def _starts(pods: Mapping[str, Sequence[Member]], own: str) -> list[int]:
    """Where each other pod's NICs begin."""
    sizes = [len(pods[pod]) for pod in _others(pods, own)]
    return [sum(sizes[:i]) for i in range(len(sizes))]


def _places(members: Sequence[Member], transport: str) -> NDArray[np.int64]:
    return np.array([i for i, (_, nic) in enumerate(members) if nic.transport == transport], np.int64)


def _families(members: Sequence[Member], places: NDArray[np.int64]) -> NDArray[np.int64]:
    nics = [members[i][1] for i in places.tolist()]
    return np.array([(nic.ipv4 is not None) | (nic.ipv6 is not None) << 1 for nic in nics], np.int64)


def _hashes(members: Sequence[Member], places: NDArray[np.int64], seed: int) -> U64:
    named = (nic_id(members[i][0], members[i][1].ifname) for i in places.tolist())
    return np.array([name_hash(name, seed) for name in named], np.uint64)


def _draw_pods(nics: U64, pods: Sequence[str], sizes: Sequence[int], seed: int) -> NDArray[np.int64]:
    """The pod of each NIC's every choice, by weighted rendezvous; shape (NICs, CHOICES)."""
    drawn = []
    weights = np.array(sizes, np.float64)
    for choice in range(CHOICES):
        keys = np.array([name_hash(f"{choice} {pod}", seed) for pod in pods], np.uint64)
        u = (mix(nics[:, None] ^ mix(keys)) >> np.uint64(11)) * 2.0**-53
        drawn.append(np.argmin(-np.log(u + 2.0**-54) / weights, axis=1))
    return np.stack(drawn, axis=1)


def _rank(nics: U64, targets: U64, common: NDArray[np.int64], count: NDArray[np.int64]) -> Pairs:
    """The first so many targets of each NIC with a family in common; indices of both, shape (n, 2)."""
    found = []
    step = max(1, MOST_CELLS // max(1, len(targets)))
    for start in range(0, len(nics), step):
        part = slice(start, start + step)
        rank = np.where(common[part] != 0, mix(nics[part, None] ^ mix(targets)) >> np.uint64(1), _NEVER)
        most = min(CHOICES, len(targets))
        best = np.argpartition(rank, most - 1, axis=1)[:, :most]
        order = np.argsort(np.take_along_axis(rank, best, axis=1), axis=1)
        best = np.take_along_axis(best, order, axis=1)
        wanted = np.arange(most) < count[part, None]
        wanted &= np.take_along_axis(rank, best, axis=1) != _NEVER
        row, place = np.nonzero(wanted)
        found.append(np.column_stack([row + start, best[row, place]]))
    return np.concatenate([np.zeros((0, 2), np.int64), *found])


_NEVER = np.uint64(2**64 - 1)
