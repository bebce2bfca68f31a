"""The last calls of NCCL and RCCL of each job, put together from what their ranks tell. No I/O."""

from collections import Counter, OrderedDict, deque
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cwdp.shared.bus.collectives import (
    CALL_ROW,
    CHUNK_ROW,
    ENQUEUED,
    FUNCTIONS,
    OVER,
    PEER_ROW,
    SLOW,
    CollectiveReport,
    Communicator,
)
from cwdp.shared.bus.packing import rows_of
from manager.collectives.bursts import CallBursts

Rows = NDArray[np.void]

KEPT, MOST_JOBS, MOST_RANKS = 512, 256, 4_096
"""Calls of a job, jobs, and ranks of a call."""

ALIKE = 4
"""Calls of one number, as graphs that are launched again have them."""

LATE_NS = 3_600_000_000_000
MOST_NS = 2**61
MOST_PID = 2**31
REPORT_REASONS = ("ok", "unknown_host", "not_sane")
ALONE = frozenset(FUNCTIONS.index(name) for name in ("Send", "Recv", "SendRecv"))
"""Calls of one rank: the peer's has a number of its own."""


class RankId(NamedTuple):
    """Whose part of a call it is."""

    host: str
    pid: int
    rank: int

    @property
    def text(self) -> str:
        """For people."""
        return f"rank {self.rank} ({self.host}, process {self.pid})"


@dataclass(frozen=True)
class RankCall:
    """What one rank tells of a call, on the timeline.

    Attributes:
        enqueued_ns: 0 where it is not known.
        is_enqueued: nothing is known but when it was enqueued, from `start_ns` to `end_ns`.
        ops, open_ops: its operations, one a channel and peer, and those of them that go on.
        peers: dtype PEER_ROW.
        chunks: dtype CHUNK_ROW; of slow calls and some others.
    """

    id: RankId
    peer: int
    enqueued_ns: int
    start_ns: int
    end_ns: int
    is_over: bool
    is_enqueued: bool
    is_slow: bool
    ops: int
    open_ops: int
    peers: Rows
    chunks: Rows


@dataclass
class Collective:
    """A call of a communicator.

    Attributes:
        ranks: by whose it is.
        start_ns: when the first rank began.
        last_start_ns: when the last one began.
        end_ns: when the last one ended, or did something.
        heard_ns: when a rank told of it last, on the timeline; 0 where that was not known.
    """

    job: str
    comm: Communicator
    function: int
    seq: int
    bytes: int
    start_ns: int
    last_start_ns: int
    end_ns: int
    ranks: dict[RankId, RankCall] = field(default_factory=dict)
    heard_ns: int = 0

    @property
    def lasted_ns(self) -> int:
        """From the first beginning to the last end."""
        return max(0, self.end_ns - self.start_ns)

    @property
    def late_ns(self) -> int:
        """How long after the first rank the last one began."""
        return self.last_start_ns - self.start_ns

    def copy(self) -> "Collective":
        """As it is now, for another thread."""
        return replace(self, ranks=dict(self.ranks))

    @property
    def is_enqueued(self) -> bool:
        """Whether of any rank nothing is known but when it was enqueued."""
        return any(rank.is_enqueued for rank in self.ranks.values())

    @property
    def is_over(self) -> bool:
        """Whether all ranks that have told of it have ended it."""
        return all(rank.is_over for rank in self.ranks.values())

    def add(self, told: RankCall, heard_ns: int) -> None:
        """Take in what a rank tells, for the first time or once more."""
        self.heard_ns = heard_ns
        self.ranks[told.id] = told
        self.start_ns = min(self.start_ns, told.start_ns)
        self.last_start_ns = max(self.last_start_ns, told.start_ns)
        self.end_ns = max(self.end_ns, told.end_ns)


_Key = tuple[int, int, int, RankId | None]


