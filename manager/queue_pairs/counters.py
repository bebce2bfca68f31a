"""Queue pairs as the agents count them: the last totals, rates, and sums over the fleet. Pure: time is an argument.

Each NIC has a table of rows in the order of their keys, changed a report at a time.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cwdp.shared.bus.records import (
    DIRECTIONS,
    NAK_KINDS,
    QP_COUNTERS,
    QP_ROW,
    as_bytes,
    qp_keys,
    taken,
    together,
)
from manager.queue_pairs.not_ready import RNR, RnrNaks

FORGET_AFTER_S = 600.0
RATE_HOLDS_S = 3.0
STOPPED_AFTER = 2.4
"""A queue pair that is missing from its NIC's reports has stopped after so many times the interval between two."""

SHORTEST_INTERVAL_S, LONGEST_INTERVAL_S = 0.25, 1.0

LONGEST_GAP_S = 3.0
"""Reports further apart tell nothing of the time between: agents speak every second, whether anything moves or not."""

SILENT_S = 1.25
"""A NIC of which nothing has been heard for so much longer than it takes between two reports is silent."""

UNLISTED_TELLS = 0.1
"""Of the time between two reports counts where not all that moved fitted in: what is not listed may move all the same."""

LARGEST_BPS = 10e12
"""No NIC is faster."""

PLAUSIBLE = 1.5
"""Times a link's speed: two reports in quick succession may be read a little apart from what they say."""

PLAUSIBLE_BYTES = 1_000_000
"""More than that speed allows, in case the two are hardly apart."""

MOST_ROWS = 131_072
RATES = [QP_COUNTERS.index(name) for name in ("packets", "bytes")]
BYTES = QP_COUNTERS.index("bytes")
NS = 1e-9

Rows = NDArray[np.void]
Mask = NDArray[np.bool_]
Totals = Counter[tuple[str, str]]


class _Sending:
    """Which of some rows send: of one NIC, or of several, whose `latest_s` and `holds_s` are told row by row then."""

    heard_s: NDArray[np.float64]
    latest_s: float | NDArray[np.float64]
    departed: bool | Mask

    @property
    def holds_s(self) -> float | NDArray[np.float64]:
        """For so long before the last report a row holds that is missing from it."""
        raise NotImplementedError

    def sends(self, now_s: float) -> Mask:
        """Rows whose rates still hold, shape (n,)."""
        is_fresh = now_s - self.heard_s < RATE_HOLDS_S
        return np.asarray(self._sent_last() & is_fresh & np.logical_not(self.departed), bool)

    def is_unknown(self, now_s: float) -> Mask:
        """Rows that sent as far as is known, of which nothing is said now, shape (n,)."""
        is_old = now_s - self.heard_s >= RATE_HOLDS_S
        return np.asarray(self._sent_last() & (is_old | self.is_silent(now_s)), bool)

    def is_silent(self, now_s: float) -> bool | Mask:
        """Whether the host has said nothing of late: nobody knows what it sends now."""
        raise NotImplementedError

    def _sent_last(self) -> Mask:
        """Rows that sent when the last report was made, shape (n,)."""
        return np.asarray(self.heard_s > self.latest_s - self.holds_s, bool)


