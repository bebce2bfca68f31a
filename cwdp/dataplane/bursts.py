"""Bursts of queue pairs that the dataplane has seen end, as rows."""

import math
import time

import numpy as np
from numpy.typing import NDArray

from cwdp.dataplane.pinned.maps import Maps
from cwdp.dataplane.pinned.ring import SyncedRing
from cwdp.shared.bus.records import BURST_ROW

NS_PER_MS = 1_000_000
CLOCK_MONOTONIC_COARSE = 6
"""Of <linux/time.h>; it moves once a jiffy."""


def jiffy_ns() -> int:
    """How long a jiffy of this kernel is."""
    return round(time.clock_getres(CLOCK_MONOTONIC_COARSE) * 1e9)


def gap_jiffies(gap_ms: float, jiffy_ns: int) -> int:
    """More jiffies than these between two packets are a gap longer than `gap_ms`.

    A gap that is two jiffies longer is always found.
    """
    return math.ceil(gap_ms * NS_PER_MS / jiffy_ns)


def rows_of_bursts(records: NDArray[np.void], jiffy_ns: int) -> NDArray[np.void]:
    """Records of dtype `abi.BURST`, shape (n,), as BURST_ROWs; the end lies within a jiffy of the true one."""
    rows = np.zeros(len(records), dtype=BURST_ROW)
    idle_ns = records["idle_jiffies"].astype(np.int64) * jiffy_ns
    rows["end_ns"] = np.maximum(records["closed_ns"] - idle_ns, records["start_ns"])
    rows["addr"] = np.ascontiguousarray(records["key"]["addr"]).view(np.uint8).reshape(-1, 16)
    rows["qpn"] = records["key"]["qpn"]
    for name in ("start_ns", "packets", "bytes", "ce_marks", "resent", "naks", "bound_ns", "direction"):
        rows[name] = records[name]
    return rows


class BurstReader:
    """Has the dataplane follow bursts, and reads those that end from now on.

    Args:
        maps: its open maps.
        gap_ms: longer gaps than this end a burst.
    """

    def __init__(self, maps: Maps, gap_ms: float) -> None:
        self._jiffy_ns = jiffy_ns()
        maps.control["burst_gap_jiffies"] = gap_jiffies(gap_ms, self._jiffy_ns)
        self._ring = SyncedRing(maps.bursts, maps.control["burst_head"])

    @property
    def lost(self) -> int:
        """Bursts that were written over before they were read."""
        return self._ring.lost

    @property
    def unsynced(self) -> int:
        """Bursts while this host was not on the timeline, which are of no use."""
        return self._ring.unsynced

    def read(self) -> NDArray[np.void]:
        """The bursts that ended since the last call, dtype BURST_ROW, shape (n,)."""
        return rows_of_bursts(self._ring.take(), self._jiffy_ns)
