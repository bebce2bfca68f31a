"""TCP connections as agents tell of them: the last totals, rates, and which two reports are of one connection. No I/O."""

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from cwdp.shared.bus.packing import rows_of
from cwdp.shared.connections import (
    CLOSED,
    STATES,
    TCP_COUNTERS,
    TCP_ROW,
    TcpReport,
    connection_keys,
    far_keys,
)

MOST_ROWS = 16_384
"""Of a NIC."""

MOST_NAME, MOST_CGROUP = 64, 512
RATE_HOLDS_S, LONGEST_GAP_S = 3.0, 3.0
FORGET_AFTER_S = 30.0
"""Six times as long as agents take between two reports in full."""

PLAUSIBLE, PLAUSIBLE_BYTES = 1.5, 1_000_000
"""Times a link's speed, and bytes more, between two reports."""

LARGEST_BPS = 10e12
NS = 1e-9
REASONS = ("ok", "unknown_nic", "not_sane", "implausible", "overflowed")
RATES = ("bytes_acked", "bytes_received")

NicName = tuple[str, str]


@dataclass
class NicTable:
    """The connections from one NIC's addresses, in the order of their keys.

    Attributes:
        keys: see `connection_keys`, sorted, shape (n,).
        rows: as last told, dtype TCP_ROW, shape (n,).
        heard_s: the manager's clock then, shape (n,).
        rates: of RATES in bytes a second between the last two reports, NaN where unknown, shape (n, 2).
        at_ns: the host's clock at its last report.
        services: the names by which rows tell their service.
        programs: name and cgroup of processes.
        unlisted: connections that the last report left out.
    """

    keys: NDArray[np.bytes_] = field(default_factory=lambda: connection_keys(np.zeros(0, TCP_ROW)))
    rows: NDArray[np.void] = field(default_factory=lambda: np.zeros(0, TCP_ROW))
    heard_s: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    rates: NDArray[np.float64] = field(default_factory=lambda: np.zeros((0, len(RATES))))
    at_ns: int = -1
    services: list[str] = field(default_factory=list)
    programs: dict[int, tuple[str, str]] = field(default_factory=dict)
    unlisted: int = 0

    def keep(self, chosen: NDArray[np.bool_] | NDArray[np.intp]) -> None:
        """Keep some, in an order that `chosen` gives."""
        self.keys, self.rows = self.keys[chosen], self.rows[chosen]
        self.heard_s, self.rates = self.heard_s[chosen], self.rates[chosen]

    def service(self, i: int) -> str:
        """The name of a connection's service; empty where its host names no such any more."""
        number = int(self.rows["service"][i])
        return self.services[number] if number < len(self.services) else ""

    def find(self, keys: NDArray[np.bytes_]) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
        """Where keys are or would be, and whether they are; shapes (keys,)."""
        return _find(self.keys, keys)


