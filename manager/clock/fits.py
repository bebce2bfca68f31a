"""The newest fit of every directed edge, in arrays, ready for the graph solve.

What agents send is not trusted: numbers that are not finite or beyond all sense, edges of other
hosts and unknown peers are refused and counted.
"""

from collections import Counter
from collections.abc import Container, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from cwdp.shared.bus.clocks import OwnChange
from cwdp.shared.bus.edges import FIT_ROW, FLAGS, FLOATS, NEVER_NS, EdgeRows, Ends
from cwdp.shared.bus.messages import host_of
from cwdp.shared.clocksync import LONG_AGO, EdgeFits, FitReason
from cwdp.shared.clocksync.graph.solve import GraphEdges, OwnFits

STALE_AFTER_S = 3.0
LARGEST_TIME_NS = 2**62
LARGEST_SLOPE = 1e-3
LARGEST_NUMBER = 1e12
POSITIVE = ("sigma_offset_ns", "sigma_out_ns", "sigma_back_ns", "sigma_slope", "points")
_POSITIVE = [FLOATS.index(name) for name in POSITIVE]
PATH_MASK = (1 << 20) - 1

_TIMES = ("ref_local_ns", "offset_base_ns", "since_local_ns")
_END_BYTES = 4
_TIMES_AT = _END_BYTES + len(FLAGS)
_FLOATS_AT = _TIMES_AT + 8 * len(_TIMES)
assert FIT_ROW.names == ("src", "dst", *FLAGS, *_TIMES, *FLOATS)

Column = NDArray[Any]
Refusal = Literal["not_its_own", "unknown_peer", "not_sane"]
REFUSALS: tuple[str, ...] = get_args(Refusal)

_COLUMNS = {
    "ref_local_ns": np.int64,
    "offset_base_ns": np.int64,
    **dict.fromkeys(FLAGS, np.bool_),
    "since_local_ns": np.int64,
    "src_slot": np.int64,
    "dst_slot": np.int64,
    "path": np.int64,
    **dict.fromkeys(FLOATS, np.float64),
}


@dataclass(frozen=True)
class _Arrived:
    """The edges of a host's last report, all of which were its own to known peers, or to hosts of other pods.

    Attributes:
        ends: what each is of, as told.
        peers, far: known hosts, and those of other pods.
        near: which edges are to known hosts, shape (edges,).
        rows: the rows of these, shape (near edges,).
    """

    ends: Ends
    peers: set[str]
    far: set[str]
    near: NDArray[np.bool_]
    rows: NDArray[np.int64]

    def holds(self, host: str, known: Container[str], elsewhere: Container[str]) -> bool:
        """Whether they all are where they were."""
        near = host in known and all(peer in known and peer not in elsewhere for peer in self.peers)
        return near and all(peer in elsewhere for peer in self.far)


