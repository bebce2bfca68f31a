"""What the dataplane counts of queue pairs, and the data packets that it stamped, as rows."""

import time

import numpy as np
from numpy.typing import NDArray

from cwdp.dataplane.abi import Direction
from cwdp.dataplane.pinned.maps import Maps
from cwdp.dataplane.pinned.ring import SyncedRing
from cwdp.shared.bus.records import QP_COUNTERS, QP_ROW, SAMPLE_ROW

FREE_OR_BUSY = 1
"""Tags up to this stand for no queue pair."""


class QpReader:
    """Reads the tables of queue pairs; each call gives those that have moved since the last one.

    A table has room for far more than there are: it is searched only when the dataplane has made places since.
    """

    def __init__(self, maps: Maps) -> None:
        self._maps = maps
        self._made = -1
        self._tables = [_Table(direction, records) for direction, records in maps.qps.items()]

    def read(self) -> tuple[NDArray[np.void], NDArray[np.uint64]]:
        """Those that moved, and by how many packets each; all that there are at the first call.

        Returns:
            Rows of dtype QP_ROW, shape (n,), each queue pair and direction once; packets, shape (n,).
        """
        made = self._maps.qp_places_made()
        if made != self._made:
            for table in self._tables:
                table.search()
            self._made = made
        rows, moved = zip(*(table.read() for table in self._tables), strict=True)
        return np.concatenate(rows), np.concatenate(moved)


class _Table:
    """One direction's table, and as it was read last."""

    def __init__(self, direction: Direction, records: NDArray[np.void]) -> None:
        self._direction, self._records = direction, records
        self._places = np.zeros(0, np.intp)
        self._tags, self._packets = np.zeros((2, len(records)), np.uint64)

    def search(self) -> None:
        """Find the places that are taken, or were when they were read last."""
        self._places = np.flatnonzero((self._records["tag"] > FREE_OR_BUSY) | (self._tags > FREE_OR_BUSY))

    def read(self) -> tuple[NDArray[np.void], NDArray[np.uint64]]:
        """Those that moved, and by how many packets each."""
        places = self._places
        tags, packets = self._records["tag"][places], self._records["packets"][places]
        same = tags == self._tags[places]
        before = np.where(same, self._packets[places], 0)
        moved = np.where(packets >= before, packets - before, packets)
        self._tags[places], self._packets[places] = tags, packets
        changed = (tags > FREE_OR_BUSY) & (~same | (moved > 0))
        chosen = np.flatnonzero(np.isin(tags, tags[changed]))
        rows = _rows(self._records[places[chosen]], self._direction)
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
    """Reads the data packets that the dataplane stamped, from now on."""

    def __init__(self, maps: Maps) -> None:
        self._ring = SyncedRing(maps.samples, maps.control["sample_head"])

    @property
    def lost(self) -> int:
        """Packets that were written over before they were read."""
        return self._ring.lost

    @property
    def unsynced(self) -> int:
        """Packets stamped while this host was not on the timeline, which are of no use."""
        return self._ring.unsynced

    def read(self) -> NDArray[np.void]:
        """The packets since the last call, dtype SAMPLE_ROW, shape (n,)."""
        records = self._ring.take()
        rows = np.zeros(len(records), dtype=SAMPLE_ROW)
        rows["time_ns"] = records["local_ns"].astype(np.int64) + records["offset_ns"]
        rows["addr"] = np.ascontiguousarray(records["key"]["addr"]).view(np.uint8).reshape(-1, 16)
        rows["qpn"] = records["key"]["qpn"]
        for name in ("psn", "bound_ns", "sport", "direction"):
            rows[name] = records[name]
        return rows