@dataclass(kw_only=True)
class NicTable(_Sending):
    """One NIC's queue pairs.

    Attributes:
        keys: sorted, shape (n,); see `qp_keys`.
        rows: as last reported, dtype QP_ROW, shape (n,).
        local_ns: the host's clock at that report, int64, shape (n,).
        heard_s: the manager's clock then, shape (n,).
        turned_s: the manager's clock when the source port was last found to be another one, -inf for never, shape (n,).
        has_begun: whether it was missing from the report before its last one: the rate is that of a part of the time
            between them, shape (n,).
        rates: packets and bytes a second between the last two reports, NaN for none, shape (n, 2).
        arrived: the keys of a report in the order in which they came, as bytes, and `places` where their rows are here;
            most reports are of the same.
        unlisted: queue pairs that moved and did not fit into the last report.
        latest_s: the manager's clock at the last report, which may have been that nothing moves; -inf before the first.
        latest_ns: the host's clock then.
        since_ns: the host's clock at the report before, if that told of all that had moved; rows that it lacks had stood
            still. -1 otherwise.
        interval_s: between the last two reports, within what agents are told.
        told_s: how many seconds the reports tell of, until now: silence tells nothing.
        paced_bps: what those may send that are paced, by address (16 bytes) and QPN, as of the last report.
        lasts_s: the manager's clock before which no row is old enough to be forgotten.
        departed: whether its host is gone; what it sends nobody tells any more.
        rnr_naks: those that came to it of late.
    """

    keys: NDArray[np.bytes_] = field(default_factory=lambda: qp_keys(np.zeros(0, QP_ROW)))
    rows: Rows = field(default_factory=lambda: np.zeros(0, QP_ROW))
    local_ns: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    heard_s: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    turned_s: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    has_begun: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, bool))
    rates: NDArray[np.float64] = field(default_factory=lambda: np.zeros((0, 2)))
    arrived: bytes = b""
    places: NDArray[np.intp] = field(default_factory=lambda: np.zeros(0, np.intp))
    unlisted: int = 0
    latest_s: float = -math.inf
    latest_ns: int = -1
    since_ns: int = -1
    told_s: float = 0.0
    interval_s: float = SHORTEST_INTERVAL_S
    paced_bps: dict[tuple[bytes, int], float] = field(default_factory=dict)
    lasts_s: float = -math.inf
    departed: bool = False
    rnr_naks: RnrNaks = field(default_factory=RnrNaks)

    @property
    def holds_s(self) -> float:
        """For so long before the last report a row holds that is missing from it."""
        return RATE_HOLDS_S if self.unlisted else self.stopped_after_s

    @property
    def stopped_after_s(self) -> float:
        """A queue pair that is missing from reports for so long has stopped: two are told in that time."""
        return STOPPED_AFTER * self.interval_s

    def tell(self, unlisted: int, local_ns: int, now_s: float) -> None:
        """A report has come, or a further part of one."""
        if local_ns == self.latest_ns:
            self.unlisted = max(self.unlisted, unlisted)
        else:
            self.since_ns = -1 if self.unlisted else self.latest_ns
            self.unlisted, self.latest_ns = unlisted, local_ns
            gap_s = now_s - self.latest_s
            self.interval_s = min(max(gap_s, SHORTEST_INTERVAL_S), LONGEST_INTERVAL_S)
        gap_s = now_s - self.latest_s
        if gap_s <= LONGEST_GAP_S:
            self.told_s += gap_s * (UNLISTED_TELLS if self.unlisted else 1.0)
        self.latest_s = now_s

    def is_silent(self, now_s: float) -> bool:
        """Whether its host has said nothing of late: nobody knows what it sends now."""
        return self.departed or now_s - self.latest_s >= self.interval_s + SILENT_S

    def remember(self, arrived: NDArray[np.bytes_]) -> None:
        """Know the rows of the next report where it is of the same queue pairs as this one, all of which are here."""
        self.arrived, self.places = arrived.tobytes(), np.searchsorted(self.keys, arrived)

    def forget_old(self, now_s: float) -> None:
        """Drop rows not heard of for long. Those that come later, or are heard of again, only last longer."""
        kept = now_s - self.heard_s < FORGET_AFTER_S
        if not kept.all():
            self.keep(kept)
        self.lasts_s = float(self.heard_s.min(initial=now_s)) + FORGET_AFTER_S

    def keep(self, chosen: NDArray[np.bool_] | NDArray[np.intp]) -> None:
        """Keep some rows, in an order that `chosen` gives."""
        self.arrived = b""
        self.keys, self.rows, self.local_ns = self.keys[chosen], self.rows[chosen], self.local_ns[chosen]
        self.heard_s, self.turned_s, self.rates = (
            column[chosen] for column in (self.heard_s, self.turned_s, self.rates)
        )
        self.has_begun = self.has_begun[chosen]


