"""Probes by path and 100 ms window, the latest few seconds of them, and each path's least delay. No I/O.

Rows are numbered as they first appear and keep their number, but where many have been let go of; memory is bounded by
`MOST_ROWS`, 0.9 kB each. Those of many hosts are taken in together, when somebody looks or the present window is over.

A path's least delay is the shortest that it surely had, whatever the clocks were off by within their bounds. That a clock
was off by more is known only afterwards, so the least delays of the last seconds are kept apart until then.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cwdp.shared.bus.records import LONGEST_ROW, path_keys, shown_address, taken, together
from manager.paths.known_rows import KEY_BYTES, NO_ROWS, KnownRows
from manager.paths.row_ends import RowsAtEnds, grouped
from manager.paths.rows import Floats, known_delays, shares_of, with_more
from manager.paths.told import HostPaths

KEPT = 40
MOST_ROWS = 1 << 20
MOST_ROWS_A_HOST = 1 << 15
MOST_AHEAD = 5
REASONS = ("ok", "not_sane", "too_old", "too_many")
FORGET_AFTER = 600
MOST_FREE = 0.1
"""Where more of the numbers are free, rows are given others: what is done with windows is done for all numbers."""

BASE_BUCKETS = 8
BASE_BUCKET_WINDOWS = 300
RECENT_BUCKETS = 3
RECENT_BUCKET_WINDOWS = 20
"""Least delays count for good once they are two to three such buckets old."""

MOST_WAITING = 1 << 14
"""Rows that wait to be taken in: what is made of so many on the way fits a processor's second cache."""

FWD, REV = 0, 1
_shown = lru_cache(65_536)(shown_address)
_PORTS = list(range(1 << 16))
"""One object for each, which all names share."""

_NOT_SEEN, _NO_ROOM = -2, -1

_NO_WINDOWS = (0, -1)


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
        """So many rows as are given, and of those that are not wanted, or not there, nothing."""
        if len(rows) == len(self.sent) and rows.all():
            return self
        there = min(len(rows), len(self.sent))
        counts, delays = np.zeros((2, len(rows))), np.full((4, len(rows)), np.nan, np.float32)
        for count, each in zip(counts, (self.sent, self.lost), strict=True):
            count[:there] = np.where(rows[:there], each[:there], 0.0)
        for delay, told in zip(delays, (*self.mean_ns, *self.least_ns), strict=True):
            delay[:there] = np.where(rows[:there], told[:there], np.float32(np.nan))
        return Window(self.number, counts[0], counts[1], delays[:2], delays[2:])


@dataclass(frozen=True)
class _Arrived:
    """A host's table of paths, and the number of each of them; shape (paths,)."""

    table: HostPaths
    numbers: NDArray[np.intp]


