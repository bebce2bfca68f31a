"""Bursts of queue pairs, as hosts tell of them. Pure: time is an argument."""

from collections.abc import Collection, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cwdp.shared.bus.records import BURST_ROW, as_bytes, qp_keys, taken, together

KEPT, LATEST, SELDOM = 1_664, 640, 640
"""Bursts of a NIC, both ways: so many are kept until room has to be made. Then the latest stay, and of those before the latest of each
direction of a queue pair, as many of one as of another: else one that sends often would push out what sends seldom."""

REMEMBERED_NS = 300 * 10**9
"""Before the last one: what ended earlier need not be kept."""

LONGEST_NS = 3_600 * 10**9
MOST_BYTES = 2**50
LATE_NS = 600 * 10**9
"""What ended so much earlier or later than now is no burst of today's."""

Rows = NDArray[np.void]
Key = tuple[bytes, int, int]
"""Of one direction of a queue pair: the far address (16 bytes), the destination QPN, the direction."""


@dataclass(frozen=True)
class Bursts:
    """What is known of the bursts of one direction of a queue pair.

    Attributes:
        count: how many of them are kept.
        period_ns: from the beginning of one to that of the next, the median; None for fewer than two.
        length_ns: the median.
        bytes: of IP packets in one, the median.
        rate_bps: of IP packets within them, the mean over all; None where they were too short to tell.
        ce_marks, resent, naks: in all.
        last_end_ns: on the timeline.
        bound_ns: of their times, the largest.
    """

    count: int
    period_ns: int | None
    length_ns: int
    bytes: int
    rate_bps: int | None
    ce_marks: int
    resent: int
    naks: int
    last_end_ns: int
    bound_ns: int


class BurstStore:
    """The latest bursts of every NIC.

    Attributes:
        implausible: rows that were not taken: they end before they begin, last for hours, or are of another time.
    """

    def __init__(self) -> None:
        self.implausible = 0
        self._rings: dict[tuple[str, str], _Kept] = {}

    def hear(self, nics: Sequence[tuple[str, str]], rows: Rows, counts: Sequence[int], now_ns: int) -> None:
        """Take in bursts that are over.

        Args:
            nics: hosts and interfaces.
            rows: of these, one's behind another's, dtype BURST_ROW, shape (n,).
            counts: how many each of them has.
            now_ns: the timeline now.
        """
        start_ns, end_ns = rows["start_ns"], rows["end_ns"]
        sane = (end_ns > now_ns - LATE_NS) & (end_ns < now_ns + LATE_NS) & (rows["bytes"] < MOST_BYTES)
        sane &= (start_ns <= end_ns) & (start_ns > end_ns - LONGEST_NS)
        implausible = len(rows) - int(np.count_nonzero(sane))
        self.implausible += implausible
        end = 0
        for nic, count in zip(nics, counts, strict=True):
            these, end = slice(end, end + count), end + count
            mine = rows[these][sane[these]] if implausible else rows[these]
            if len(mine):
                self._rings.setdefault(nic, _Kept()).add(mine)

    def of(self, nic: tuple[str, str]) -> dict[Key, Bursts]:
        """What is known of a NIC's queue pairs."""
        ring = self._rings.get(nic)
        if ring is None:
            return {}
        return {_key(part[0]): _summary(part) for part in _by_queue_pair(ring.rows)}

    def since(
        self, since_ns: int, only: AbstractSet[tuple[str, str]] | None = None
    ) -> dict[tuple[str, str], Rows]:
        """The rows that ended after a moment, in no order, of each NIC that has any; with `only`, of these NICs."""
        nics = self._rings.keys() if only is None else self._rings.keys() & only
        rows = {nic: self._rings[nic].rows for nic in nics}
        found = {nic: kept[kept["end_ns"] >= since_ns] for nic, kept in rows.items()}
        return {nic: rows for nic, rows in found.items() if len(rows)}

    def now(self) -> dict[tuple[str, str], Rows]:
        """The rows of each NIC as they are now, in no order: read only, and not changed any more, so a thread may read them."""
        return {nic: ring.rows for nic, ring in self._rings.items()}

    def whole_since_ns(self, nic: tuple[str, str]) -> int | None:
        """When the last burst ended of those of a NIC that are not kept; None where all are."""
        return self._rings[nic].lost_ns if nic in self._rings else None

    def forget(self, nic: tuple[str, str]) -> None:
        """Forget what is known of one."""
        self._rings.pop(nic, None)

    def keep_only(self, hosts: Collection[str]) -> None:
        """Forget what other hosts told."""
        for nic in [nic for nic in self._rings if nic[0] not in hosts]:
            del self._rings[nic]


