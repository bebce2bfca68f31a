"""The newest fit of every directed edge, in arrays, ready for the graph solve.

What agents send is not trusted: numbers that are not finite or beyond all sense, edges of other
hosts and unknown peers are refused and counted.
"""

from collections import Counter
from collections.abc import Collection, Sequence
from typing import Any, Literal, get_args
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from cwdp.shared.bus.clocks import OwnChange
from cwdp.shared.bus.messages import EdgeFit, host_of
from cwdp.shared.clocksync import LONG_AGO, EdgeFits, FitReason
from cwdp.shared.clocksync.graph.solve import GraphEdges, OwnFits

STALE_AFTER_S = 3.0
LARGEST_TIME_NS = 2**62
LARGEST_SLOPE = 1e-3
LARGEST_NUMBER = 1e12
PATH_MASK = (1 << 20) - 1

Column = NDArray[Any]
Refusal = Literal["not_its_own", "unknown_peer", "not_sane"]
REFUSALS: tuple[str, ...] = get_args(Refusal)

_FLOATS = (
    "offset_ns",
    "slope",
    "margin_ns",
    "sigma_offset_ns",
    "sigma_out_ns",
    "sigma_back_ns",
    "sigma_slope",
    "points",
    "pure_share",
    "apart",
)
_COLUMNS = {
    "ref_local_ns": np.int64,
    "offset_base_ns": np.int64,
    "torn": np.bool_,
    "cut": np.bool_,
    "young": np.bool_,
    "own": np.bool_,
    "since_local_ns": np.int64,
    "src_slot": np.int64,
    "dst_slot": np.int64,
    "path": np.int64,
    **dict.fromkeys(_FLOATS, np.float64),
}


