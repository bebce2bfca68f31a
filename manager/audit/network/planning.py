"""Which walks are to be made, so that each link is crossed: a large and a small packet over each chosen path. Pure."""

import random
from collections import defaultdict
from collections.abc import Mapping

import numpy as np

from cwdp.shared.audit.facts import Walk
from cwdp.shared.bus.audits import MOST_WALKS
from manager.fabric.routes import PathName, Routes
from manager.tcp.names import is_tcp

CROSSED = 2
"""Each link is crossed by so many paths, where there are as many."""

SMALL_BYTES = 128
ROCE_TOS = 26 << 2 | 2
"""DSCP 26, as RoCEv2's data and our probes have it, and ECT(0), without which no switch marks."""

MOST_PATHS = 200_000
"""That are looked at, drawn at random."""


def plan(
    routes: Routes, mtu_bytes: Mapping[str, int], seed: int, walks_of_host: int = MOST_WALKS
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
    times = np.zeros(len(routes.links), np.int64)
    walks: defaultdict[str, list[Walk]] = defaultdict(list)
    for row, name in names[:MOST_PATHS]:
        links = packed.crossed[row]
        links = links[links >= 0]
        host, _, ifname = name.src.partition("/")
        if not (times[links] < CROSSED).any() or len(walks[host]) + 2 > walks_of_host:
            continue
        times[links] += 1
        for size_bytes in (mtu_bytes[name.src], SMALL_BYTES):
            walks[host].append(
                Walk(
                    nic=ifname,
                    dst_addr=name.dst_addr,
                    sport=name.sport,
                    size_bytes=size_bytes,
                    tos=ROCE_TOS,
                    hops=len(links),
                )
            )
    return {host: each for host, each in walks.items() if each}
