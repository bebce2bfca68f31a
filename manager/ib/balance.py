"""How connections that are yet to be made over InfiniBand are spread over the paths of two ports. No I/O.

A path is a number: each end sends to the LID of that number of the other, from its own of that number, as what arrives is taken
only from the LID that is sent to (IBTA volume 1, 9.6.1.5). So a path is there and back, and both hosts are told the same shares.
"""

from collections.abc import Collection, Sequence
from typing import Literal, NamedTuple

from cwdp.shared.addresses import PortLids
from cwdp.shared.bus.messages import Spread
from manager.planner.spreads import disjoint, shares

Ways = Sequence[tuple[int, ...]]
"""For each path by its number, the directed links that it crosses, there and back; a path without a route has none."""


SOONER = 4.0
"""All links are to be equally full once new connections want a fourth of what paths can carry, as they come one by one."""

MARGIN = 0.1
"""Shares change for loads where so much of new connections would take other paths than before."""


class End(NamedTuple):
    """A port of InfiniBand: the NIC that its host knows it by, the address that others do, and its LIDs."""

    nic: str
    addr: str
    lids: PortLids


def spreads(
    one: End, other: End, ways: Ways, loads: Sequence[float], avoided: Collection[int] = ()
) -> tuple[Spread, Spread] | None:
    """What to tell the hosts of two ports, the former's first.

    Args:
        one: a port.
        other: another.
        ways: of the paths that both have: the lower of the two LMCs decides how many.
        loads: of each directed link, what is put on it as part of what it can carry.
        avoided: links not to cross, but where all paths do.

    Returns:
        None where there is no choice to make: less than two paths have a route.
    """
    numbers = [number for number, way in enumerate(ways[: paths(one.lids, other.lids)]) if way]
    if len(numbers) < 2:
        return None
    fullest = [max(loads[link] for link in ways[number]) for number in numbers]
    chosen = sorted(disjoint([ways[number] for number in numbers], avoided, fullest))
    parts = shares([SOONER * fullest[place] for place in chosen])
    taken = [numbers[place] for place in chosen]
    return _to(one, other, taken, parts), _to(other, one, taken, parts)


def paths(one: PortLids, other: PortLids) -> int:
    """How many paths two ports have."""
    return 1 << min(one.lmc, other.lmc)


def _to(src: End, dst: End, numbers: Sequence[int], parts: list[float]) -> Spread:
    dlids = [dst.lids.lid + number for number in numbers]
    return Spread(nic=src.nic, dst_addr=dst.addr, sports=dlids, lids=dst.lids, shares=parts)


Why = Literal["first", "routes", "dead", "loads"]


def why(
    before: tuple[Spread | None, Spread | None],
    fresh: tuple[Spread, Spread],
    ways: Ways,
) -> Why | None:
    """What speaks for telling two hosts something else than before: `dead` where that has paths without a route; None for nothing."""
    there, back = before
    if there is None or back is None:
        return "first"
    if (there.lids, back.lids) != (fresh[0].lids, fresh[1].lids) or _content(there) != _content(back):
        return "dead"
    numbers = [number for number, _ in _content(there)]
    if not all(ways[number : number + 1] and ways[number] for number in numbers):
        return "dead"
    if len(fresh[0].sports) > len(numbers):
        return "routes"
    return "loads" if _apart(there, fresh[0]) >= MARGIN else None


def _apart(one: Spread, other: Spread) -> float:
    """The part of new connections that take other paths by the other: from 0 to 1."""
    parts = [dict(_content(each)) for each in (one, other)]
    wholes = [sum(each.values()) for each in parts]
    differ = (
        abs(parts[0].get(k, 0) / wholes[0] - parts[1].get(k, 0) / wholes[1])
        for k in parts[0].keys() | parts[1].keys()
    )
    return sum(differ) / 2


def _content(spread: Spread) -> list[tuple[int, float]]:
    """Numbers of paths, with their shares."""
    assert spread.lids is not None
    parts = spread.shares or [1.0] * len(spread.sports)
    return [(dlid - spread.lids.lid, share) for dlid, share in zip(spread.sports, parts, strict=False)]
