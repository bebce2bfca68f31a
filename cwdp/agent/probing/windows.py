"""What became of one NIC's probes, by path and short window of the timeline: what queues and faults are found from."""

import math
import time
from collections.abc import Callable, Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from cwdp.agent.probing.pathstats import queued_ns
from cwdp.agent.probing.prober import STAMP_NOISE_NS, ProbeResults
from cwdp.agent.probing.schedule import Schedule
from cwdp.dataplane import abi
from cwdp.shared.bus.messages import ProbeEdge, WindowReport
from cwdp.shared.bus.records import (
    LONGEST_ROW,
    NO_DELAY_NS,
    WINDOW_NS,
    WINDOW_ROW,
    packed_address,
    path_keys,
    told_delays,
)
from cwdp.shared.bus.windows import TOLD_PATH, PathTable, each_once, paths_of

ROWS_A_MESSAGE = 8_192
LONGEST_NS = 2**63 - 1
LARGEST_COUNT = 2**16 - 1
MOST_AHEAD = 50
"""Windows; a probe that left later than that from now was stamped on another timeline."""

PATHS_TOLD_S = 0.9
"""So long after they were told, paths are told again: each second, by a loop that comes round a little early."""

MOST_SUMMED_NS = float(1 << 30)
"""No queue is so long: delays that differ by more are of timelines that are far apart, told by their lowest 32 bits."""

WAYS = ("fwd", "rev")

_PROBE = np.dtype(
    [
        ("window", "<i8"),
        ("path", "<i8"),
        ("answered", "?"),
        ("timed", "?"),
        ("fwd_ns", "<i8"),
        ("rev_ns", "<i8"),
        ("bound_ns", "<i8"),
    ]
)
"""A probe that left; its delays hold where it is `timed`, which implies `answered`."""