class JoinedTables(_Sending):
    """The rows of several NICs, one NIC's behind another's, as they are now; attributes as those of `NicTable`, by row."""

    def __init__(self, tables: Sequence[NicTable]) -> None:
        sizes = [len(table.rows) for table in tables]
        latest_s, holds_s, stopped_after_s, interval_s = (
            np.repeat(np.array([getattr(table, name) for table in tables], np.float64), sizes)
            for name in ("latest_s", "holds_s", "stopped_after_s", "interval_s")
        )
        self.latest_s, self.stopped_after_s = latest_s, stopped_after_s
        self._holds_s, self._interval_s = holds_s, interval_s
        self.departed = np.repeat(np.array([table.departed for table in tables], bool), sizes)
        nothing = NicTable()
        self.heard_s, self.turned_s, self.rates = (
            np.concatenate([getattr(nothing, name), *(getattr(table, name) for table in tables)])
            for name in ("heard_s", "turned_s", "rates")
        )
        self.has_begun = np.concatenate([nothing.has_begun, *(table.has_begun for table in tables)])

    @property
    def holds_s(self) -> NDArray[np.float64]:
        """For so long before its NIC's last report each row holds that is missing from it."""
        return self._holds_s

    def is_silent(self, now_s: float) -> Mask:
        """Rows whose host has said nothing of late, shape (n,)."""
        return np.asarray(self.departed | (now_s - self.latest_s >= self._interval_s + SILENT_S), bool)


@dataclass(frozen=True)
class NicReport:
    """Some of a NIC's queue pairs.

    Attributes:
        nic: its host and interface.
        rows: dtype QP_ROW, shape (n,); not to be changed by others later.
        unlisted: queue pairs that moved and did not fit in.
        link_bps: the speed of its link.
    """

    nic: tuple[str, str]
    rows: Rows
    unlisted: int = 0
    link_bps: float = LARGEST_BPS