class _Kept:
    """The rows that are kept of a NIC.

    Attributes:
        lost_ns: when the last one ended of those that are not; None where all are.
    """

    def __init__(self) -> None:
        self.lost_ns: int | None = None
        self._rows = np.zeros(KEPT, BURST_ROW)
        self._count = 0

    @property
    def rows(self) -> Rows:
        """In no order; later ones are added behind these, or with them to an array of their own."""
        return self._rows[: self._count]

    def add(self, rows: Rows) -> None:
        if self._count + len(rows) > KEPT:
            rows = together([self.rows, rows])
            self._rows, self._count = np.zeros(KEPT, BURST_ROW), 0
            keeps = _keeps(rows)
            lost_ns = int(rows["end_ns"][~keeps].max())
            self.lost_ns = lost_ns if self.lost_ns is None else max(lost_ns, self.lost_ns)
            rows = taken(rows, keeps)
        as_bytes(self._rows)[self._count : self._count + len(rows)] = as_bytes(rows)
        self._count += len(rows)


def _keeps(rows: Rows) -> NDArray[np.bool_]:
    """Which of too many rows are kept, shape (n,)."""
    end_ns = rows["end_ns"]
    latest_first = np.argsort(end_ns, kind="stable")[::-1]
    keeps = np.zeros(len(rows), np.bool_)
    keeps[latest_first[:LATEST]] = True
    older = latest_first[LATEST:]
    older = older[end_ns[older] >= end_ns[latest_first[0]] - REMEMBERED_NS]
    keys = qp_keys(rows)[older]
    order = np.argsort(keys, kind="stable")
    is_first = np.concatenate([[True], keys[order][1:] != keys[order][:-1]])[: len(order)]
    place = np.arange(len(order))
    turn = np.zeros(len(older), np.intp)
    turn[order] = place - np.maximum.accumulate(np.where(is_first, place, 0))
    keeps[older[np.argsort(turn, kind="stable")[:SELDOM]]] = True
    return keeps


def _by_queue_pair(rows: Rows) -> list[Rows]:
    """The rows of each direction of a queue pair of a NIC, by their beginning; dtype BURST_ROW, shapes (n,)."""
    if not len(rows):
        return []
    keys = qp_keys(rows)
    order = np.lexsort((rows["start_ns"], keys))
    rows, keys = taken(rows, order), keys[order]
    return np.split(rows, np.flatnonzero(keys[1:] != keys[:-1]) + 1)


def _key(row: np.void) -> Key:
    return row["addr"].tobytes(), int(row["qpn"]), int(row["direction"])


def _summary(rows: Rows) -> Bursts:
    """Of the bursts of one direction of a queue pair, by their beginning."""
    lasted_ns = rows["end_ns"] - rows["start_ns"]
    total_ns = int(lasted_ns.sum())
    periods_ns = np.diff(rows["start_ns"])
    return Bursts(
        count=len(rows),
        period_ns=round(float(np.median(periods_ns))) if len(periods_ns) else None,
        length_ns=round(float(np.median(lasted_ns))),
        bytes=round(float(np.median(rows["bytes"]))),
        rate_bps=round(8e9 * int(rows["bytes"].sum()) / total_ns) if total_ns else None,
        ce_marks=int(rows["ce_marks"].sum()),
        resent=int(rows["resent"].sum()),
        naks=int(rows["naks"].sum()),
        last_end_ns=int(rows["end_ns"].max()),
        bound_ns=int(rows["bound_ns"].max()),
    )
