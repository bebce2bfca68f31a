"""Which queue pairs of an interface send enough to fill a queue, how fast, and over which path."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from cwdp.dataplane.abi import Direction
from cwdp.dataplane.telemetry import FREE_OR_BUSY

BUSY_SHARE = 0.002
"""Of the link: what sends less, answers for instance, is left alone."""

MOST_BUSY = 256

ETHERNET_BYTES = 14


class Tables(Protocol):
    """What is read of the open maps of an interface; see `cwdp.dataplane.pinned.maps.Maps`."""

    qps: dict[Direction, NDArray[np.void]]


@dataclass(frozen=True)
class Sent:
    """What rows of the table have sent in all; every array has the shape (rows,)."""

    tags: NDArray[np.uint64]
    frame_bytes: NDArray[np.uint64]


class BusyReader:
    """Reads the table of queue pairs by egress, of which there may be many that rest."""

    def __init__(self, tables: Tables) -> None:
        self._table = tables.qps[Direction.EGRESS]
        self._tags, self._ip_bytes = self._table["tag"].copy(), self._table["bytes"].copy()
        self._last_ns = 0

    def sent(self, rows: NDArray[np.intp]) -> Sent:
        """What some rows have sent."""
        tags, packets, ip_bytes = (self._table[name][rows] for name in ("tag", "packets", "bytes"))
        return Sent(tags, ip_bytes + np.uint64(ETHERNET_BYTES) * packets)

    def busy(self, now_ns: int, link_bps: float) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
        """The rows that have sent most since the last call, and their rates in bit/s, of IP packets.

        Args:
            now_ns: CLOCK_MONOTONIC.
            link_bps: of the interface.
        """
        tags, ip_bytes = self._table["tag"].copy(), self._table["bytes"].copy()
        known = (tags == self._tags) & (ip_bytes >= self._ip_bytes) & (tags > FREE_OR_BUSY)
        moved = np.where(known, ip_bytes - self._ip_bytes, 0)
        elapsed_ns, self._last_ns = now_ns - self._last_ns, now_ns
        self._tags, self._ip_bytes = tags, ip_bytes
        rates_bps = moved * (8e9 / max(elapsed_ns, 1))
        rows = np.flatnonzero(rates_bps > BUSY_SHARE * link_bps)
        if len(rows) > MOST_BUSY:
            rows = rows[np.argpartition(rates_bps[rows], -MOST_BUSY)[-MOST_BUSY:]]
        return rows, rates_bps[rows]
