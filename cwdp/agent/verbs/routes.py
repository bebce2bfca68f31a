"""From what the manager wants of new queue pairs to the table that programs take their flow labels from. No I/O."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from ipaddress import IPv6Address

from cwdp.agent.verbs.orders import VerbsOrder, VerbsSource
from cwdp.agent.verbs.queuepairs import Pair, address_gid
from cwdp.rdma import shimwire
from cwdp.rdma.gid import gid_bytes
from cwdp.rdma.shimwire import Route, Source
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
        shares = living(spread, down)
        try:
            dst = address_gid(spread.dst_addr)
        except ValueError:
            continue
        for source in by_nic[spread.nic]:
            if shares and _is_ipv4(source.gid) == (":" not in spread.dst_addr):
                src = gid_bytes(source.gid)
                routes[src, dst] = Route(src, dst, shares)
    sources = [Source(one.device, one.port, one.gid_index, gid_bytes(one.gid)) for one in order.sources]
    return shimwire.pack(number, sources, list(routes.values())[:MOST_ROUTES])


def _is_ipv4(gid: str) -> bool:
    return IPv6Address(gid).ipv4_mapped is not None
