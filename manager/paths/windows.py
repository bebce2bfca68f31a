"""Probes by path and 100 ms window, the latest few seconds of them, and each path's least delay. No I/O.

Rows are numbered as they first appear and keep their number; memory is bounded by `MOST_ROWS`.

A path's least delay is the shortest that it surely had, whatever the clocks were off by within their bounds. That a clock
was off by more is known only afterwards, so the least delays of the last seconds are kept apart until then.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cwdp.shared.bus.records import NO_DELAY_NS, WINDOW_ROW, shown_address

KEPT = 64
MOST_ROWS = 1 << 20
MOST_ROWS_A_NIC = 1 << 14
MOST_AHEAD = 5
REASONS = ("ok", "not_sane", "too_old", "too_many")
FORGET_AFTER = 600
BASE_BUCKETS = 8
BASE_BUCKET_WINDOWS = 300
RECENT_BUCKETS = 3
RECENT_BUCKET_WINDOWS = 20
"""Least delays count for good once they are two to three such buckets old."""

WIDEST_BOUND_NS = 100_000
"""A delay that is known less well than this tells nothing of queues."""

WAYS = ("fwd", "rev")
FWD, REV = 0, 1
_KEY = slice(8, 28)
_NO_WINDOWS = (0, -1)

Floats = NDArray[np.float32]


class RowName(NamedTuple):
    """What is probed: from a NIC to an address by a port, and back by another."""

    src: str
    dst_addr: str
    sport: int
    reply_sport: int


@dataclass(frozen=True)
class Window:
    """All rows in one window.

    Attributes:
        number: of the window.
        sent, lost: probes, float64, shape (rows,).
        mean_ns, least_ns: delays above each path's least, there and back, NaN for none, shape (2, rows).
    """

    number: int
    sent: NDArray[np.float64]
    lost: NDArray[np.float64]
    mean_ns: Floats
    least_ns: Floats

    def of(self, rows: NDArray[np.bool_]) -> "Window":
        """The first rows, as many as are given, and of those that are not wanted nothing."""
        if len(rows) == len(self.sent) and rows.all():
            return self
        sent, lost = (np.where(rows, each[: len(rows)], 0.0) for each in (self.sent, self.lost))
        mean_ns, least_ns = (
            np.where(rows, each[:, : len(rows)], np.float32(np.nan)) for each in (self.mean_ns, self.least_ns)
        )
        return Window(self.number, sent, lost, mean_ns, least_ns)


@dataclass(frozen=True)
class _Known:
    """The rows of a NIC: sorted keys, and the number of each; shape (n,)."""

    keys: NDArray[np.bytes_]
    numbers: NDArray[np.intp]

    def find(self, keys: NDArray[np.bytes_]) -> NDArray[np.intp]:
        """The number of each key, -1 for one that is not there."""
        if not len(self.keys):
            return np.full(len(keys), -1, np.intp)
        place = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        return np.where(self.keys[place] == keys, self.numbers[place], -1)

    def with_more(self, keys: NDArray[np.bytes_], numbers: NDArray[np.intp]) -> "_Known":
        """With further rows; a negative number is no row."""
        keys = np.concatenate([self.keys, keys[numbers >= 0]])
        numbers = np.concatenate([self.numbers, numbers[numbers >= 0]])
        order = np.argsort(keys, kind="stable")
        return _Known(keys[order], numbers[order])

    def without(self, numbers: NDArray[np.intp]) -> "_Known":
        """Without some rows."""
        kept = ~np.isin(self.numbers, numbers)
        return _Known(self.keys[kept], self.numbers[kept])


_NOTHING = _Known(np.zeros(0, f"S{_KEY.stop - _KEY.start}"), np.zeros(0, np.intp))


class WindowStore:
    """Takes in reports of windows.

    Attributes:
        names: what each row is; None for a number that is free.
        version: another one whenever `names` changes.
        reports: rows by what became of them (`REASONS`).
    """

    def __init__(self) -> None:
        self.names: list[RowName | None] = []
        self.version = 0
        self.reports: Counter[str] = Counter(dict.fromkeys(REASONS, 0))
        self._of_nic: dict[str, _Known] = {}
        self._newest: dict[str, int] = {}
        self._free: list[int] = []
        self._held = np.full(KEPT, -1, np.int64)
        self._seen = np.zeros(0, np.int64)
        self._named = np.zeros(0, np.int64)
        self._counts = np.zeros((2, 0, KEPT), np.uint16)
        self._delays = np.zeros((4, 0, KEPT), np.float32)
        self._base = np.zeros((2, BASE_BUCKETS, 0), np.float32)
        self._bucket = 0
        self._recent = np.zeros((2, RECENT_BUCKETS, 0), np.float32)
        self._recent_held = np.full(RECENT_BUCKETS, -1, np.int64)
        self._distrusted = np.zeros((2, 0), np.int64)
        self._distrusted_ends: dict[str, tuple[int, int]] = {}

    def hear(self, nic: str, rows: NDArray[np.void], now: int) -> None:
        """Take in WINDOW_ROWs of a NIC; `now` is the number of the present window."""
        good = (rows["lost"] <= rows["sent"]) & (rows["window"] <= now + MOST_AHEAD)
        self.reports["not_sane"] += int(np.count_nonzero(~good))
        fresh = good & (rows["window"] > now - KEPT + MOST_AHEAD + 1)
        self.reports["too_old"] += int(np.count_nonzero(good & ~fresh))
        rows = rows[fresh]
        if not len(rows):
            return
        number = self._numbers(nic, rows)
        placed = number >= 0
        self.reports["too_many"] += int(np.count_nonzero(~placed))
        self.reports["ok"] += int(np.count_nonzero(placed))
        rows, number = rows[placed], number[placed]
        if len(rows):
            self._newest[nic] = max(self._newest.get(nic, 0), int(rows["window"].max()))
            self._keep(rows, number)

    def complete_to(self, now: int, deadline_windows: int) -> int:
        """The newest window of which every NIC that reported within `deadline_windows` windows has said all."""
        newest = [window for window in self._newest.values() if window >= now - deadline_windows]
        return min(newest, default=now - deadline_windows)

    def window(self, number: int) -> Window:
        """What is known of a window."""
        slot = number % KEPT
        if self._held[slot] != number:
            nothing = np.full((2, len(self.names)), np.nan, np.float32)
            zero = np.zeros(len(self.names))
            return Window(number, zero, zero, nothing, nothing)
        sent, lost = self._counts[:, :, slot].astype(np.float64)
        base = np.minimum(self._base.min(axis=1), self._recent.min(axis=1))
        base[np.isinf(base)] = np.nan
        delays = self._delays[:, :, slot]
        return Window(number, sent, lost, delays[:2] - base, delays[2:] - base)

    def answered(self, nic: str) -> set[str]:
        """The addresses that have answered a NIC's probes of late."""
        numbers = self._of_nic.get(nic, _NOTHING).numbers
        answers = (self._counts[0, numbers] > self._counts[1, numbers]).any(axis=1)
        names = (self.names[number] for number in numbers[answers].tolist())
        return {name.dst_addr for name in names if name is not None}

    def probes_from(self, nic: str, *, v6: bool) -> bool:
        """Whether a NIC probes over IPv6, or over IPv4."""
        names = (self.names[number] for number in self._of_nic.get(nic, _NOTHING).numbers.tolist())
        return any((":" in name.dst_addr) == v6 for name in names if name is not None)

    def named_by(self, version: int) -> NDArray[np.bool_]:
        """Rows that have been what they are since a version of the names, shape (rows,)."""
        return np.asarray(self._named <= version, bool)

    def forget_base(self, rows: NDArray[np.intp], way: int) -> None:
        """Have some rows' least delays one way begin anew: they lead over other links now."""
        self._base[way, :, rows] = self._recent[way, :, rows] = np.inf

    def distrust(self, ends: Mapping[str, tuple[int, int]]) -> None:
        """Take back what is known of delays in windows in which clocks were further off than they claimed.

        Args:
            ends: the first and the last such window of NICs and addresses, whose rows start or end there.
        """
        newest = int(self._held.max())
        kept = {end: span for end, span in self._distrusted_ends.items() if span[1] > newest - KEPT}
        self._distrusted_ends = kept | dict(ends)
        rows = np.array([row for row in range(len(self.names)) if self._distrust(row, ends)], np.intp)
        self._recent[:, :, rows] = np.inf
        first, last = self._distrusted[:, rows]
        for slot, window in enumerate(self._held.tolist()):
            self._delays[:, rows[(first <= window) & (window <= last)], slot] = np.nan

    def expire(self, now: int) -> None:
        """Let go of rows that nobody has reported for long."""
        old = np.flatnonzero((self._seen >= 0) & (self._seen < now - FORGET_AFTER))
        if not len(old):
            return
        self._seen[old] = -1
        for nic, known in list(self._of_nic.items()):
            kept = known.without(old)
            self._of_nic[nic] = kept
            if not len(kept.keys):
                del self._of_nic[nic]
                self._newest.pop(nic, None)
        for row in old.tolist():
            self.names[row] = None
        self._free.extend(old[::-1].tolist())
        self.version += 1

    def _keep(self, rows: NDArray[np.void], number: NDArray[np.intp]) -> None:
        window = rows["window"]
        for each in np.unique(window).tolist():
            self._open(each)
        held = self._held[window % KEPT] == window
        rows, number, window = rows[held], number[held], window[held]
        slot = window % KEPT
        self._counts[0, number, slot], self._counts[1, number, slot] = rows["sent"], rows["lost"]
        np.maximum.at(self._seen, number, window)
        first, last = self._distrusted[:, number]
        known = (rows["bound_ns"] < WIDEST_BOUND_NS) & ~((first <= window) & (window <= last))
        turn = window // RECENT_BUCKET_WINDOWS
        recent = turn % RECENT_BUCKETS
        learns = self._recent_held[recent] == turn
        for way, name in enumerate(WAYS):
            for row, value in ((way, f"{name}_mean_ns"), (2 + way, f"{name}_min_ns")):
                delay = np.where(known & (rows[value] != NO_DELAY_NS), rows[value], np.nan)
                self._delays[row, number, slot] = delay
            surely = np.where(np.isnan(delay), np.inf, delay + rows["bound_ns"]).astype(np.float32)
            np.minimum.at(self._recent[way], (recent[learns], number[learns]), surely[learns])

    def _open(self, window: int) -> None:
        """Make room for a window that is newer than what its slot holds."""
        slot = window % KEPT
        if window <= self._held[slot]:
            return
        self._held[slot] = window
        self._counts[:, :, slot] = 0
        self._delays[:, :, slot] = np.nan
        self._settle(window // RECENT_BUCKET_WINDOWS)
        bucket = window // BASE_BUCKET_WINDOWS % BASE_BUCKETS
        if bucket != self._bucket and window >= self._held.max():
            self._bucket = bucket
            self._base[:, bucket] = np.inf

    def _settle(self, turn: int) -> None:
        """Have the least delays of the oldest recent bucket count for good, where a newer one begins in its place."""
        recent = turn % RECENT_BUCKETS
        if turn <= self._recent_held[recent]:
            return
        self._recent_held[recent] = turn
        base = self._base[:, self._bucket]
        np.minimum(base, self._recent[:, recent], out=base)
        self._recent[:, recent] = np.inf

    def _distrust(self, row: int, ends: Mapping[str, tuple[int, int]]) -> bool:
        """Whether a row starts or ends at one of some ends; then its delays are not trusted in those windows."""
        name = self.names[row]
        spans = [] if name is None else [ends[end] for end in (name.src, name.dst_addr) if end in ends]
        for first, last in spans:
            before = self._distrusted[:, row]
            joined = (min(first, before[0]), max(last, before[1]))
            self._distrusted[:, row] = joined if first <= before[1] else (first, last)
        return bool(spans)

    def _numbers(self, nic: str, rows: NDArray[np.void]) -> NDArray[np.intp]:
        """The number of each row, -1 where there is no room."""
        known = self._of_nic.setdefault(nic, _NOTHING)
        flat = np.ascontiguousarray(rows).view(np.uint8).reshape(len(rows), WINDOW_ROW.itemsize)
        keys = np.ascontiguousarray(flat[:, _KEY]).view(f"S{_KEY.stop - _KEY.start}").ravel()
        numbers = known.find(keys)
        if (numbers < 0).any():
            fresh, first = np.unique(keys[numbers < 0], return_index=True)
            new = rows[numbers < 0][first]
            given = [self._new(nic, row, len(known.keys) + i) for i, row in enumerate(new)]
            known = self._of_nic[nic] = known.with_more(fresh, np.array(given, np.intp))
            numbers = known.find(keys)
        return numbers

    def _new(self, nic: str, row: np.void, have: int) -> int:
        if have >= MOST_ROWS_A_NIC or len(self.names) - len(self._free) >= MOST_ROWS:
            return -1
        if not self._free:
            self._grow()
        number = self._free.pop()
        address = shown_address(row["dst_addr"].tobytes())
        self.names[number] = RowName(nic, address, int(row["sport"]), int(row["reply_sport"]))
        self.version += 1
        self._named[number] = self.version
        self._counts[:, number] = 0
        self._delays[:, number] = np.nan
        self._base[:, :, number] = self._recent[:, :, number] = np.inf
        self._distrusted[:, number] = _NO_WINDOWS
        self._distrust(number, self._distrusted_ends)
        return number

    def _grow(self) -> None:
        """Double the room for rows."""
        old = len(self.names)
        more = max(64, old)
        self.names += [None] * more
        self._free.extend(range(old + more - 1, old - 1, -1))
        self._seen = np.append(self._seen, np.full(more, -1, np.int64))
        self._named = np.append(self._named, np.zeros(more, np.int64))
        self._counts = np.concatenate([self._counts, np.zeros((2, more, KEPT), np.uint16)], axis=1)
        self._delays = np.concatenate([self._delays, np.full((4, more, KEPT), np.nan, np.float32)], axis=1)
        self._base, self._recent = (
            np.concatenate([least, np.full((*least.shape[:2], more), np.inf, np.float32)], axis=2)
            for least in (self._base, self._recent)
        )
        self._distrusted = np.append(self._distrusted, np.tile(np.array([_NO_WINDOWS]).T, more), axis=1)
