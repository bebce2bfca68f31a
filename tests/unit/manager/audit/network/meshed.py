"""What the mesh tells of leaves and spines in arithmetic."""

import numpy as np

from manager.audit.network.standing import Known
from manager.fabric.routes import DirectedLink, PathName
from tests.unit.manager.audit.network.clos import address, routes

USUAL_NS, SPREAD_NS = 50_000.0, 300.0


def mesh(slow: DirectedLink | None = None, longer_ns: float = 30_000.0, seed: int = 1) -> Known:
    """Round trips of all paths below 4 leaves and 4 spines, back by the same spine; one link may be slow."""
    known, rng = routes(4, 4, 2), np.random.default_rng(seed)
    paths, crossed = [], []
    for src, dst_addr, sport in known.paths:
        dst = f"h{dst_addr.rpartition('.')[2]}/eth1"
        there = known.paths[PathName(src, dst_addr, sport)]
        back = known.paths[PathName(dst, address(int(src[1 : src.index("/")])), sport)]
        paths.append((src, dst, sport))
        crossed.append([*there, *back])
    rtt_ns = USUAL_NS + rng.exponential(SPREAD_NS, len(paths))
    matrix = np.array(crossed, np.int32)
    if slow is not None:
        rtt_ns[(matrix == known.links.index(slow)).any(axis=1)] += longer_ns
    sent = np.full(len(paths), 100)
    return Known(
        paths=paths, sent=sent, lost=np.zeros_like(sent), rtt_ns=rtt_ns, crossed=matrix, routes=known,
        nics={f"h{i}/eth1": "ok" for i in range(1, 9)},
    )  # fmt: skip
