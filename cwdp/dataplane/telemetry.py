"""What the dataplane counts of queue pairs, and the data packets that it stamped, as rows."""

import time
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cwdp.dataplane import abi
from cwdp.dataplane.abi import Direction
from cwdp.dataplane.maps import Maps
from cwdp.dataplane.ring import Ring
from cwdp.shared.records import QP_COUNTERS, QP_ROW, SAMPLE_ROW

FREE_OR_BUSY = 1
"""Tags up to this stand for no queue pair."""


@dataclass
class _Last:
    """A table as it was read last."""

    tags: NDArray[np.uint64]
    packets: NDArray[np.uint64]


class QpReader:
    """Reads the tables of queue pairs; each call gives those that have moved since the last one."""

    def __init__(self, maps: Maps) -> None:
        self._maps = maps
        self._last = {
            direction: _Last(np.zeros(len(table), np.uint64), np.zeros(len(table), np.uint64))
            for direction, table in maps.qps.items()
        }

    def read(self) -> tuple[NDArray[np.void], NDArray[np.uint64]]:
        """Those that moved, and by how many packets each; all that there are at the first call.

        Returns:
            Rows of dtype QP_ROW, shape (n,), each queue pair and direction once; packets, shape (n,).
        """
        parts = [self._read(direction) for direction in self._maps.qps]
        rows, moved = zip(*parts, strict=True)
        return np.concatenate(rows), np.concatenate(moved)

    def _read(self, direction: Direction) -> tuple[NDArray[np.void], NDArray[np.uint64]]:
        table, last = self._maps.qps[direction], self._last[direction]
        tags, packets = table["tag"].copy(), table["packets"].copy()
        moved = np.where((tags == last.tags) & (packets >= last.packets), packets - last.packets, packets)
        self._last[direction] = _Last(tags, packets)
        changed = (tags > FREE_OR_BUSY) & ((tags != last.tags) | (moved > 0))
        chosen = np.flatnonzero(np.isin(tags, tags[changed]))
        rows = _rows(table[chosen], direction)
        return _added_up(rows, tags[chosen], moved[chosen])


def _rows(records: NDArray[np.void], direction: Direction) -> NDArray[np.void]:
    rows = np.zeros(len(records), dtype=QP_ROW)
    rows["addr"] = np.ascontiguousarray(records["key"]["addr"]).view(np.uint8).reshape(-1, 16)
    rows["qpn"], rows["direction"] = records["key"]["qpn"], direction
    rows["sport"], rows["slice"] = records["used_sport"], records["slice"]
    rows["naks"] = records["naks"]
    for name in QP_COUNTERS:
        rows[name] = records[name]
    now_ns = np.uint64(time.monotonic_ns())
    rows["age_ns"] = now_ns - np.minimum(records["last_seen_ns"], now_ns)
    return rows


def _added_up(
    rows: NDArray[np.void], tags: NDArray[np.uint64], moved: NDArray[np.uint64]
) -> tuple[NDArray[np.void], NDArray[np.uint64]]:
    """Two CPUs may have made two places for one queue pair: what both counted, and the rest of the later one."""
    order = np.lexsort((rows["age_ns"], tags))
    first = np.flatnonzero(np.diff(tags[order], prepend=np.uint64(0)))
    if len(first) == len(rows):
        return rows, moved
    whole = rows[order][first]
    for name in (*QP_COUNTERS, "naks"):
        whole[name] = np.add.reduceat(rows[name][order], first, axis=0)
    return whole, np.add.reduceat(moved[order], first)


class SampleReader:
    """Reads the data packets that the dataplane stamped, from now on.

    Attributes:
        unsynced: packets stamped while this host was not on the timeline, which are of no use.
    """

    def __init__(self, maps: Maps) -> None:
        self._ring = Ring(maps.samples, maps.control["sample_head"])
        self.unsynced = 0

    @property
    def lost(self) -> int:
        """Packets that were written over before they were read."""
        return self._ring.lost

    def read(self) -> NDArray[np.void]:
        """The packets since the last call, dtype SAMPLE_ROW, shape (n,)."""
        records = self._ring.take()
        synced = records["bound_ns"] != abi.BOUND_UNSYNCED
        self.unsynced += int(np.count_nonzero(~synced))
        records = records[synced]
        rows = np.zeros(len(records), dtype=SAMPLE_ROW)
        rows["time_ns"] = records["local_ns"].astype(np.int64) + records["offset_ns"]
        rows["addr"] = np.ascontiguousarray(records["key"]["addr"]).view(np.uint8).reshape(-1, 16)
        rows["qpn"] = records["key"]["qpn"]
        for name in ("psn", "bound_ns", "sport", "direction"):
            rows[name] = records[name]
        return rows