class FitTable:
    """Fits by (src NIC, dst NIC). Hosts have slots, the nodes of the clock graph.

    Times are seconds of the manager's monotonic clock. `refused` counts by reason.
    """

    def __init__(self) -> None:
        self.slots: dict[str, int] = {}
        self.refused: Counter[str] = Counter(dict.fromkeys(REFUSALS, 0))
        self._own: dict[str, OwnChange] = {}
        self._arrived: dict[str, _Arrived] = {}
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

    def add(
        self,
        host: str,
        told: EdgeRows,
        known: Container[str],
        now_s: float,
        elsewhere: Container[str] = (),
    ) -> bool:
        """Take in one report's fits, as FIT_ROWs.

        Args:
            host: whose report it is.
            told: its fits.
            known: the hosts that there are.
            now_s: the time.
            elsewhere: hosts of other pods, on timelines of their own; fits to them are not for this table.

        Returns:
            Whether some of what was taken says that a clock has just changed.
        """
        try:
            fits = told.read(FIT_ROW)
        except ValueError:
            self.refused["not_sane"] += 1
            return False
        if not len(fits):
            return False
        fits, rows = self._accepted(host, told, fits, known, elsewhere)
        if not len(fits):
            return False
        self._when_s[rows] = now_s
        for name in ("ref_local_ns", "offset_base_ns", *FLAGS, *FLOATS):
            self._columns[name][rows] = fits[name]
        since_ns = fits["since_local_ns"]
        self._columns["since_local_ns"][rows] = np.where(since_ns == NEVER_NS, LONG_AGO, since_ns)
        return bool(fits["young"].any())

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

    def _accepted(
        self,
        host: str,
        told: EdgeRows,
        fits: NDArray[np.void],
        known: Container[str],
        elsewhere: Container[str],
    ) -> tuple[NDArray[np.void], NDArray[np.int64]]:
        """The fits that can be taken, and their rows; the others are counted, each for its first reason.

        Most reports are of the same edges as the one before.
        """
        ends = told.ends(len(fits), _END_BYTES)
        before = self._arrived.get(host)
        if before is not None and before.ends == ends and before.holds(host, known, elsewhere):
            if len(before.rows) < len(fits):
                fits = fits[before.near]
            sane = _sane(fits)
            if sane.all():
                return fits, before.rows
            self.refused["not_sane"] += int(np.count_nonzero(~sane))
            return fits[sane], before.rows[sane]
        peers = [host_of(dst) for dst in told.dsts]
        near = np.array([peer not in elsewhere for peer in peers], bool)[fits["dst"]]
        own = np.array([host_of(src) == host for src in told.srcs], bool)[fits["src"]]
        other = np.array([peer != host for peer in peers], bool)[fits["dst"]]
        there = np.array([host in known and peer in known for peer in peers], bool)[fits["dst"]]
        taken = near.copy()
        reasons: dict[Refusal, NDArray[np.bool_]] = {
            "not_its_own": own & other,
            "unknown_peer": there,
            "not_sane": _sane(fits),
        }
        for reason, holds in reasons.items():
            self.refused[reason] += int(np.count_nonzero(taken & ~holds))
            taken &= holds
        pairs = zip(fits["src"][taken].tolist(), fits["dst"][taken].tolist(), strict=True)
        rows = self._rows_of([(told.srcs[src], told.dsts[dst]) for src, dst in pairs])
        if (taken == near).all():
            far = {peer for peer in peers if peer in elsewhere}
            self._arrived[host] = _Arrived(ends, {*peers} - far, far, near, rows)
        return fits[taken], rows

    def _rows_of(self, keys: Sequence[tuple[str, str]]) -> NDArray[np.int64]:
        """Where some edges are kept; those that have no row yet are given one."""
        new = [key for key in dict.fromkeys(keys) if key not in self._rows]
        if new:
            self._add_rows(new)
        return np.array([self._rows[key] for key in keys], np.int64)

    def _add_rows(self, keys: Sequence[tuple[str, str]]) -> None:
        while len(self._free_rows) < len(keys):
            self._grow()
        rows = self._free_rows[-len(keys) :][::-1]
        del self._free_rows[-len(keys) :]
        slots = [(self.slot(host_of(src)), self.slot(host_of(dst))) for src, dst in keys]
        self._columns["src_slot"][rows], self._columns["dst_slot"][rows] = np.array(slots).T
        self._columns["path"][rows] = [_path(key) for key in keys]
        self._rows.update(zip(keys, rows, strict=True))

    def _grow(self) -> None:
        """Double the room for edges."""
        old = len(self._when_s)
        new = max(64, 2 * old)
        self._free_rows = [*range(new - 1, old - 1, -1), *self._free_rows]
        self._when_s = np.concatenate([self._when_s, np.full(new - old, -np.inf)])
        for name, column in self._columns.items():
            self._columns[name] = np.concatenate([column, np.zeros(new - old, column.dtype)])

    def _drop(self, keys: Sequence[tuple[str, str]]) -> None:
        if keys:
            self._arrived.clear()
        for key in keys:
            row = self._rows.pop(key)
            self._when_s[row] = -np.inf
            self._free_rows.append(row)


def _path(key: tuple[str, str]) -> int:
    """A number for a pair of NICs, the same from both ends: parallel pairs of two hosts stay apart."""
    return crc32("\0".join(sorted(key)).encode()) & PATH_MASK


def _sane(fits: NDArray[np.void]) -> NDArray[np.bool_]:
    """Which fits' numbers can be computed with; those of a torn or cut fit are not used."""
    rows = np.ascontiguousarray(fits).view(np.uint8).reshape(len(fits), FIT_ROW.itemsize)
    floats = np.ascontiguousarray(rows[:, _FLOATS_AT:]).view("<f8")
    times_ns = np.ascontiguousarray(rows[:, _TIMES_AT:_FLOATS_AT]).view("<i8")
    near = (times_ns <= LARGEST_TIME_NS) & (times_ns >= -LARGEST_TIME_NS)
    near[:, _TIMES.index("since_local_ns")] |= times_ns[:, _TIMES.index("since_local_ns")] == NEVER_NS
    sane = (np.abs(floats) <= LARGEST_NUMBER).all(axis=1) & near.all(axis=1)
    positive = (floats[:, _POSITIVE] > 0).all(axis=1) & (np.abs(fits["slope"]) < LARGEST_SLOPE)
    void = (fits["torn"] > 0) | (fits["cut"] > 0)
    return np.asarray(sane & (void | positive), bool)


def _sane_own(change: OwnChange) -> bool:
    numbers = (change.ahead_ns, change.rate, change.sigma_ns, change.sigma_rate)
    if not all(abs(number) <= LARGEST_NUMBER for number in numbers):
        return False
    times_ns = max(abs(change.since_local_ns), abs(change.ref_local_ns))
    sigmas = min(change.sigma_ns, change.sigma_rate)
    return times_ns <= LARGEST_TIME_NS and abs(change.rate) < LARGEST_SLOPE and sigmas > 0