class FitTable:
    """Fits by (src NIC, dst NIC). Hosts have slots, the nodes of the clock graph.

    Times are seconds of the manager's monotonic clock. `refused` counts by reason.
    """

    def __init__(self) -> None:
        self.slots: dict[str, int] = {}
        self.refused: Counter[str] = Counter(dict.fromkeys(REFUSALS, 0))
        self._own: dict[str, OwnChange] = {}
        self._free_slots: list[int] = []
        self._rows: dict[tuple[str, str], int] = {}
        self._free_rows: list[int] = []
        self._when_s = np.zeros(0)
        self._columns: dict[str, Column] = {name: np.zeros(0, kind) for name, kind in _COLUMNS.items()}

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def slot_count(self) -> int:
        """How many slots there are, used and free."""
        return len(self.slots) + len(self._free_slots)

    def slot(self, host: str) -> int:
        """A host's node in the clock graph."""
        if host not in self.slots:
            self.slots[host] = self._free_slots.pop() if self._free_slots else len(self.slots)
        return self.slots[host]

    def add(self, host: str, fits: Sequence[EdgeFit], known: Collection[str], now_s: float) -> None:
        """Take in one report's fits; `known` are the hosts that there are."""
        accepted = [fit for fit in fits if self._accept(host, fit, known)]
        if not accepted:
            return
        rows = np.array([self._row(fit) for fit in accepted], np.int64)
        self._when_s[rows] = now_s
        for name in ("ref_local_ns", "offset_base_ns", "torn", "cut", "young", "own", *_FLOATS):
            column = self._columns[name]
            column[rows] = np.array([getattr(fit, name) for fit in accepted], column.dtype)
        since = [LONG_AGO if fit.since_local_ns is None else fit.since_local_ns for fit in accepted]
        self._columns["since_local_ns"][rows] = since

    def hear_own(self, host: str, change: OwnChange | None) -> None:
        """Take in what a host says of its own clock, or that there is nothing to say any more."""
        self._own.pop(host, None)
        if change is not None and host in self.slots:
            if _sane_own(change):
                self._own[host] = change
            else:
                self.refused["not_sane"] += 1

    def own(self) -> OwnFits:
        """What hosts say of their own clocks."""
        if not self._own:
            return OwnFits.nothing()
        told = list(self._own.values())
        return OwnFits(
            host=np.array([self.slots[host] for host in self._own], np.int64),
            ref_ns=np.array([change.ref_local_ns for change in told], np.int64),
            ahead_ns=np.array([change.ahead_ns for change in told]),
            sigma_ns=np.array([change.sigma_ns for change in told]),
            rate=np.array([change.rate for change in told]),
            sigma_rate=np.array([change.sigma_rate for change in told]),
        )

    def edges(self, now_s: float) -> GraphEdges:
        """All fits that are fresh."""
        rows = np.flatnonzero(now_s - self._when_s <= STALE_AFTER_S)
        column = {name: values[rows] for name, values in self._columns.items()}
        fits = EdgeFits(
            ref_ns=column["ref_local_ns"],
            offset_ns=column["offset_base_ns"],
            offset_frac_ns=column["offset_ns"],
            slope=column["slope"],
            margin_ns=column["margin_ns"],
            sigma_offset_ns=column["sigma_offset_ns"],
            sigma_out_ns=column["sigma_out_ns"],
            sigma_back_ns=column["sigma_back_ns"],
            sigma_slope=column["sigma_slope"],
            points=column["points"],
            pure_share=column["pure_share"],
            reason=np.select(
                [column["cut"], column["torn"]], [FitReason.CUT, FitReason.TORN], FitReason.OK
            ).astype(np.uint8),
        )
        ends = column["src_slot"], column["dst_slot"], column["path"]
        return GraphEdges(
            *ends,
            fits,
            since_ns=column["since_local_ns"],
            young=column["young"],
            own=column["own"],
            apart=column["apart"],
        )

    def peers(self, now_s: float) -> list[tuple[str, str]]:
        """The (src NIC, dst NIC) of all fresh fits."""
        fresh = now_s - self._when_s <= STALE_AFTER_S
        return [key for key, row in self._rows.items() if fresh[row]]

    def expire(self, now_s: float) -> None:
        """Forget edges that were not reported for long."""
        self._drop([key for key, row in self._rows.items() if now_s - self._when_s[row] > 10 * STALE_AFTER_S])

    def forget_host(self, host: str) -> int | None:
        """Drop a host's slot and edges; the slot that became free, which its owner must clear."""
        self._own.pop(host, None)
        slot = self.slots.pop(host, None)
        if slot is not None:
            self._free_slots.append(slot)
            self._drop([key for key in self._rows if host in (host_of(key[0]), host_of(key[1]))])
        return slot

    def _accept(self, host: str, fit: EdgeFit, known: Collection[str]) -> bool:
        reason: Refusal | None = None
        if host_of(fit.src) != host or host_of(fit.dst) == host:
            reason = "not_its_own"
        elif host_of(fit.dst) not in known or host not in known:
            reason = "unknown_peer"
        elif not _sane(fit):
            reason = "not_sane"
        if reason is not None:
            self.refused[reason] += 1
        return reason is None

    def _row(self, fit: EdgeFit) -> int:
        key = (fit.src, fit.dst)
        row = self._rows.get(key)
        if row is None:
            if not self._free_rows:
                self._grow()
            row = self._rows[key] = self._free_rows.pop()
            self._columns["src_slot"][row] = self.slot(host_of(fit.src))
            self._columns["dst_slot"][row] = self.slot(host_of(fit.dst))
            self._columns["path"][row] = _path(key)
        return row

    def _grow(self) -> None:
        """Double the room for edges."""
        old = len(self._when_s)
        new = max(64, 2 * old)
        self._free_rows.extend(range(new - 1, old - 1, -1))
        self._when_s = np.concatenate([self._when_s, np.full(new - old, -np.inf)])
        for name, column in self._columns.items():
            self._columns[name] = np.concatenate([column, np.zeros(new - old, column.dtype)])

    def _drop(self, keys: Sequence[tuple[str, str]]) -> None:
        for key in keys:
            row = self._rows.pop(key)
            self._when_s[row] = -np.inf
            self._free_rows.append(row)


def _path(key: tuple[str, str]) -> int:
    """A number for a pair of NICs, the same from both ends: parallel pairs of two hosts stay apart."""
    return crc32("\0".join(sorted(key)).encode()) & PATH_MASK


def _sane(fit: EdgeFit) -> bool:
    """Whether a fit's numbers can be computed with; those of a torn fit are not used."""
    if not all(abs(getattr(fit, name)) <= LARGEST_NUMBER for name in _FLOATS):
        return False
    if max(abs(fit.ref_local_ns), abs(fit.offset_base_ns), abs(fit.since_local_ns or 0)) > LARGEST_TIME_NS:
        return False
    return (
        fit.torn
        or fit.cut
        or (
            abs(fit.slope) < LARGEST_SLOPE
            and min(fit.sigma_offset_ns, fit.sigma_out_ns, fit.sigma_back_ns, fit.sigma_slope, fit.points) > 0
        )
    )


def _sane_own(change: OwnChange) -> bool:
    numbers = (change.ahead_ns, change.rate, change.sigma_ns, change.sigma_rate)
    if not all(abs(number) <= LARGEST_NUMBER for number in numbers):
        return False
    times_ns = max(abs(change.since_local_ns), abs(change.ref_local_ns))
    sigmas = min(change.sigma_ns, change.sigma_rate)
    return times_ns <= LARGEST_TIME_NS and abs(change.rate) < LARGEST_SLOPE and sigmas > 0
