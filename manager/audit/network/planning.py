"""Which walks are to be made, so that each link is crossed: a large and a small packet over each chosen path. Pure."""

import random
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import product

import numpy as np
from numpy.typing import NDArray

from cwdp.shared.audit.facts import Walk
from cwdp.shared.bus.messages import host_of
from manager.fabric.routes import PathName, Routes
from manager.tcp.names import is_tcp

CROSSED = 2
"""Each link is crossed by so many paths, where there are as many."""

WALKS_OF_HOST = 6
"""Linux answers a host six times at once, and then once a second (icmp(7), icmp_ratelimit): so do switches that are Linux."""

SMALL_BYTES = 128
SIZES = (True, False)
"""Large and small."""

ROCE_TOS = 26 << 2 | 2
"""DSCP 26, as RoCEv2's data and our probes have it, and ECT(0), without which no switch marks."""

MOST_PATHS = 200_000
"""That are looked at, drawn at random."""


def plan(
    routes: Routes, mtu_bytes: Mapping[str, int], seed: int, walks_of_host: int = WALKS_OF_HOST
) -> dict[str, list[Walk]]:
    """The walks of each host that has some to make.

    Args:
        routes: the known paths.
        mtu_bytes: of NICs, by their name in the fabric; of those whose MTU is not known no walk is made.
        seed: paths are drawn by it.
        walks_of_host: so many of a host at most.
    """
    packed = routes.packed
    names = [
        (row, PathName(src, dst_addr, sport))
        for (src, dst_addr), rows in packed.pairs.items()
        if src in mtu_bytes and not is_tcp(dst_addr)
        for sport, row in rows.items()
    ]
    random.Random(seed).shuffle(names)  # noqa: S311 - no secret
    walks: defaultdict[str, list[Walk]] = defaultdict(list)
    for row, name in _chosen(
        names[:MOST_PATHS], packed.crossed, len(routes.links), walks_of_host // len(SIZES)
    ):
        host, _, ifname = name.src.partition("/")
        hops = int(np.count_nonzero(packed.crossed[row] >= 0))
        for is_large in SIZES:
            walks[host].append(
                Walk(
                    nic=ifname,
                    dst_addr=name.dst_addr,
                    sport=name.sport,
                    size_bytes=mtu_bytes[name.src] if is_large else SMALL_BYTES,
                    tos=ROCE_TOS,
                    hops=hops,
                )
            )
    return dict(walks)


def _chosen(
    names: Sequence[tuple[int, PathName]], crossed: NDArray[np.int32], links: int, paths_of_host: int
) -> Iterator[tuple[int, PathName]]:
    """Paths that cross links which too few of those before cross: first those that cross many such."""
    times, taken = np.zeros(links, np.int64), set[int]()
    of_host: Counter[str] = Counter()
    all_crossed = np.unique(crossed[[row for row, _ in names]]) if names else np.zeros(0, np.int32)
    all_crossed = all_crossed[all_crossed >= 0]
    for enough, new in product(range(1, CROSSED + 1), range(crossed.shape[1] if len(crossed) else 0, 0, -1)):
        for row, name in names if (times[all_crossed] < enough).any() else ():
            host = host_of(name.src)
            if row in taken or of_host[host] >= paths_of_host:
                continue
            way = crossed[row][crossed[row] >= 0]
            if np.count_nonzero(times[way] < enough) < new:
                continue
            times[way] += 1
            of_host[host] += 1
            taken.add(row)
            yield row, name
