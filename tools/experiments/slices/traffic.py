"""What a pair of hosts shows of bandwidth slices: the rate at which frames arrive, and the delay of an urgent flow."""

import time

import numpy as np
from numpy.typing import NDArray

from cwdp.dataplane.pinned.ring import Ring
from tools.experiments.slices.pair import Pair

SETTLE_S = 0.5
FRAME_BYTES, URGENT_FRAME_BYTES = 4_158, 1_086
URGENT_INTERVAL_S = 0.002
URGENT_DSCP, BULK_DSCP, IDLE_DSCP = 46, 0, 8
URGENT, BULK = 1, 2
DELAY_S = 4.0
SAMPLE_ALL = 2**32 - 1


def received_bps(hosts: Pair, qpn: int) -> float:
    """The rate at which frames arrive, over about a second."""
    (before, start), (after, end) = _reading(hosts, qpn), _reading(hosts, qpn, wait_s=1.0)
    return (after - before) * 8e9 / (end - start)


def _reading(hosts: Pair, qpn: int, wait_s: float = 0.0) -> tuple[int, float]:
    """Bytes that have arrived, and the middle of the time in which they were read, in ns."""
    time.sleep(wait_s)
    start = time.monotonic_ns()
    _, frame_bytes = hosts.received().get(qpn, (0, 0))
    return frame_bytes, (start + time.monotonic_ns()) / 2


def delays_ns(hosts: Pair) -> NDArray[np.int64]:
    """Of every packet of a sparse flow with the DSCP of the urgent slice; shape (packets,)."""
    rings = {host: Ring(maps.samples, maps.control["sample_head"]) for host, maps in hosts.maps.items()}
    for maps in hosts.maps.values():
        maps.control["sample_below"] = SAMPLE_ALL
    with hosts.flood(URGENT, URGENT_FRAME_BYTES, dscp=URGENT_DSCP, interval_s=URGENT_INTERVAL_S):
        time.sleep(DELAY_S)
    sent, arrived = (_stamps(rings[host].take()) for host in ("a", "b"))
    return np.array([arrived[psn] - sent[psn] for psn in sent.keys() & arrived.keys()])


def _stamps(samples: NDArray[np.void]) -> dict[int, int]:
    """When each packet of the urgent flow passed, by its PSN (and opcode), in ns."""
    mine = samples[samples["key"]["qpn"] == URGENT]
    return dict(zip(mine["psn"].tolist(), mine["local_ns"].tolist(), strict=True))
