"""From what the manager wants of new queue pairs to the table that programs take their paths from. No I/O."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from ipaddress import IPv6Address

from cwdp.agent.verbs.orders import VerbsOrder, VerbsSource
from cwdp.agent.verbs.queuepairs import Pair, address_gid
from cwdp.rdma import shimwire
from cwdp.rdma.gid import gid_bytes
from cwdp.rdma.ib.lid import LID_MAX, dlids, lid_gid
from cwdp.rdma.shimwire import Route, Source
from cwdp.rdma.sport import SPORT_MIN
from cwdp.shared.addresses import PortLids
from cwdp.shared.bus.messages import Spread

MOST_ROUTES = 1 << 16

Down = Mapping[str, Collection[tuple[str, int]]]
"""Of each NIC the paths that are down: address and source port."""

Shares = tuple[tuple[int, float], ...]


def living(spread: Spread, down: Down) -> Shares:
    """Ports of a spread that are not down, with their shares; all of them where all are down."""
    shares = spread.shares if len(spread.shares) == len(spread.sports) else [1.0] * len(spread.sports)
    dead = down.get(spread.nic, ())
    ports = [(sport, share) for sport, share in zip(spread.sports, shares, strict=True) if share > 0]
    return tuple(one for one in ports if (spread.dst_addr, one[0]) not in dead) or tuple(ports)


def spreads_by_pair(spreads: Iterable[Spread]) -> dict[Pair, Spread]:
    """Spreads by whom they are between."""
    return {(spread.nic, spread.dst_addr): spread for spread in spreads}


def table(order: VerbsOrder, down: Down, number: int) -> bytes:
    """The table of an order, without the paths that are down."""
    by_nic: defaultdict[str, list[VerbsSource]] = defaultdict(list)
    for source in order.sources:
        by_nic[source.nic].append(source)
    routes: dict[tuple[bytes, bytes], Route] = {}
    for spread in order.spreads:
        if spread.lids is not None:
            routes |= {(one.src, one.dst): one for one in _by_lid(spread, spread.lids, by_nic[spread.nic])}
            continue
        shares = living(spread, down)
        try:
            dst = address_gid(spread.dst_addr)
        except ValueError:
            continue
        for source in by_nic[spread.nic]:
            if shares and _is_ipv4(source.gid) == (":" not in spread.dst_addr):
                src = gid_bytes(source.gid)
                routes[src, dst] = Route(src, dst, shares)
    sources = [
        Source(one.device, one.port, one.gid_index, gid_bytes(one.gid))
        for one in order.sources
        if not one.lid
    ]
    return shimwire.pack(number, sources, list(routes.values())[:MOST_ROUTES])


def is_sane(spread: Spread) -> bool:
    """Whether its paths are such as there are: ports that flow labels lead to, or LIDs of the far port."""
    if spread.lids is None:
        return min(spread.sports, default=SPORT_MIN) >= SPORT_MIN
    first, last = spread.lids.lid, spread.lids.lid + (1 << spread.lids.lmc) - 1
    return last <= LID_MAX and all(first <= dlid <= last for dlid in spread.sports)


def _by_lid(spread: Spread, theirs: PortLids, sources: Iterable[VerbsSource]) -> Iterator[Route]:
    """Both ends have the same shares in the same order, and all of them, so that they agree without asking each other."""
    for source in sources:
        there = dlids((source.lid, source.lmc), (theirs.lid, theirs.lmc))
        shares = tuple(sorted(one for one in living(spread, {}) if one[0] in there))
        if source.lid and shares:
            yield Route(lid_gid(source.lid), lid_gid(theirs.lid), shares, theirs.lmc)


def _is_ipv4(gid: str) -> bool:
    return IPv6Address(gid).ipv4_mapped is not None
