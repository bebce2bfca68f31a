"""Links that are not where the others' pattern puts them. Pure.

Three patterns are looked for, each only where most of the fabric keeps to it: hosts whose first NICs share a leaf have
their other NICs at a common leaf too; NICs with neighbouring addresses share a leaf; leaves that share most of the
switches above them share all of them.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from itertools import pairwise, permutations

import numpy as np

from manager.fabric.model import Cable, Model

MOST = 0.75
LEAST_LIKE = 2
"""So many others at least must agree."""
NEAR = 8
"""Addresses are neighbours up to so many times the usual distance."""


@dataclass(frozen=True)
class Miswired:
    """A link that may be plugged into the wrong port, between a NIC or switch and `at`.

    `expected` is where the pattern puts its other end; None where the pattern has no such link at all.
    """

    what: str
    at: str | None
    expected: str | None
    reason: str


def miswired(
    model: Model, addresses: Mapping[str, str], is_covered: Callable[[str], bool] = lambda _leaf: True
) -> list[Miswired]:
    """Everything that breaks a pattern.

    Args:
        model: the fabric.
        addresses: an address of each NIC, by its name.
        is_covered: whether all links up from a leaf are known, so that one that is not is missing.
    """
    seats = {nic: switches[0] for nic, switches in model.seats.items() if len(switches) == 1}
    by_nic = {each.what: each for each in _by_address(seats, addresses)}
    for accused in _by_host(seats):
        agreed = [each for each in accused if each.what in by_nic] or accused
        by_nic |= {each.what: each for each in agreed}
    return [by_nic[nic] for nic in sorted(by_nic)] + list(_by_tier(model, is_covered))


def _by_host(seats: Mapping[str, str]) -> Iterator[list[Miswired]]:
    """Of each odd host the NICs that fit the host's other NICs least, by where hosts like it have theirs."""
    hosts = defaultdict[str, dict[str, str]](dict)
    for nic, leaf in seats.items():
        host, _, ifname = nic.rpartition("/")
        hosts[host][ifname] = leaf
    usual = defaultdict[tuple[str, str, str], Counter[str]](Counter)
    for nics in hosts.values():
        for one, other in permutations(nics, 2):
            usual[one, nics[one], other][nics[other]] += 1
    for host, nics in hosts.items():
        accused: dict[str, list[Miswired]] = defaultdict(list)
        for one, other in permutations(sorted(nics), 2):
            leaves = usual[one, nics[one], other]
            leaf, count = leaves.most_common(1)[0]
            if leaf != nics[other] and count >= LEAST_LIKE and count >= MOST * (leaves.total() - 1):
                reason = f"hosts whose {one} is at {nics[one]} have their {other} at {leaf}"
                accused[other].append(Miswired(f"{host}/{other}", nics[other], leaf, reason))
        if accused:
            most = max(len(reasons) for reasons in accused.values())
            yield [reasons[0] for reasons in accused.values() if len(reasons) == most]


def _by_address(seats: Mapping[str, str], addresses: Mapping[str, str]) -> Iterator[Miswired]:
    """NICs whose neighbours by address are all at one other leaf, if addresses go by leaf at all."""
    for version in (4, 6):
        named = [
            (int(address), nic)
            for nic in seats
            if nic in addresses and (address := ip_address(addresses[nic])).version == version
        ]
        odd = dict(_odd_neighbours(sorted(named), seats))
        if len(odd) <= (1 - MOST) * len(named):
            for nic, leaf in odd.items():
                yield Miswired(nic, seats[nic], leaf, f"NICs with addresses next to its own are at {leaf}")


def _odd_neighbours(named: list[tuple[int, str]], seats: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """NICs of which the nearest `LEAST_LIKE` addresses, and as near ones, are at one leaf that is not theirs."""
    if len(named) <= 2 * LEAST_LIKE:
        return
    steps = sorted(after[0] - before[0] for before, after in pairwise(named))
    near = NEAR * max(1, steps[len(steps) // 2])
    for at, (number, nic) in enumerate(named):
        around = named[max(0, at - LEAST_LIKE - 1) : at] + named[at + 1 : at + LEAST_LIKE + 2]
        distances = sorted((abs(other - number), seats[name]) for other, name in around)
        farthest = distances[LEAST_LIKE - 1][0]
        leaves = {leaf for distance, leaf in distances if distance <= farthest}
        if farthest <= near and len(leaves) == 1 and seats[nic] not in leaves:
            yield nic, leaves.pop()


def _by_tier(model: Model, is_covered: Callable[[str], bool]) -> Iterator[Miswired]:
    """Links between switches that are missing where all like them are there, or there where none like them is."""
    tier = {node.name: node.tier for node in model.nodes}
    for level in range(1, max(tier.values(), default=0)):
        lower = sorted(name for name, of in tier.items() if of == level and not name.startswith("?"))
        upper = sorted(name for name, of in tier.items() if of == level + 1 and not name.startswith("?"))
        has = _matrix(model.cables, lower, upper)
        for i, j in _missing(has):
            if level > 1 or is_covered(lower[i]):
                reason = "switches like these are linked; it is down, or plugged in elsewhere"
                yield Miswired(lower[i], None, upper[j], reason)
    for a, b in sorted(model.cables):
        if tier[a] == tier[b] and not (a + b).count("?"):
            yield Miswired(a, b, None, "no path between other switches of its tier goes straight")


def _matrix(cables: frozenset[Cable], lower: list[str], upper: list[str]) -> "np.typing.NDArray[np.bool_]":
    row, column = ({name: i for i, name in enumerate(names)} for names in (lower, upper))
    has = np.zeros((len(lower), len(upper)), bool)
    for a, b in cables:
        if a in row and b in column:
            has[row[a], column[b]] = True
    return has


def _missing(has: "np.typing.NDArray[np.bool_]") -> Iterator[tuple[int, int]]:
    """Pairs that are not linked though `MOST` of those like either are, shape of `has`: (lower, upper)."""
    count = has.astype(np.int64)
    like_lower = _alike(count)
    like_upper = _alike(count.T)
    by_lower = like_lower @ count, like_lower.sum(axis=1)[:, None]
    by_upper = count @ like_upper, like_upper.sum(axis=0)[None, :]
    wanted = ~has
    for linked, others in (by_lower, by_upper):
        wanted = wanted & (others >= LEAST_LIKE) & (linked >= MOST * others)
    yield from zip(*(found.tolist() for found in np.nonzero(wanted)), strict=True)


def _alike(count: "np.typing.NDArray[np.int64]") -> "np.typing.NDArray[np.int64]":
    """Which rows share more than half of their entries with each other, themselves left out, shape (rows, rows)."""
    shared = count @ count.T
    size = np.diagonal(shared)
    alike = 2 * shared > np.maximum(size[:, None], size[None, :])
    np.fill_diagonal(alike, val=False)
    return alike.astype(np.int64)