class ConnectionStore:
    """The connections of all hosts.

    Attributes:
        tables: of each NIC.
        reports: parts of messages by outcome (REASONS).
        totals: by what counters have grown (TCP_COUNTERS), of all connections that there were.
        closed: how many were told to be closed.
    """

    def __init__(self) -> None:
        self.tables: dict[NicName, NicTable] = {}
        self.reports: Counter[str] = Counter(dict.fromkeys(REASONS, 0))
        self.totals: Counter[str] = Counter(dict.fromkeys(TCP_COUNTERS, 0))
        self.closed = 0
        self._changes = self._joined_of = 0
        self._all_keys = NicTable().keys

    def hear(self, report: TcpReport, links_bps: Mapping[str, float | None], now_s: float) -> None:
        """A host tells of its connections; `links_bps` are the speeds of its NICs, None where unknown."""
        for table in self._of(report.host, links_bps):
            if not table.unlisted:
                table.rates[:] = 0.0
        for part in report.nics:
            if part.nic not in links_bps:
                self.reports["unknown_nic"] += 1
                continue
            rows = _sane(part.rows, len(report.services))
            if rows is None:
                self.reports["not_sane"] += 1
                continue
            self.reports["ok"] += 1
            table = self.tables.setdefault((report.host, part.nic), NicTable())
            table.unlisted = part.unlisted
            self._take(table, rows, report, min(links_bps[part.nic] or LARGEST_BPS, LARGEST_BPS), now_s)
        for table in self._of(report.host, links_bps):
            table.at_ns = report.at_ns
            self._note_names(table, report)
        self._changes += 1

    def both_ends(self, table: NicTable) -> NDArray[np.bool_]:
        """Of which connections the other end tells too, shape (n,)."""
        if self._joined_of != self._changes:
            self._joined_of = self._changes
            self._all_keys = np.sort(
                np.concatenate([NicTable().keys, *(one.keys for one in self.tables.values())])
            )
        return _find(self._all_keys, far_keys(table.keys))[1]

    def count(self) -> Counter[str]:
        """How many connections are told of by both ends, and by one; ends of each."""
        counts = Counter(both=0, one=0)
        for table in list(self.tables.values()):
            both = int(self.both_ends(table).sum())
            counts.update(both=both, one=len(table.keys) - both)
        return counts

    def expire(self, now_s: float, hosts: Collection[str]) -> None:
        """Let go of what nobody has told of for long, and of hosts that are gone."""
        for nic, table in list(self.tables.items()):
            kept = now_s - table.heard_s < FORGET_AFTER_S
            if not kept.all():
                table.keep(kept)
                self._changes += 1
            if nic[0] not in hosts or not len(table.keys):
                del self.tables[nic]
                self._changes += 1

    def _of(self, host: str, nics: Collection[str]) -> list[NicTable]:
        return [table for nic in nics if (table := self.tables.get((host, nic))) is not None]

    def _take(
        self, table: NicTable, rows: NDArray[np.void], report: TcpReport, link_bps: float, now_s: float
    ) -> None:
        keys, last = np.unique(connection_keys(rows)[::-1], return_index=True)
        rows = rows[::-1][last]
        place, known = table.find(keys)
        before = np.zeros(len(rows), TCP_ROW)
        before[known] = table.rows[place[known]]
        grown = {name: _grown(rows[name], before[name]) for name in TCP_COUNTERS}
        took_s = (report.at_ns - table.at_ns) * NS
        is_going_on = known & (0 < took_s <= LONGEST_GAP_S)
        most = PLAUSIBLE * link_bps / 8 * took_s + PLAUSIBLE_BYTES
        implausible = is_going_on & np.any([grown[name] > most for name in TCP_COUNTERS], axis=0)
        self.reports["implausible"] += bool(implausible.any())
        for name in TCP_COUNTERS:
            self.totals[name] += int(grown[name][known & ~implausible].sum())
        rates = np.full((len(rows), len(RATES)), np.nan)
        counts = is_going_on & ~implausible
        for column, name in enumerate(RATES):
            rates[counts, column] = grown[name][counts] / took_s
        closed = rows["state"] == CLOSED
        self.closed += int(closed.sum())
        stays = np.zeros(len(table.keys), bool) if report.in_full else np.ones(len(table.keys), bool)
        stays[place[known]] = False
        table.keep(stays)
        table.keys = np.concatenate([table.keys, keys[~closed]])
        table.rows = np.concatenate([table.rows, rows[~closed]])
        table.rates = np.concatenate([table.rates, rates[~closed]])
        table.heard_s = np.concatenate([table.heard_s, np.full(int((~closed).sum()), now_s)])
        if len(table.keys) > MOST_ROWS:
            self.reports["overflowed"] += 1
            table.keep(np.argsort(table.heard_s, kind="stable")[-MOST_ROWS:])
        table.keep(np.argsort(table.keys, kind="stable"))

    @staticmethod
    def _note_names(table: NicTable, report: TcpReport) -> None:
        table.services = report.services
        told = {one.pid: (one.name[:MOST_NAME], one.cgroup[:MOST_CGROUP]) for one in report.programs}
        pids = set(table.rows["pid"].tolist())
        table.programs = {pid: name for pid, name in (table.programs | told).items() if pid in pids}


def _sane(data: bytes, services: int) -> NDArray[np.void] | None:
    """The rows of a part; None where it is not sane."""
    if len(data) % TCP_ROW.itemsize:
        return None
    rows = rows_of(data, TCP_ROW)
    is_sane = np.isin(rows["state"], list(STATES)) & (rows["service"] < services)
    return rows if is_sane.all() else None


def _grown(now: NDArray[np.uint64], before: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """How far counters have come; one below its last value is another connection's, which began anew at 0."""
    grown: NDArray[np.uint64] = np.where(now >= before, now - before, now)
    return grown


def _find(there: NDArray[np.bytes_], keys: NDArray[np.bytes_]) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
    """Where keys are among sorted ones, or would be, and whether they are; shapes (keys,)."""
    place = np.searchsorted(there, keys)
    known = np.zeros(len(keys), bool)
    inside = place < len(there)
    known[inside] = there[place[inside]] == keys[inside]
    return place, known
