"""Queue pairs as the agents count them: the last totals, rates, and sums over the fleet. Pure: time is an argument.

Each NIC has a table of rows in the order of their keys, changed a report at a time.
"""

from collections import Counter
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from cwdp.shared.records import DIRECTIONS, NAK_KINDS, QP_COUNTERS, QP_ROW, qp_keys

FORGET_AFTER_S = 600.0
RATE_HOLDS_S = 3.0
STOPPED_AFTER_S = 0.6
"""A queue pair that is missing from its NIC's reports for so long has stopped: two are told in that time."""

MOST_ROWS = 131_072
NS = 1e-9

Rows = NDArray[np.void]
Totals = Counter[tuple[str, str]]


@dataclass(kw_only=True)
class NicTable:
    """One NIC's queue pairs.

    Attributes:
        keys: sorted, shape (n,); see `qp_keys`.
        rows: as last reported, dtype QP_ROW, shape (n,).
        local_ns: the host's clock at that report, int64, shape (n,).
        heard_s: the manager's clock then, shape (n,).
        turned_s: the manager's clock when the source port was last found to be another one, -inf for never, shape (n,).
        rates: packets and bytes a second between the last two reports, NaN for none, shape (n, 2).
        unlisted: queue pairs that moved and did not fit into the last report.
        paced_bps: what those may send that are paced, by address (16 bytes) and QPN, as of the last report.
    """

    keys: NDArray[np.bytes_] = field(default_factory=lambda: qp_keys(np.zeros(0, QP_ROW)))
    rows: Rows = field(default_factory=lambda: np.zeros(0, QP_ROW))
    local_ns: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    heard_s: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    turned_s: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    rates: NDArray[np.float64] = field(default_factory=lambda: np.zeros((0, 2)))
    unlisted: int = 0
    paced_bps: dict[tuple[bytes, int], float] = field(default_factory=dict)

    def sends(self, now_s: float) -> NDArray[np.bool_]:
        """Rows whose rates still hold, shape (n,)."""
        latest_s = float(self.heard_s.max(initial=-np.inf))
        holds_s = RATE_HOLDS_S if self.unlisted else STOPPED_AFTER_S
        sends: NDArray[np.bool_] = (self.heard_s > latest_s - holds_s) & (now_s - self.heard_s < RATE_HOLDS_S)
        return sends

    def keep(self, chosen: NDArray[np.bool_] | NDArray[np.intp]) -> None:
        """Keep some rows, in an order that `chosen` gives."""
        self.keys, self.rows, self.local_ns = self.keys[chosen], self.rows[chosen], self.local_ns[chosen]
        self.heard_s, self.turned_s, self.rates = (
            column[chosen] for column in (self.heard_s, self.turned_s, self.rates)
        )


class QueuePairStore:
    """Takes in reports of queue pairs.

    Attributes:
        tables: each NIC's, by host and interface.
        totals: by counter and direction; a counter below its last value began anew at 0.
        refused: reports that could not be read.
    """

    def __init__(self) -> None:
        self.tables: dict[tuple[str, str], NicTable] = {}
        self.totals: Totals = Counter()
        self.refused = 0

    def hear(self, nic: tuple[str, str], rows: Rows, *, local_ns: int, unlisted: int, now_s: float) -> None:
        """Take in some of a NIC's rows, as they were when its host's clock showed `local_ns`."""
        table = self.tables.setdefault(nic, NicTable())
        table.unlisted = unlisted
        keys, last = np.unique(qp_keys(rows)[::-1], return_index=True)
        rows = rows[::-1][last]
        place = np.searchsorted(table.keys, keys)
        known = np.zeros(len(keys), dtype=bool)
        inside = place < len(table.keys)
        known[inside] = table.keys[place[inside]] == keys[inside]
        self._count(rows[known], table.rows[place[known]])
        self._count(rows[~known], np.zeros(np.count_nonzero(~known), dtype=QP_ROW))
        _move(table, place[known], rows[known], local_ns, now_s)
        _insert(table, keys[~known], rows[~known], local_ns, now_s)

    def expire(self, now_s: float, hosts: set[str]) -> None:
        """Drop rows not heard of for long, and those of hosts that are gone."""
        for nic, table in list(self.tables.items()):
            table.keep(now_s - table.heard_s < FORGET_AFTER_S)
            if nic[0] not in hosts or not len(table.rows):
                del self.tables[nic]

    def count(self) -> Counter[str]:
        """How many there are by direction."""
        counts = Counter(dict.fromkeys(DIRECTIONS, 0))
        for table in self.tables.values():
            both = np.bincount(table.rows["direction"], minlength=len(DIRECTIONS))
            counts.update(dict(zip(DIRECTIONS, both.tolist(), strict=False)))
        return counts

    def _count(self, rows: Rows, before: Rows) -> None:
        for code, direction in enumerate(DIRECTIONS):
            mine = rows["direction"] == code
            for name in QP_COUNTERS:
                self.totals[name, direction] += int(_grown(rows[name][mine], before[name][mine]).sum())
            naks = _grown(rows["naks"][mine], before["naks"][mine]).sum(axis=0)
            for kind, count in zip(NAK_KINDS, naks.tolist(), strict=True):
                self.totals[f"nak_{kind}", direction] += count


def _grown(now: NDArray[np.unsignedinteger], before: NDArray[np.unsignedinteger]) -> NDArray[np.uint64]:
    """How far counters have come; one below its last value began anew at 0."""
    grown: NDArray[np.uint64] = np.where(now >= before, now - before, now).astype(np.uint64)
    return grown


def _move(table: NicTable, place: NDArray[np.intp], rows: Rows, local_ns: int, now_s: float) -> None:
    """Replace rows that are there, and work out their rates."""
    took_s = (local_ns - table.local_ns[place]) * NS
    for column, name in enumerate(("packets", "bytes")):
        grown = _grown(rows[name], table.rows[name][place])
        rate = np.divide(grown, took_s, out=np.full(len(rows), np.nan), where=took_s > 0)
        table.rates[place, column] = rate
    table.turned_s[place[rows["sport"] != table.rows["sport"][place]]] = now_s
    table.rows[place], table.local_ns[place], table.heard_s[place] = rows, local_ns, now_s


def _insert(table: NicTable, keys: NDArray[np.bytes_], rows: Rows, local_ns: int, now_s: float) -> None:
    if not len(rows):
        return
    table.keys = np.concatenate([table.keys, keys])
    table.rows = np.concatenate([table.rows, rows])
    table.local_ns = np.concatenate([table.local_ns, np.full(len(rows), local_ns)])
    table.heard_s = np.concatenate([table.heard_s, np.full(len(rows), now_s)])
    table.turned_s = np.concatenate([table.turned_s, np.full(len(rows), -np.inf)])
    table.rates = np.concatenate([table.rates, np.full((len(rows), 2), np.nan)])
    if len(table.rows) > MOST_ROWS:
        table.keep(np.argsort(table.heard_s, kind="stable")[-MOST_ROWS:])
    table.keep(np.argsort(table.keys, kind="stable"))
