"""Pairs of UD probes: sent one behind the other at a steady rate, told of when both are decided."""

import random
from collections import Counter

from cwdp.agent.ud.orders import Fate, Row
from cwdp.rdma.udprobe import Exchange, Timeline, UdPath, UdProber, UdSample
from cwdp.rdma.udwire import UNSYNCED_BOUND_NS

CATCH_UP_S = 0.1
MOST_PENDING = 8_192
ROWS_A_WORD = 4_000
LONGEST_NS = 2**62
COUNTERS = ("pairs_sent", "pairs_skipped", "pairs_held_back", "probes_abandoned")

_NO_TIMES = (0, 0, 0, 0, 0, 0, UNSYNCED_BOUND_NS)

_Pair = list[Row | None]


class Turns:
    """When whose turn is.

    Args:
        turns: indices of paths, in order.
        pairs_per_s: of all together; no more than CATCH_UP_S of them are made up for.
        now_s: the start.
        counters: `pairs_skipped` is counted here.
    """

    def __init__(self, turns: list[int], pairs_per_s: float, now_s: float, counters: Counter[str]) -> None:
        self._turns = turns if pairs_per_s > 0 else []
        self._interval_s = 1 / pairs_per_s if pairs_per_s > 0 else 0.0
        self._next = 0
        self._due_s = now_s
        self._counters = counters
        self._random = random.Random()  # noqa: S311 - keeps probes from beating with periodic traffic

    def due_s(self) -> float | None:
        """When the next turn is; None for never."""
        return self._due_s if self._turns else None

    def take(self, now_s: float) -> list[int]:
        """The paths whose turn has come."""
        if not self._turns:
            return []
        behind_s = now_s - CATCH_UP_S - self._due_s
        if behind_s > 0:
            skipped = int(behind_s / self._interval_s)
            self._counters["pairs_skipped"] += skipped
            self._due_s += skipped * self._interval_s
        taken = []
        while self._due_s <= now_s:
            taken.append(self._turns[self._next])
            self._next = (self._next + 1) % len(self._turns)
            self._due_s += self._interval_s * self._random.uniform(0.5, 1.5)
        return taken


class Pairs:
    """Sends pairs by a prober, and puts what becomes of them together.

    Args:
        paths: what turns are indices of.
        counters: of COUNTERS; shared with those before and after.
        timeline: of this host's clock.
    """

    def __init__(self, paths: list[UdPath], counters: Counter[str], timeline: Timeline) -> None:
        self._paths, self._counters, self._timeline = paths, counters, timeline
        self._open: dict[int, tuple[_Pair, int, int]] = {}
        self._rows: list[Row] = []

    def send(self, prober: UdProber, index: int) -> None:
        """Send a pair over a path."""
        if len(self._open) + len(self._rows) >= MOST_PENDING:
            self._counters["pairs_held_back"] += 1
            return
        self._counters["pairs_sent"] += 1
        path = self._paths[index]
        pair: _Pair = [None, None]
        for place, seq in enumerate(prober.send([path, path])):
            if seq is None:
                self._decide(pair, place, (index, Fate.UNSENT, *_NO_TIMES))
            else:
                self._open[seq] = pair, place, index

    def take_samples(self, samples: list[UdSample]) -> None:
        """Take in what became of probes; those of others are passed over."""
        for sample in samples:
            found = self._open.pop(sample.seq, None)
            if found is not None:
                pair, place, index = found
                self._decide(pair, place, self._row(index, sample.exchange))

    def take_rows(self) -> list[Row]:
        """Pairs that are decided, two rows each, once; the rest next time."""
        rows, self._rows = self._rows[:ROWS_A_WORD], self._rows[ROWS_A_WORD:]
        return rows

    def has_rows(self) -> bool:
        """Whether there are any to take."""
        return bool(self._rows)

    def abandon(self) -> None:
        """Nobody will ask for what is still under way, or has not been told of."""
        self._counters["probes_abandoned"] += len(self._open) + len(self._rows)
        self._open.clear()
        self._rows.clear()

    def _decide(self, pair: _Pair, place: int, row: Row) -> None:
        pair[place] = row
        first, second = pair
        if first is not None and second is not None:
            self._rows += (first, second)

    def _row(self, index: int, exchange: Exchange | None) -> Row:
        if exchange is None:
            return (index, Fate.LOST, *_NO_TIMES)
        here, there = self._timeline(exchange.t4_ns), exchange.reading
        stamps = (exchange.t1_ns, exchange.t2_ns, exchange.t3_ns, exchange.t4_ns)
        if not (here.synced and there.synced):
            return (index, Fate.ANSWERED, *stamps, 0, 0, UNSYNCED_BOUND_NS)
        ahead_ns = there.offset_ns - here.offset_ns
        fwd_ns = exchange.t2_ns - exchange.t1_ns + ahead_ns
        rev_ns = exchange.t4_ns - exchange.t3_ns - ahead_ns
        if max(abs(fwd_ns), abs(rev_ns)) > LONGEST_NS:
            return (index, Fate.ANSWERED, *stamps, 0, 0, UNSYNCED_BOUND_NS)
        bound_ns = min(here.bound_ns + there.bound_ns, UNSYNCED_BOUND_NS - 1)
        return (index, Fate.ANSWERED, *stamps, fwd_ns, rev_ns, bound_ns)
