"""Links that are not where the others' pattern puts them. Pure.

Three patterns are looked for, each only where most of the fabric keeps to it. NICs whose addresses are of one block share
a leaf. Hosts that have a NIC at one leaf have their other NICs at common leaves too. Switches that share most of the
switches above them share all of them. Each explains what it can before the next is asked: a NIC that the addresses put
where it is stands accused of nothing, and one that they put elsewhere counts as if it were there.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from ipaddress import ip_address
from itertools import pairwise, permutations

import numpy as np
from numpy.typing import NDArray

from manager.fabric.model import Cable, Model

MOST = 0.75
LEAST_LIKE = 2
"""So many others at least must agree."""
NEAR = 8
"""Addresses are of one block up to so many times the usual distance, which a quarter of all are not farther apart than."""
CLEARLY = 2.0
"""A block belongs to a leaf that fits it so many times as well as any other."""


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
    belongs = _by_address(seats, addresses)
    wrong = {
        nic: Miswired(nic, seats[nic], leaf, f"NICs with addresses next to its own are at {leaf}")
        for nic, leaf in belongs.items()
        if leaf != seats[nic]
    }
    wrong |= {each.what: each for each in _by_host(seats | belongs, belongs)}
    return [wrong[nic] for nic in sorted(wrong)] + list(_by_tier(model, is_covered))


def address_of_each(owners: Mapping[str, str]) -> dict[str, str]:
    """One address of each NIC, its IPv4 one if it has any: those of two families tell nothing of each other.

    Args:
        owners: the NIC of each address.
    """
    ipv4_last = sorted(owners, key=lambda address: (":" not in address, address))
    return {owners[address]: address for address in ipv4_last}


def _by_address(seats: Mapping[str, str], addresses: Mapping[str, str]) -> dict[str, str]:
    """The leaf at which each NIC belongs by its address, if addresses go by leaf at all, and where that can be told."""
    found: dict[str, str] = {}
    for version in (4, 6):
        named = [
            (int(address), nic)
            for nic in seats
            if nic in addresses and (address := ip_address(addresses[nic])).version == version
        ]
        subnets = _subnets(sorted(named))
        blocks = [block for subnet in subnets for block in _blocks(subnet, seats) if len(block) >= LEAST_LIKE]
        belongs = _by_block(blocks, seats, has_gaps=len(subnets) > 1)
        if sum(seats[nic] == leaf for nic, leaf in belongs.items()) >= MOST * len(named):
            found |= belongs
    return found


def _subnets(named: Sequence[tuple[int, str]]) -> list[list[str]]:
    """NICs in the order of their addresses, apart where there is a gap between these."""
    steps = [after - before for (before, _), (after, _) in pairwise(named)]
    near = NEAR * max(1, sorted(steps)[len(steps) // 4]) if steps else 0
    ends = [at for at, step in enumerate(steps, 1) if step > near]
    return [[nic for _, nic in named[a:b]] for a, b in pairwise([0, *ends, len(named)])]


def _blocks(subnet: Sequence[str], seats: Mapping[str, str]) -> Iterator[Sequence[str]]:
    """A subnet, apart where two NICs of one leaf are followed by two of another: leaves may share a subnet in turn."""
    leaves = [seats[nic] for nic in subnet]
    ends = [
        at
        for at in range(2, len(leaves) - 1)
        if leaves[at - 2] == leaves[at - 1] != leaves[at] == leaves[at + 1]
    ]
    yield from (subnet[a:b] for a, b in pairwise([0, *ends, len(subnet)]))


def _by_block(blocks: Sequence[Sequence[str]], seats: Mapping[str, str], *, has_gaps: bool) -> dict[str, str]:
    """The leaf of each NIC's block.

    Without gaps between addresses a NIC at a leaf without a block may be the first there; nothing is said of it.
    """
    size = Counter(seats[nic] for block in blocks for nic in block)
    homes = [_home(Counter(seats[nic] for nic in block), size) for block in blocks]
    return {
        nic: home
        for block, home in zip(blocks, homes, strict=True)
        if home is not None
        for nic in block
        if has_gaps or seats[nic] in homes
    }


def _home(count: Counter[str], size: Counter[str]) -> str | None:
    """The leaf that a block belongs to; None where that is not clear.

    How well they fit is how many NICs they share, of the geometric mean of how many each has (Ochiai's coefficient,
    1957), squared: of two NICs, one at a leaf of its own and one among three strangers, the first is at home.

    Args:
        count: NICs of the block at each leaf.
        size: NICs at each leaf.
    """
    fit = {leaf: shared**2 / size[leaf] for leaf, shared in count.items()}
    best, *others = sorted(fit, key=fit.__getitem__, reverse=True)
    return best if not others or fit[best] >= CLEARLY * fit[others[0]] else None


def _by_host(seats: Mapping[str, str], cleared: Collection[str]) -> Iterator[Miswired]:
    """Of each odd host the NIC that fits its other NICs least, by where hosts like it have theirs.

    Where two fit as badly, as the two of a host do, it is the one whose leaf has more NICs of its name than the leaf
    where it would belong: a leaf that lacks one is the likelier place.

    Args:
        seats: the leaf of each NIC.
        cleared: NICs that are where they belong.
    """
    hosts = defaultdict[str, dict[str, str]](dict)
    for nic, leaf in seats.items():
        host, _, ifname = nic.rpartition("/")
        hosts[host][ifname] = leaf
    usual = defaultdict[tuple[str, str, str], Counter[str]](Counter)
    for nics in hosts.values():
        for one, other in permutations(nics, 2):
            usual[one, nics[one], other][nics[other]] += 1
    size = Counter((ifname, leaf) for nics in hosts.values() for ifname, leaf in nics.items())

    @cache
    def most(one: str, at: str, other: str, mine: str) -> list[tuple[str, int]]:
        return list(_usual(usual[one, at, other], mine))

    for host, nics in hosts.items():
        reasons = defaultdict[tuple[str, str], list[tuple[int, str]]](list)
        for one, other in permutations(sorted(nics), 2):
            for leaf, others in most(one, nics[one], other, nics[other]):
                text = f"hosts whose {one} is at {nics[one]} have their {other} at {leaf}"
                reasons[other, leaf].append((others, text))
        rank = {
            (other, leaf): (len(said), size[other, nics[other]] - size[other, leaf])
            for (other, leaf), said in reasons.items()
        }
        best = [suspect for suspect in rank if rank[suspect] == max(rank.values())]
        if len(best) == 1:
            [(other, leaf)] = best
            others, reason = min(reasons[other, leaf])
            nic = f"{host}/{other}"
            if nic not in cleared and (others >= LEAST_LIKE or rank[other, leaf][1] > 0):
                yield Miswired(nic, nics[other], leaf, reason)


def _usual(leaves: Counter[str], mine: str) -> Iterator[tuple[str, int]]:
    """The leaf where most others have the NIC that a host has elsewhere, if there is one, and how many have it there."""
    others = leaves - Counter([mine])
    for leaf, count in others.most_common(1):
        if leaf != mine and count >= MOST * others.total():
            yield leaf, count


def _by_tier(model: Model, is_covered: Callable[[str], bool]) -> Iterator[Miswired]:
    """Links between switches that are missing where all like them are there, or there where none like them is."""
    tier = {node.name: node.tier for node in model.nodes}
    covered = {name for name, of in tier.items() if of == 1 and is_covered(name)}
    for level in range(1, max(tier.values(), default=0)):
        lower = sorted(name for name, of in tier.items() if of == level and not name.startswith("?"))
        upper = sorted(name for name, of in tier.items() if of == level + 1 and not name.startswith("?"))
        has = _matrix(model.cables, lower, upper)
        for i, j in _missing(has):
            if lower[i] in covered:
                reason = "switches like these are linked; it is down, or plugged in elsewhere"
                yield Miswired(lower[i], None, upper[j], reason)
        is_below = np.array([name in covered for name in lower], bool)
        covered = {name for name, below in zip(upper, has.T, strict=True) if is_below[below].all()}
    for a, b in sorted(model.cables):
        if tier[a] == tier[b] and not (a + b).count("?"):
            yield Miswired(a, b, None, "no path between other switches of its tier goes straight")


def _matrix(cables: frozenset[Cable], lower: list[str], upper: list[str]) -> NDArray[np.bool_]:
    row, column = ({name: i for i, name in enumerate(names)} for names in (lower, upper))
    has = np.zeros((len(lower), len(upper)), bool)
    for a, b in cables:
        if a in row and b in column:
            has[row[a], column[b]] = True
    return has


def _missing(has: NDArray[np.bool_]) -> Iterator[tuple[int, int]]:
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


def _alike(count: NDArray[np.int64]) -> NDArray[np.int64]:
    """Which rows share more than half of their entries with each other, themselves left out, shape (rows, rows)."""
    shared = count @ count.T
    size = np.diagonal(shared)
    alike = 2 * shared > np.maximum(size[:, None], size[None, :])
    np.fill_diagonal(alike, val=False)
    return alike.astype(np.int64)