class WindowStore:
    """Takes in reports of windows.

    Attributes:
        names: what each row is; None for a number that has become free of late.
        version: another one whenever `names` changes.
        reports: rows by what became of them (`REASONS`).
    """

    def __init__(self) -> None:
        self.names: list[RowName | None] = []
        self.version = 0
        self.reports: Counter[str] = Counter(dict.fromkeys(REASONS, 0))
        self._of_host: dict[str, KnownRows] = {}
        self._arrived: dict[str, _Arrived] = {}
        self._nic_number: dict[str, int] = {}
        self._at = RowsAtEnds()
        self._newest: dict[str, int] = {}
        self._free: list[int] = []
        self._held = np.full(KEPT, -1, np.int64)
        self._seen = np.zeros(0, np.int64)
        self._named = np.zeros(0, np.int64)
        self._counts = np.zeros((KEPT, 2, 0), np.uint16)
        self._delays = np.zeros((KEPT, 4, 0), np.float32)
        self._base = np.zeros((2, BASE_BUCKETS, 0), np.float32)
        self._bucket = 0
        self._recent = np.zeros((2, RECENT_BUCKETS, 0), np.float32)
        self._least: Floats | None = None
        self._recent_held = np.full(RECENT_BUCKETS, -1, np.int64)
        self._distrusted = np.zeros((2, 0), np.int64)
        self._distrusted_ends: dict[str, tuple[int, int]] = {}
        self._distrusted_to = -1
        self._waiting: list[tuple[NDArray[np.void], NDArray[np.intp]]] = []
        self._waiting_rows = self._now = 0

    def hear(self, table: HostPaths, rows: NDArray[np.void], now: int) -> None:
        """Take in PLACED_ROWs of one host, all of paths that are in its table; `now` is the number of the present window."""
        if now != self._now:
            self._take_in()
            self._now = now
        window, path = rows["window"], rows["path"]
        good = (rows["lost"] <= rows["sent"]) & (window <= now + MOST_AHEAD)
        good &= (window + rows["further"] <= now + MOST_AHEAD) & (rows["further"] < LONGEST_ROW)
        if not table.names_all_nics:
            good &= table.has_nic[path]
        fresh = good & (window > now - KEPT + MOST_AHEAD + 1)
        if not fresh.all():
            sane = int(np.count_nonzero(good))
            self.reports["not_sane"] += len(rows) - sane
            self.reports["too_old"] += sane - int(np.count_nonzero(fresh))
            rows, path = taken(rows, fresh), path[fresh]
        if not len(rows):
            return
        number = self._numbers(table, path)
        placed = number >= 0
        if not placed.all():
            self.reports["too_many"] += int(np.count_nonzero(~placed))
            rows, number = taken(rows, placed), number[placed]
        if not len(rows):
            return
        self.reports["ok"] += len(rows)
        newest = int((rows["window"] + rows["further"]).max())
        self._newest[table.host] = max(self._newest.get(table.host, 0), newest)
        self._waiting.append((rows, number))
        self._waiting_rows += len(rows)
        if self._waiting_rows > MOST_WAITING:
            self._take_in()

    def complete_to(self, now: int, deadline_windows: int) -> int:
        """The newest window of which every host that reported within `deadline_windows` windows has said all."""
        newest = [window for window in self._newest.values() if window >= now - deadline_windows]
        return min(newest, default=now - deadline_windows)

    def window(self, number: int) -> Window:
        """What is known of a window."""
        self._take_in()
        slot, used = number % KEPT, len(self.names)
        if self._held[slot] != number:
            zero, nothing = np.zeros(used), np.full((2, used), np.nan, np.float32)
            return Window(number, zero, zero, nothing, nothing)
        sent, lost = self._counts[slot, :, :used].astype(np.float64)
        if self._least is None:
            self._least = np.minimum(self._base.min(axis=1), self._recent.min(axis=1))
        base = np.where(np.isinf(self._least[:, :used]), np.float32(np.nan), self._least[:, :used])
        mean_ns, least_ns = self._delays[slot, :2, :used] - base, self._delays[slot, 2:, :used] - base
        return Window(number, sent, lost, mean_ns, least_ns)

    def answered(self, nic: str) -> set[str]:
        """The addresses that have answered a NIC's probes of late."""
        self._take_in()
        numbers = np.array(sorted(self._at.from_nic(nic)), np.intp)
        answers = (self._counts[:, 0, numbers] > self._counts[:, 1, numbers]).any(axis=0)
        names = (self.names[number] for number in numbers[answers].tolist())
        return {name.dst_addr for name in names if name is not None}

    def delays(self, nic: str, addresses: Collection[str]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """One-way delays of the probes from a NIC to some addresses.

        Returns:
            The numbers of the windows that are kept, in order, shape (windows,), and the mean delay of each path in each of
            them in ns, NaN for none, shape (windows, paths).
        """
        self._take_in()
        named = ((row, self.names[row]) for row in sorted(self._at.from_nic(nic)))
        rows = [row for row, name in named if name is not None and name.dst_addr in addresses]
        slots = np.argsort(self._held)
        slots = slots[self._held[slots] >= 0]
        return self._held[slots], self._delays[slots[:, None], FWD, np.array(rows, np.intp)].astype(
            np.float64
        )

    def rows_at(self, ends: Collection[str]) -> NDArray[np.intp]:
        """The rows that start or end at some NICs and addresses, some of them twice."""
        found = [rows for _, rows in self._at.at(dict.fromkeys(ends))]
        return np.concatenate([np.zeros(0, np.intp), *found])

    def probes_from(self, nic: str, *, v6: bool) -> bool:
        """Whether a NIC probes over IPv6, or over IPv4."""
        names = (self.names[number] for number in self._at.from_nic(nic))
        return any((":" in name.dst_addr) == v6 for name in names if name is not None)

    def named_by(self, version: int) -> NDArray[np.bool_]:
        """Rows that have been what they are since a version of the names, shape (rows,)."""
        return np.asarray(self._named[: len(self.names)] <= version, bool)

    def forget_base(self, rows: NDArray[np.intp], way: int) -> None:
        """Have some rows' least delays one way begin anew: they lead over other links now."""
        self._take_in()
        self._base[way, :, rows] = self._recent[way, :, rows] = np.inf
        self._least = None

    def distrust(self, ends: Mapping[str, tuple[int, int]]) -> None:
        """Take back what is known of delays in windows in which clocks were further off than they claimed.

        Args:
            ends: the first and the last such window of NICs and addresses, whose rows start or end there.
        """
        self._take_in()
        newest = int(self._held.max())
        kept = {end: span for end, span in self._distrusted_ends.items() if span[1] > newest - KEPT}
        self._distrusted_ends = kept | dict(ends)
        found = [self._distrust(rows, span) for span, rows in self._at.at(ends)]
        rows = np.unique(np.concatenate(found)) if found else np.zeros(0, np.intp)
        self._recent[:, :, rows] = np.inf
        self._least = None
        first, last = self._distrusted[:, rows]
        for slot, window in enumerate(self._held.tolist()):
            self._delays[slot][:, rows[(first <= window) & (window <= last)]] = np.nan

    def expire(self, now: int) -> None:
        """Let go of rows that nobody has reported for long."""
        self._take_in()
        old = np.flatnonzero((self._seen >= 0) & (self._seen < now - FORGET_AFTER))
        if not len(old):
            return
        self._seen[old] = -1
        self._arrived.clear()
        for host, known in list(self._of_host.items()):
            kept = known.without(old)
            self._of_host[host] = kept
            if not len(kept.keys):
                del self._of_host[host]
                self._newest.pop(host, None)
        for row in old.tolist():
            name, self.names[row] = self.names[row], None
            if name is not None:
                self._at.drop(row, name.src, name.dst_addr)
        self._free.extend(old[::-1].tolist())
        self.version += 1
        live = np.array([name is not None for name in self.names])
        if np.count_nonzero(~live) > MOST_FREE * len(live):
            self._close_ranks(live)

    def _close_ranks(self, live: NDArray[np.bool_]) -> None:
        """Give the rows with the highest numbers those that are free."""
        count = int(np.count_nonzero(live))
        moved, to = count + np.flatnonzero(live[count:]), np.flatnonzero(~live[:count])
        for array in (self._seen, self._counts, self._delays, self._base, self._recent, self._distrusted):
            array[..., to] = array[..., moved]
        self._named[to], self._seen[count:], self._least = self.version, -1, None
        number = np.arange(len(live))
        number[moved] = to
        self._of_host = {
            host: KnownRows(known.keys, number[known.numbers]) for host, known in self._of_host.items()
        }
        for before, now in zip(moved.tolist(), to.tolist(), strict=True):
            name = self.names[now] = self.names[before]
            assert name is not None
            self._at.drop(before, name.src, name.dst_addr)
            self._at.add([now], [(name.src, name.dst_addr)])
        del self.names[count:]
        self._free = list(range(len(self._seen) - 1, count - 1, -1))

    def _take_in(self) -> None:
        """Keep what waits, of all hosts at once: a step over many rows takes hardly longer than one over few."""
        if not self._waiting:
            return
        rows = together([rows for rows, _ in self._waiting])
        number = np.concatenate([number for _, number in self._waiting])
        self._waiting.clear()
        self._waiting_rows = 0
        self._keep(rows, number)

    def _keep(self, rows: NDArray[np.void], number: NDArray[np.intp]) -> None:
        first, times = np.ascontiguousarray(rows["window"]), rows["further"].astype(np.int64) + 1
        last = first + (times - 1)
        begin, end = int(first.min()), int(last.max()) + 1
        for window in range(begin, end):
            self._open(window)
        np.maximum.at(self._seen, number, last)
        delays = known_delays(rows)
        self._learn_least(number, first, last, np.ascontiguousarray(rows["bound_ns"]), delays)
        counts = [np.ascontiguousarray(rows[name]) for name in ("sent", "lost")]
        since, until = (first - begin).astype(np.int16), (last - begin).astype(np.int16)
        for window in range(begin, end):
            if self._held[window % KEPT] == window:
                turn = np.int16(window - begin)
                of = np.flatnonzero((since <= turn) & (turn <= until))
                if len(of) == len(rows):
                    self._put(window, number, shares_of(counts, window - first, times), delays)
                else:
                    some = [count.take(of) for count in counts]
                    shares = shares_of(some, window - first.take(of), times.take(of))
                    self._put(window, number.take(of), shares, [delay.take(of) for delay in delays])

    def _put(
        self, window: int, number: NDArray[np.intp], counts: list[NDArray[np.uint16]], delays: list[Floats]
    ) -> None:
        """Keep what one window had of some rows."""
        slot = window % KEPT
        for which, count in enumerate(counts):
            self._counts[slot, which][number] = count
        this = np.array(window)
        distrusted = self._are_distrusted(number, this, this)
        for which, delay in enumerate(delays):
            value = delay if distrusted is None else np.where(distrusted, np.float32(np.nan), delay)
            self._delays[slot, which][number] = value

    def _are_distrusted(
        self, number: NDArray[np.intp], first: NDArray[np.int64], last: NDArray[np.int64]
    ) -> NDArray[np.bool_] | None:
        """Whether some of the windows from `first` to `last` of each row are not trusted; None where none is."""
        if int(first.min(initial=self._distrusted_to + 1)) > self._distrusted_to:
            return None
        begun, until = self._distrusted[:, number]
        return np.asarray((begun <= last) & (first <= until), bool)

    def _learn_least(
        self,
        number: NDArray[np.intp],
        first: NDArray[np.int64],
        last: NDArray[np.int64],
        bound_ns: NDArray[np.uint32],
        delays: list[Floats],
    ) -> None:
        """Take in the least delays that paths surely had; `first` and `last` are the windows that each row is of."""
        surely = [(delay + bound_ns).astype(np.float32) for delay in delays[2:]]
        distrusted = self._are_distrusted(number, first, last)
        for each in surely:
            each[np.isnan(each)] = np.inf
            if distrusted is not None:
                each[distrusted] = np.inf
        bucket = last // RECENT_BUCKET_WINDOWS
        for turn in range(int(bucket.min()), int(bucket.max()) + 1):
            recent = turn % RECENT_BUCKETS
            if self._recent_held[recent] == turn:
                of = bucket == turn
                to = number[of]
                for way, each in enumerate(surely):
                    np.minimum.at(self._recent[way, recent], to, each[of])
                    if self._least is not None:
                        np.minimum.at(self._least[way], to, each[of])

    def _open(self, window: int) -> None:
        """Make room for a window that is newer than what its slot holds."""
        slot = window % KEPT
        if window <= self._held[slot]:
            return
        self._held[slot] = window
        self._counts[slot, :, : len(self.names)] = 0
        self._delays[slot, :, : len(self.names)] = np.nan
        self._settle(window // RECENT_BUCKET_WINDOWS)
        bucket = window // BASE_BUCKET_WINDOWS % BASE_BUCKETS
        if bucket != self._bucket and window >= self._held.max():
            self._bucket = bucket
            self._base[:, bucket] = np.inf
            self._least = None

    def _settle(self, turn: int) -> None:
        """Have the least delays of the oldest recent bucket count for good, where a newer one begins in its place."""
        recent = turn % RECENT_BUCKETS
        if turn <= self._recent_held[recent]:
            return
        self._recent_held[recent] = turn
        base = self._base[:, self._bucket]
        np.minimum(base, self._recent[:, recent], out=base)
        self._recent[:, recent] = np.inf

    def _distrust(self, rows: NDArray[np.intp], span: tuple[int, int]) -> NDArray[np.intp]:
        """Have the delays of some rows not trusted from a first window to a last one; these rows."""
        first, last = span
        self._distrusted_to = max(self._distrusted_to, last)
        begun, until = self._distrusted[:, rows]
        joins = first <= until
        self._distrusted[0, rows] = np.where(joins, np.minimum(first, begun), first)
        self._distrusted[1, rows] = np.where(joins, np.maximum(last, until), last)
        return rows

    def _numbers(self, table: HostPaths, path: NDArray[np.uint32]) -> NDArray[np.intp]:
        """The number of each row by the place of its path in its table, -1 where there is no room."""
        arrived = self._arrived.get(table.host)
        if arrived is None or arrived.table is not table:
            numbers = np.full(len(table.paths), _NOT_SEEN, np.intp)
            arrived = self._arrived[table.host] = _Arrived(table, numbers)
        number = arrived.numbers.take(path)
        if (number == _NOT_SEEN).any():
            new = np.unique(path[number == _NOT_SEEN])
            arrived.numbers[new] = self._look_up(table, new)
            number = arrived.numbers.take(path)
        return number

    def _look_up(self, table: HostPaths, places: NDArray[np.uint32]) -> NDArray[np.intp]:
        """The numbers of some paths of a table; those that have none are given one."""
        keys = self._keys(table.nics, table.paths[places])
        known = self._of_host.setdefault(table.host, NO_ROWS)
        numbers = known.find(keys)
        if (numbers < 0).any():
            fresh, first = np.unique(keys[numbers < 0], return_index=True)
            new = table.paths[places[numbers < 0][first]]
            known = self._of_host[table.host] = known.with_more(
                fresh, self._new(table.nics, new, len(known.keys))
            )
            numbers = known.find(keys)
        return numbers

    def _keys(self, nics: Sequence[str], rows: NDArray[np.void]) -> NDArray[np.bytes_]:
        """What tells rows apart."""
        nic = [self._nic_number.setdefault(name, len(self._nic_number)) for name in nics]
        keys = np.empty((len(rows), KEY_BYTES), np.uint8)
        keys[:, 4:] = path_keys(rows).view(np.uint8).reshape(len(rows), -1)
        keys[:, :4] = np.array(nic, "<u4")[rows["nic"]].view(np.uint8).reshape(-1, 4)
        return keys.view(f"S{KEY_BYTES}").ravel()

    def _new(self, nics: Sequence[str], paths: NDArray[np.void], have: int) -> NDArray[np.intp]:
        """Numbers for further paths of a host that has some; -1 where there is no room."""
        used = len(self._seen) - len(self._free)
        count = max(0, min(len(paths), MOST_ROWS_A_HOST - have, MOST_ROWS - used))
        numbers = np.full(len(paths), _NO_ROOM, np.intp)
        if not count:
            return numbers
        if len(self._free) < count:
            self._grow(count - len(self._free))
        given = self._free[-count:][::-1]
        del self._free[-count:]
        numbers[:count] = given
        self.version += 1
        self.names += [None] * (max(given) + 1 - len(self.names))
        names = _names(nics, paths[:count])
        for number, name in zip(given, names, strict=True):
            self.names[number] = name
        ends = [(name.src, name.dst_addr) for name in names]
        self._at.add(given, ends)
        self._named[given] = self.version
        for slot in self._opened():
            self._counts[slot][:, given] = 0
            self._delays[slot][:, given] = np.nan
        self._base[:, :, given] = self._recent[:, :, given] = np.inf
        self._least = None
        self._distrusted[:, given] = np.array([_NO_WINDOWS]).T
        if self._distrusted_ends:
            for span, rows in grouped(given, ends, self._distrusted_ends):
                self._distrust(rows, span)
        return numbers

    def _grow(self, least: int) -> None:
        """Make room for so many more rows at least; what none has used yet takes no memory."""
        old = len(self._seen)
        more = max(64, old // 2, least)
        self._free = [*range(old + more - 1, old - 1, -1), *self._free]
        self._least = None
        self._seen = np.append(self._seen, np.full(more, -1, np.int64))
        self._named = np.append(self._named, np.zeros(more, np.int64))
        opened = self._opened()
        self._counts = with_more(self._counts, more, opened)
        self._delays = with_more(self._delays, more, opened)
        self._base = with_more(self._base, more, (FWD, REV))
        self._recent = with_more(self._recent, more, (FWD, REV))
        self._distrusted = np.append(self._distrusted, np.tile(np.array([_NO_WINDOWS]).T, more), axis=1)

    def _opened(self) -> list[int]:
        """The slots that have held a window; the others have never been written to."""
        return np.flatnonzero(self._held >= 0).tolist()


def _names(nics: Sequence[str], paths: NDArray[np.void]) -> list[RowName]:
    """What the paths of a host are; they share addresses and ports, which saves half the memory."""
    packed = np.ascontiguousarray(paths["dst_addr"]).tobytes()
    size = len(packed) // len(paths)
    addresses = (_shown(packed[start : start + size]) for start in range(0, len(packed), size))
    ports = (map(_PORTS.__getitem__, paths[name].tolist()) for name in ("sport", "reply_sport"))
    return list(map(RowName, map(nics.__getitem__, paths["nic"].tolist()), addresses, *ports))