class QueuePairStore:
    """Takes in reports of queue pairs.

    Attributes:
        tables: each NIC's, by host and interface.
        departed: those of hosts that are gone, as they were told of last: their queue pairs may send on.
        totals: by counter and direction; a counter below its last value began anew at 0.
        implausible: rows that would have sent more than a link carries; nothing is taken from them.
    """

    def __init__(self) -> None:
        self.tables: dict[tuple[str, str], NicTable] = {}
        self.departed: dict[tuple[str, str], NicTable] = {}
        self.totals: Totals = Counter()
        self.implausible = 0

    def hear(self, reports: Sequence[NicReport], *, local_ns: int, now_s: float) -> None:
        """Take in some rows of some NICs of a host, as they were when its clock showed `local_ns`."""
        going_on: dict[tuple[str, str], _GoingOn] = {}
        new: list[Rows] = []
        if not reports:
            return
        all_keys = qp_keys(together([report.rows for report in reports]))
        ends = np.cumsum([len(report.rows) for report in reports]).tolist()
        for report, end in zip(reports, ends, strict=True):
            if report.nic in going_on:
                self._go_on(list(going_on.values()), local_ns, now_s)
                going_on.clear()
            table = self.tables.get(report.nic)
            if table is None:
                table = self.tables[report.nic] = NicTable()
                self.departed.pop(report.nic, None)
            table.tell(report.unlisted, local_ns, now_s)
            keys = all_keys[end - len(report.rows) : end]
            if len(keys) * keys.itemsize == len(table.arrived) and keys.tobytes() == table.arrived:
                going_on[report.nic] = _GoingOn(table, table.places, report.rows, report.link_bps)
            else:
                new.append(self._hear_others(table, keys, report, local_ns, now_s))
        self._go_on(list(going_on.values()), local_ns, now_s)
        if new:
            self._count_new(together(new))

    def _hear_others(
        self, table: NicTable, arrived: NDArray[np.bytes_], report: NicReport, local_ns: int, now_s: float
    ) -> Rows:
        """Take in rows that are not those of the report before; returns those that are new, which are to be counted."""
        keys, last = np.unique(arrived[::-1], return_index=True)
        new = report.rows[::-1][last]
        if len(table.keys):
            place = np.searchsorted(table.keys, keys)
            known = table.keys[np.minimum(place, len(table.keys) - 1)] == keys
            self._go_on([_GoingOn(table, place[known], new[known], report.link_bps)], local_ns, now_s)
            keys, new = keys[~known], new[~known]
        _insert(table, keys, new, local_ns, now_s)
        if len(last) == len(arrived) and len(table.keys) <= MOST_ROWS:
            table.remember(arrived)
        return new

    def _go_on(self, known: Sequence["_GoingOn"], local_ns: int, now_s: float) -> None:
        """Take in rows that are there, of different NICs."""
        known = [one for one in known if len(one.rows)]
        if not known:
            return
        sizes = [len(one.rows) for one in known]
        rows = together([one.rows for one in known])
        before = together([taken(one.table.rows, one.place) for one in known])
        grown = _grown(_counters(rows), _counters(before))
        heard_ns = np.concatenate([one.table.local_ns[one.place] for one in known])
        took_s, link_bps = (local_ns - heard_ns) * NS, np.repeat([one.link_bps for one in known], sizes)
        plausible = _are_plausible(grown[:, BYTES], took_s, link_bps)
        self.implausible += int(np.count_nonzero(~plausible))
        self._count(rows, before, grown, plausible)
        since_ns = np.repeat([one.table.since_ns for one in known], sizes)
        has_begun = (heard_ns < since_ns) & (since_ns < local_ns)
        has_begun &= _are_plausible(grown[:, BYTES], (local_ns - since_ns) * NS, link_bps)
        took_s = np.where(has_begun, (local_ns - since_ns) * NS, took_s)
        rates = np.full((len(rows), len(RATES)), np.nan)
        is_later = ((took_s > 0) & plausible)[:, None]
        np.divide(grown[:, RATES], took_s[:, None], out=rates, where=is_later)
        turned = rows["sport"] != before["sport"]
        has_turned, has_rnr, start = turned.any(), rows["naks"][:, RNR].any(), 0
        for one, size in zip(known, sizes, strict=True):
            table, place, these = one.table, one.place, slice(start, start + size)
            as_bytes(table.rows)[place] = as_bytes(one.rows)
            table.rates[place], table.has_begun[place] = rates[these], has_begun[these]
            table.local_ns[place], table.heard_s[place] = local_ns, now_s
            if has_turned:
                table.turned_s[place[turned[these]]] = now_s
            if has_rnr:
                rnr = _grown(rows["naks"][these, RNR], before["naks"][these, RNR]) * plausible[these]
                table.rnr_naks.take(one.rows, rnr, now_s)
            start += size

    def depart(self, host: str) -> None:
        """A host is gone: what its queue pairs send is not known from now on, and nobody's evidence."""
        for nic in [nic for nic in self.tables if nic[0] == host]:
            table = self.departed[nic] = self.tables.pop(nic)
            table.departed = True

    @property
    def loading(self) -> Mapping[tuple[str, str], NicTable]:
        """The tables whose queue pairs load links as far as anybody knows, or may do so."""
        return {**self.departed, **self.tables} if self.departed else self.tables

    def expire(self, now_s: float, hosts: set[str]) -> None:
        """Drop rows not heard of for long, and see which hosts are gone."""
        for host in {host for host, _ in self.tables} - hosts:
            self.depart(host)
        for tables in (self.tables, self.departed):
            for nic, table in list(tables.items()):
                if now_s >= table.lasts_s:
                    table.forget_old(now_s)
                if not len(table.rows) and now_s - table.latest_s >= FORGET_AFTER_S:
                    del tables[nic]

    def count(self) -> Counter[str]:
        """How many there are by direction; a thread may ask."""
        counts = Counter(dict.fromkeys(DIRECTIONS, 0))
        for table in list(self.tables.values()):
            both = np.bincount(table.rows["direction"], minlength=len(DIRECTIONS))
            counts.update(dict(zip(DIRECTIONS, both.tolist(), strict=False)))
        return counts

    def _count_new(self, rows: Rows) -> None:
        """Add up what rows have counted that were not there."""
        if len(rows):
            self._count(rows, np.zeros(len(rows), QP_ROW), _counters(rows), np.ones(len(rows), bool))

    def _count(self, rows: Rows, before: Rows, grown: NDArray[np.uint64], counts: Mask) -> None:
        """Add up what counters have grown by, of rows that count."""
        has_naks = rows["naks"].any()
        for code, direction in enumerate(DIRECTIONS):
            mine = (rows["direction"] == code) & counts
            for name, count in zip(QP_COUNTERS, grown[mine].sum(axis=0).tolist(), strict=True):
                self.totals[name, direction] += count
            if has_naks:
                naks = _grown(rows["naks"], before["naks"])[mine].sum(axis=0)
                for kind, count in zip(NAK_KINDS, naks.tolist(), strict=True):
                    self.totals[f"nak_{kind}", direction] += count