class PathWindows:
    """Gathers one schedule's probes until nothing more can come of a window.

    Args:
        schedule: what is being sent.
        edges: what it was made from.
    """

    def __init__(self, schedule: Schedule, edges: list[ProbeEdge]) -> None:
        self.schedule = schedule
        addresses = [packed_address(edges[i].dst_addr) for i in schedule.edge.tolist()]
        self._dst_addr = np.frombuffer(b"".join(addresses), np.uint8).reshape(-1, 16)
        self._sport = np.array([key.sport for key in schedule.paths], np.uint16)
        self._reply_sport = np.array([key.reply_sport for key in schedule.paths], np.uint16)
        self._pending = np.zeros(0, _PROBE)
        self._noise_ns = STAMP_NOISE_NS

    def add(self, results: ProbeResults, offset_ns: int) -> None:
        """Take in probes, stamped by a clock that stands `offset_ns` behind the timeline."""
        sent, self._noise_ns = results.sent, results.noise_ns
        slots, answered = results.slots[sent], results.answered[sent]
        fresh = np.zeros(len(slots), _PROBE)
        fresh["window"] = (slots["t1"].astype(np.int64) + offset_ns) // WINDOW_NS
        fresh["path"] = results.path[sent]
        fresh["answered"] = answered
        fresh["timed"] = answered & (slots["bound_ns"] != abi.BOUND_UNSYNCED)
        for way in WAYS:
            fresh[f"{way}_ns"] = slots[f"{way}_owd_ns"]
        fresh["bound_ns"] = slots["bound_ns"]
        self._pending = np.concatenate([self._pending, fresh])

    def take(self, before_ns: int, *, sums: bool) -> NDArray[np.void]:
        """WINDOW_ROWs of the windows that ended by a time of the timeline.

        With `sums` those of a path that has lost nothing are one row, whatever queues it has met.
        """
        window, end = self._pending["window"], before_ns // WINDOW_NS
        over = window < end
        if not over.any():
            return np.zeros(0, WINDOW_ROW)
        most_queued_ns = MOST_SUMMED_NS if sums else queued_ns(self._noise_ns)
        rows = together(self._rows(self._pending[over]), most_queued_ns)
        self._pending = self._pending[~over & (window < end + MOST_AHEAD)]
        return rows

    def _rows(self, probes: NDArray[np.void]) -> NDArray[np.void]:
        """One row per window and path."""
        probes = probes[np.lexsort((probes["path"], probes["window"]))]
        new = np.ones(len(probes), bool)
        new[1:] = (np.diff(probes["path"]) != 0) | (np.diff(probes["window"]) != 0)
        starts = np.flatnonzero(new)
        path = probes["path"][starts]
        rows = np.zeros(len(starts), WINDOW_ROW)
        rows["window"] = probes["window"][starts]
        rows["dst_addr"] = self._dst_addr[path]
        rows["sport"], rows["reply_sport"] = self._sport[path], self._reply_sport[path]
        sent = np.diff(np.append(starts, len(probes)))
        lost = np.add.reduceat(~probes["answered"], starts, dtype=np.int64)
        rows["sent"], rows["lost"] = np.minimum(sent, LARGEST_COUNT), np.minimum(lost, LARGEST_COUNT)
        timed = np.add.reduceat(probes["timed"], starts, dtype=np.int64)
        least, mean = [], []
        for way in WAYS:
            delays_ns = probes[f"{way}_ns"]
            least.append(np.minimum.reduceat(np.where(probes["timed"], delays_ns, LONGEST_NS), starts))
            total = np.add.reduceat(np.where(probes["timed"], delays_ns, 0), starts)
            mean.append(total // np.maximum(timed, 1))
        for what, (fwd_ns, rev_ns) in (("min", least), ("mean", mean)):
            for way, told_ns in zip(WAYS, told_delays(fwd_ns, rev_ns), strict=True):
                rows[f"{way}_{what}_ns"] = np.where(timed > 0, told_ns, NO_DELAY_NS)
        rows["bound_ns"] = np.maximum.reduceat(np.where(probes["timed"], probes["bound_ns"], 0), starts)
        return rows


class WindowReports:
    """What a host tells of its NICs' windows.

    Args:
        host: its name.
        now_s: reads a clock that only goes forward.
    """

    def __init__(self, host: str, now_s: Callable[[], float] = time.monotonic) -> None:
        self._host, self._now_s = host, now_s
        self._nics: list[str] = []
        self._table = PathTable(np.zeros(0, TOLD_PATH))
        self._is_used = np.zeros(0, bool)
        self._told_s = -math.inf

    def of(self, taken: Iterable[tuple[str, NDArray[np.void]]]) -> Iterator[WindowReport]:
        """Messages of bounded size, of each NIC's interface and its rows."""
        told = [(ifname, rows) for ifname, rows in taken if len(rows)]
        for ifname, rows in told:
            if ifname not in self._nics:
                self._nics.append(ifname)
            rows["nic"] = self._nics.index(ifname)
        rows = np.concatenate([rows for _, rows in told]) if told else np.zeros(0, WINDOW_ROW)
        for start in range(0, len(rows), ROWS_A_MESSAGE):
            yield self._report(rows[start : start + ROWS_A_MESSAGE])

    def _report(self, rows: NDArray[np.void]) -> WindowReport:
        paths, now_s = paths_of(rows), self._now_s()
        places = None if now_s >= self._told_s + PATHS_TOLD_S else self._table.places(paths)
        tell = places is None
        if places is None:
            self._table = PathTable(each_once(np.concatenate([self._table.paths[self._is_used], paths])))
            self._is_used = np.zeros(len(self._table.paths), bool)
            self._told_s = now_s
            places = self._table.places(paths)
            assert places is not None
        self._is_used[places] = True
        return self._table.report(self._host, self._nics, rows, places, tell=tell)


def together(rows: NDArray[np.void], most_queued_ns: float) -> NDArray[np.void]:
    """The rows of each path in which nothing was lost or queued as one row of all windows; the others as they are.

    Args:
        rows: of one window each.
        most_queued_ns: probes that took so much longer than the quickest of their path have met a queue.
    """
    first, last = int(rows["window"].min()), int(rows["window"].max())
    if first == last or last - first >= LONGEST_ROW:
        return rows
    key = path_keys(rows)
    order = np.lexsort((rows["window"], key))
    rows, key = rows[order], key[order]
    new = np.ones(len(rows), bool)
    new[1:] = key[1:] != key[:-1]
    starts = np.flatnonzero(new)
    timed = rows["fwd_min_ns"] != NO_DELAY_NS
    quiet = np.add.reduceat(rows["lost"], starts, dtype=np.int64) == 0
    quiet &= np.logical_and.reduceat(timed, starts) | ~np.logical_or.reduceat(timed, starts)
    for way in WAYS:
        longest = np.maximum.reduceat(rows[f"{way}_mean_ns"], starts).astype(np.int64)
        quiet &= longest - np.minimum.reduceat(rows[f"{way}_min_ns"], starts) <= most_queued_ns
    whole = rows[starts]
    whole["window"], whole["further"] = first, last - first
    whole["sent"] = np.minimum(np.add.reduceat(rows["sent"], starts, dtype=np.int64), LARGEST_COUNT)
    whole["bound_ns"] = np.maximum.reduceat(rows["bound_ns"], starts)
    for way in WAYS:
        total = np.add.reduceat(rows[f"{way}_mean_ns"] * rows["sent"].astype(np.int64), starts)
        whole[f"{way}_mean_ns"] = total // whole["sent"]
        whole[f"{way}_min_ns"] = np.minimum.reduceat(rows[f"{way}_min_ns"], starts)
    path = np.cumsum(new) - 1
    return np.concatenate([whole[quiet], rows[~quiet[path]]])