class CollectiveStore:
    """The last `KEPT` of each job; jobs of which nothing was heard for longest are forgotten first.

    Attributes:
        reports: messages by outcome (`REPORT_REASONS`).
        bursts: what went between ranks.
    """

    def __init__(self) -> None:
        self.bursts = CallBursts()
        self.reports: Counter[str] = Counter(dict.fromkeys(REPORT_REASONS, 0))
        self._jobs: OrderedDict[str, deque[Collective]] = OrderedDict()
        self._numbered: dict[str, OrderedDict[_Key, deque[Collective]]] = {}

    def hear(self, report: CollectiveReport, hosts: Collection[str], now_ns: int | None) -> None:
        """Take in what a host tells.

        Args:
            report: its calls.
            hosts: those that are known.
            now_ns: the timeline now; None while it is not known.
        """
        if report.host not in hosts:
            self.reports["unknown_host"] += 1
            return
        try:
            calls, peers, chunks = _rows(report)
        except ValueError:
            self.reports["not_sane"] += 1
            return
        if not _is_sane(calls, report.comms, now_ns):
            self.reports["not_sane"] += 1
            return
        self.reports["ok"] += 1
        self.bursts.hear(report.host, report.comms, calls, peers, now_ns)
        peers_of, chunks_of = _by_call(peers, len(calls)), _by_call(chunks, len(calls))
        for row, its_peers, its_chunks in zip(calls, peers_of, chunks_of, strict=True):
            call, rank = self._part(report.host, report.comms[row["comm"]], row, its_peers, its_chunks)
            if rank.id in call.ranks or len(call.ranks) < MOST_RANKS:
                call.add(rank, now_ns or 0)

    def of(self, job: str = "") -> Iterable[Collective]:
        """Those of a job, or of all."""
        for name, calls in self._jobs.items():
            if not job or name == job:
                yield from calls

    def latest(self, jobs: int, calls: int) -> list[tuple[str, list[Collective]]]:
        """Of so many jobs so many calls, those that were heard of last; a copy."""
        chosen = islice(reversed(self._jobs.items()), jobs)
        return [(name, list(islice(reversed(its), calls))) for name, its in chosen]

    @property
    def jobs(self) -> list[str]:
        """Their names; "" for those of none that is known."""
        return list(self._jobs)

    def _part(
        self, host: str, comm: Communicator, row: np.void, peers: Rows, chunks: Rows
    ) -> tuple[Collective, RankCall]:
        """What a rank tells, and the call that it is a part of."""
        rank = RankId(host, comm.pid, comm.rank)
        function, flags = int(row["function"]), int(row["flags"])
        told = RankCall(
            id=rank,
            peer=int(row["peer"]),
            enqueued_ns=int(row["enqueued_ns"]),
            start_ns=int(row["start_ns"]),
            end_ns=int(row["end_ns"]),
            is_over=bool(flags & OVER),
            is_enqueued=bool(flags & ENQUEUED),
            is_slow=bool(flags & SLOW),
            ops=int(row["ops"]),
            open_ops=int(row["open_ops"]),
            peers=peers,
            chunks=chunks,
        )
        key = comm.id, function, int(row["seq"]), rank if function in ALONE else None
        return self._call(comm, key, int(row["bytes"]), told), told

    def _call(self, comm: Communicator, key: _Key, size: int, told: RankCall) -> Collective:
        """The call that a rank's is a part of: of those of its number, as a graph that is launched again may use it once more."""
        calls, numbered = self._of_job(comm.job)
        alike = numbered.setdefault(key, deque(maxlen=ALIKE))
        for call in alike:
            before = call.ranks.get(told.id)
            if before is not None and (not (before.is_over or before.is_enqueued) or _overlap(before, told)):
                return call
        others = [call for call in alike if told.id not in call.ranks]
        if others:
            return min(others, key=lambda call: abs(call.start_ns - told.start_ns))
        call = Collective(comm.job, comm, key[1], key[2], size, told.start_ns, told.start_ns, told.end_ns)
        alike.append(call)
        calls.append(call)
        numbered.move_to_end(key)
        while len(numbered) > KEPT:
            numbered.popitem(last=False)
        return call

    def _of_job(self, job: str) -> tuple[deque[Collective], OrderedDict[_Key, deque[Collective]]]:
        if job not in self._jobs:
            self._jobs[job], self._numbered[job] = deque(maxlen=KEPT), OrderedDict()
            if len(self._jobs) > MOST_JOBS:
                oldest, _ = self._jobs.popitem(last=False)
                del self._numbered[oldest]
        self._jobs.move_to_end(job)
        return self._jobs[job], self._numbered[job]


def _overlap(one: RankCall, other: RankCall) -> bool:
    return one.start_ns <= other.end_ns and other.start_ns <= one.end_ns


def _rows(report: CollectiveReport) -> tuple[Rows, Rows, Rows]:
    """Of a report: its calls, peers and chunks.

    Raises:
        ValueError: they are no whole rows.
    """
    return rows_of(report.calls, CALL_ROW), rows_of(report.peers, PEER_ROW), rows_of(report.chunks, CHUNK_ROW)


def _is_sane(calls: Rows, comms: Sequence[Communicator], now_ns: int | None) -> bool:
    if not all(0 <= comm.pid < MOST_PID for comm in comms):
        return False
    if not len(calls):
        return True
    start_ns, end_ns = calls["start_ns"], calls["end_ns"]
    sane = (calls["comm"] < len(comms)) & (calls["function"] < len(FUNCTIONS)) & (calls["bytes"] < 2**48)
    sane &= (
        (np.abs(start_ns) < MOST_NS) & (np.abs(end_ns) < MOST_NS) & (np.abs(calls["enqueued_ns"]) < MOST_NS)
    )
    if now_ns is not None:
        sane &= (start_ns > now_ns - LATE_NS) & (start_ns < now_ns + LATE_NS) & (end_ns < now_ns + LATE_NS)
    return bool(sane.all())


def _by_call(rows: Rows, calls: int) -> list[Rows]:
    """The rows of each call; those of none are left out."""
    order = np.argsort(rows["call"], kind="stable")
    ends = np.searchsorted(rows["call"][order], np.arange(calls + 1))
    return [rows[order[ends[i] : ends[i + 1]]].copy() for i in range(calls)]