@dataclass(frozen=True)
class _GoingOn:
    """Rows of a NIC whose `link_bps` is known, and their places in its table, each once."""

    table: NicTable
    place: NDArray[np.intp]
    rows: Rows
    link_bps: float


def _counters(rows: Rows) -> NDArray[np.uint64]:
    """The QP_COUNTERS of rows, shape (rows, counters)."""
    assert QP_ROW.fields is not None
    first, size = QP_ROW.fields[QP_COUNTERS[0]][1], 8 * len(QP_COUNTERS)
    flat = np.ascontiguousarray(rows).view(np.uint8).reshape(len(rows), QP_ROW.itemsize)
    return np.ascontiguousarray(flat[:, first : first + size]).view("<u8")


def _grown(now: NDArray[np.unsignedinteger], before: NDArray[np.unsignedinteger]) -> NDArray[np.uint64]:
    """How far counters have come; one below its last value began anew at 0."""
    grown: NDArray[np.uint64] = np.where(now >= before, now - before, now).astype(np.uint64)
    return grown


def _are_plausible(
    grown_bytes: NDArray[np.uint64],
    took_s: NDArray[np.floating[Any]],
    link_bps: NDArray[np.floating[Any]],
) -> Mask:
    """Whether rows that are there can have sent or received as much in that time; shape (rows,).

    Where their host's clock began anew nobody can tell.
    """
    most_bytes = PLAUSIBLE * link_bps / 8 * took_s + PLAUSIBLE_BYTES
    return np.asarray((grown_bytes <= np.maximum(most_bytes, 0.0)) | (took_s <= 0), bool)


def _insert(table: NicTable, keys: NDArray[np.bytes_], rows: Rows, local_ns: int, now_s: float) -> None:
    """Add rows in the order of their keys, as copies."""
    if not len(rows):
        return
    columns = {
        "keys": keys,
        "rows": rows.copy(),
        "local_ns": np.full(len(rows), local_ns),
        "heard_s": np.full(len(rows), now_s),
        "turned_s": np.full(len(rows), -np.inf),
        "has_begun": np.zeros(len(rows), bool),
        "rates": np.full((len(rows), 2), np.nan),
    }
    is_first = not len(table.rows)
    for name, column in columns.items():
        setattr(table, name, column if is_first else np.concatenate([getattr(table, name), column]))
    if len(table.rows) > MOST_ROWS:
        table.keep(np.argsort(table.heard_s, kind="stable")[-MOST_ROWS:])
    if not is_first:
        table.keep(np.argsort(table.keys, kind="stable"))
