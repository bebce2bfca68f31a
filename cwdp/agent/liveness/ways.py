"""The links that watched paths cross, as their traces tell."""

import itertools
from collections.abc import Collection, Iterable, Iterator

from cwdp.agent.liveness.watchedpaths import Way, WayKey
from cwdp.agent.tracing.table import Found, Hops
from cwdp.dataplane.steering.steering import parse_address
from cwdp.shared.addresses import address_bytes

Name = tuple[str, ...]


def ways(found: Iterable[Found], watched: Collection[WayKey]) -> list[Way]:
    """The ways of those watched paths that have been traced, in order.

    A link has the same number wherever it is between the same two switches, or the same NIC and switch. What a trace does
    not show, between silent hops or beyond the last that answered, is nobody else's.

    Args:
        found: what is known of each path.
        watched: as the map `paths` has them.
    """
    numbers: dict[Name, int] = {}
    told = []
    for one in found:
        path = one.path
        key = (path.ifname, address_bytes(parse_address(path.destination)), path.sport, path.protocol)
        if key in watched:
            told.append((key, one))
    return [
        Way(*key, tuple(numbers.setdefault(name, len(numbers)) for name in _links(one)))
        for key, one in sorted(told, key=lambda pair: pair[0])
    ]


def _links(found: Found) -> Iterator[Name]:
    """All but the destination's own."""
    path = found.path
    own = (path.ifname, path.destination, str(path.sport), str(path.protocol))
    hops: Hops = (path.ifname, *found.hops)
    for i, (a, b) in enumerate(itertools.pairwise(hops)):
        yield (a, b) if a is not None and b is not None else (*own, str(i))
    if not found.reached:
        yield (*own, "rest")
