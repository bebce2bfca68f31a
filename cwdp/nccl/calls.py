"""From the events of programs to calls: when each began and ended on its rank, and what its chunks waited for. No I/O.

A call has a key of 64 bits: communicator, function and number. NCCL says of a call when it is enqueued, not when it is over: that
is when as many operations have ended as began, and none came for a while.
"""

from collections import Counter, defaultdict, deque
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from cwdp.nccl.ring import CALL, COMMS, GPU, OP_BEGIN, OP_END, POST, STEP, WAITS
from cwdp.shared.bus.collectives import FUNCTIONS

Rows = NDArray[np.void]
Keys = NDArray[np.uint64]

SETTLE_NS = 1_000_000_000
STUCK_NS, ALONE_NS = 5_000_000_000, 10_000_000_000
"""A call whose operations have stood still for so long is told though it is not over, and again after as long; one without any
operation is forgotten."""

LATE_NS, AHEAD_NS = 3_600_000_000_000, 1_000_000_000
MOST_OPEN = 4_096
MOST_PEERS = 1_024
MOST_WAITING = 4_096
"""Of one program's calls under way, of one call's peers, and of calls that nobody has taken."""

KEPT_STEPS = 65_536
MOST_CHUNKS = 256
ONE_IN = 64
SLOW = 2.0
LIKE, FEWEST_LIKE, MOST_KINDS = 64, 8, 1_024
"""A call is slow that took so many times as long as the median of the last ones like it, of which there must be some."""

COUNTERS = ("calls_over", "calls_slow", "calls_stuck", "calls_off_network", "calls_too_many", "calls_untold", "peers_too_many",
            "records_not_sane", "records_of_others")  # fmt: skip

_FUNCTION_SHIFT, _COMM_SHIFT = np.uint64(44), np.uint64(48)


@dataclass
class Peer:
    """The chunks of a call to or from one peer."""

    chunks: int = 0
    bytes: int = 0
    wait_ns: list[int] = field(default_factory=lambda: [0] * WAITS)
    longest_ns: int = 0


@dataclass
class Call:
    """A call under way, or over, by CLOCK_MONOTONIC.

    Attributes:
        owner: names its program.
        key: see above.
        peer: its root, or the peer.
        enqueued_ns: 0 where it is not known.
        started_ns: when the first data that it sends left the GPU; 0 while there is none.
        step_ns: when its last chunk so far was done; 0 while there is none.
        heard_ns: when there was something new.
        told_ns: when it was told that it stands still; 0 while it does not.
        peers: by peer, and whether to it.
    """

    owner: int
    key: int
    peer: int = -1
    bytes: int = 0
    enqueued_ns: int = 0
    op_ns: int = 0
    started_ns: int = 0
    step_ns: int = 0
    end_ns: int = 0
    ops: int = 0
    ended: int = 0
    heard_ns: int = 0
    told_ns: int = 0
    is_slow: bool = False
    peers: dict[tuple[int, bool], Peer] = field(default_factory=dict)
    chunks: Rows | None = None

    @property
    def comm(self) -> int:
        """The place of its communicator in its program's ring."""
        return self.key >> 48

    @property
    def function(self) -> int:
        """A place in FUNCTIONS."""
        return self.key >> 44 & 0xF

    @property
    def seq(self) -> int:
        """Its number, of its communicator and function."""
        return self.key & ((1 << 44) - 1)

    @property
    def start_ns(self) -> int:
        """When it began on the network."""
        return self.started_ns or self.op_ns

    @property
    def last_ns(self) -> int:
        """When it ended, or did something last."""
        return self.end_ns if self.is_over else max(self.end_ns, self.step_ns)

    @property
    def is_over(self) -> bool:
        """Whether all that began has ended."""
        return 0 < self.ops <= self.ended


class Calls:
    """All programs' calls.

    Attributes:
        counters: of COUNTERS.
        over: those to be told, for the caller to take.
    """

    def __init__(self) -> None:
        self.counters: Counter[str] = Counter(dict.fromkeys(COUNTERS, 0))
        self.over: deque[Call] = deque()
        self._open: defaultdict[int, dict[int, Call]] = defaultdict(dict)
        self._like: dict[tuple[int, int, int], deque[int]] = {}
        self._steps: deque[tuple[int, Keys, Rows]] = deque()
        self._kept = 0

    def __len__(self) -> int:
        return sum(map(len, self._open.values()))

    def take(self, owner: int, pids: dict[int, int], pid: int, records: Rows, now_ns: int) -> None:
        """Take in what a program has written.

        Args:
            owner: names the program.
            pids: programs by what they call themselves: what one sends for another is the other's.
            pid: what this one calls itself.
            records: dtype `cwdp.nccl.ring.RECORD`, shape (n,).
            now_ns: CLOCK_MONOTONIC.
        """
        records = records[self._sane(records, now_ns)]
        is_own = records["pid"] == pid
        if is_own.all():
            self._take(owner, records, now_ns)
            return
        self._take(owner, records[is_own], now_ns)
        for other in np.unique(records["pid"][~is_own]).tolist():
            part = records[records["pid"] == other]
            if other in pids:
                self._take(pids[other], part, now_ns)
            else:
                self.counters["records_of_others"] += len(part)

    def close(self, now_ns: int) -> None:
        """Find those that are over, or stand still."""
        for calls in self._open.values():
            for call in list(calls.values()):
                silent_ns = now_ns - call.heard_ns
                if call.is_over and silent_ns > SETTLE_NS:
                    self._end(call)
                elif not call.ops and silent_ns > ALONE_NS:
                    self.counters["calls_off_network"] += 1
                    del calls[call.key]
                elif silent_ns > STUCK_NS and now_ns - call.told_ns > STUCK_NS:
                    self.counters["calls_stuck"] += not call.told_ns
                    call.told_ns = now_ns
                    self._say(call)

    def forget(self, owner: int) -> None:
        """A program is gone: what it did is over."""
        for call in list(self._open.pop(owner, {}).values()):
            if call.ops:
                self._tell(call)
        self._like = {like: lasted for like, lasted in self._like.items() if like[0] != owner}

    def _sane(self, records: Rows, now_ns: int) -> NDArray[np.bool_]:
        begin_ns, lasted_ns = records["begin_ns"], records["lasted_ns"]
        sane = (begin_ns > max(0, now_ns - LATE_NS)) & (begin_ns < now_ns + AHEAD_NS) & (lasted_ns < LATE_NS)
        sane &= (
            (records["comm"] < COMMS) & (records["function"] < len(FUNCTIONS)) & (records["bytes"] < 2**48)
        )
        sane &= (
            (records["wait_ns"] < LATE_NS).all(axis=1) & (records["kind"] >= CALL) & (records["kind"] <= STEP)
        )
        self.counters["records_not_sane"] += len(records) - int(np.count_nonzero(sane))
        return sane

    def _take(self, owner: int, records: Rows, now_ns: int) -> None:
        if not len(records):
            return
        keys = (records["comm"].astype(np.uint64) << _COMM_SHIFT) | (
            records["function"].astype(np.uint64) << _FUNCTION_SHIFT
        )
        keys |= records["seq"] & np.uint64((1 << 44) - 1)
        kinds = records["kind"]
        for row, key in zip(records[kinds == CALL], keys[kinds == CALL].tolist(), strict=True):
            self._enqueued(owner, key, row, now_ns)
        is_op = (kinds == OP_BEGIN) | (kinds == OP_END)
        self._take_ops(owner, keys[is_op], records[is_op], now_ns)
        steps = records[kinds == STEP]
        if len(steps):
            self._take_steps(owner, keys[kinds == STEP], steps, now_ns)

    def _enqueued(self, owner: int, key: int, row: np.void, now_ns: int) -> None:
        """A graph that is launched again may give its calls the numbers that they had."""
        before = self._open[owner].get(key)
        if before is not None and before.enqueued_ns and before.is_over:
            self._end(before)
        call = self._call(owner, key, now_ns)
        if call is not None:
            call.enqueued_ns, call.bytes, call.peer = (
                int(row["begin_ns"]),
                int(row["bytes"]),
                int(row["peer"]),
            )

    def _call(self, owner: int, key: int, now_ns: int) -> Call | None:
        """The call of a key, with something new; None where there are too many."""
        calls = self._open[owner]
        call = calls.get(key)
        if call is None:
            if len(calls) >= MOST_OPEN:
                self.counters["calls_too_many"] += 1
                return None
            call = calls[key] = Call(owner, key)
        call.heard_ns, call.told_ns = now_ns, 0
        return call

    def _take_ops(self, owner: int, keys: Keys, ops: Rows, now_ns: int) -> None:
        found, which = np.unique(keys, return_inverse=True)
        begins = ops["kind"] == OP_BEGIN
        begun = np.bincount(which[begins], minlength=len(found)).tolist()
        ended = np.bincount(which[~begins], minlength=len(found)).tolist()
        first, last = np.full(len(found), 2**63, np.uint64), np.zeros(len(found), np.uint64)
        np.minimum.at(first, which, ops["begin_ns"])
        np.maximum.at(last, which[~begins], (ops["begin_ns"] + ops["lasted_ns"])[~begins])
        for i, key in enumerate(found.tolist()):
            call = self._call(owner, key, now_ns)
            if call is not None:
                call.ops += begun[i]
                call.ended += ended[i]
                call.op_ns = min(call.op_ns or 2**63, int(first[i]))
                call.end_ns = max(call.end_ns, int(last[i]))

    def _take_steps(self, owner: int, keys: Keys, steps: Rows, now_ns: int) -> None:
        self._keep(owner, keys, steps)
        found, which = np.unique(keys, return_inverse=True)
        ends = (steps["peer"].astype(np.int64) << 1) | (steps["is_send"] != 0)
        _, at, group = np.unique(
            (which.astype(np.int64) << 33) ^ ends, return_index=True, return_inverse=True
        )
        chunks = np.bincount(group).tolist()
        octets = np.bincount(group, steps["bytes"]).astype(np.int64).tolist()
        waits = np.stack([np.bincount(group, steps["wait_ns"][:, i]) for i in range(WAITS)], axis=1)
        waited = waits.astype(np.int64).tolist()
        longest, started = np.zeros(len(at), np.uint64), np.full(len(at), 2**63, np.uint64)
        np.maximum.at(longest, group, steps["lasted_ns"])
        ready_ns = steps["begin_ns"] + steps["wait_ns"][:, POST] + steps["wait_ns"][:, GPU]
        np.minimum.at(started, group, ready_ns)
        calls = [self._call(owner, key, now_ns) for key in found.tolist()]
        done = np.zeros(len(found), np.uint64)
        np.maximum.at(done, which, steps["begin_ns"] + steps["lasted_ns"])
        for call, done_ns in zip(calls, done.tolist(), strict=True):
            if call is not None:
                call.step_ns = max(call.step_ns, done_ns)
        columns = (each[at].tolist() for each in (which, steps["peer"], steps["is_send"] != 0))
        longest_ns, started_ns = longest.tolist(), started.tolist()
        for i, (place, *name) in enumerate(zip(*columns, strict=True)):
            call = calls[place]
            if call is None:
                continue
            who, is_send = name
            if (who, is_send) not in call.peers and len(call.peers) >= MOST_PEERS:
                self.counters["peers_too_many"] += 1
                continue
            peer = call.peers.setdefault((who, is_send), Peer())
            peer.chunks += chunks[i]
            peer.bytes += octets[i]
            peer.wait_ns = [had + more for had, more in zip(peer.wait_ns, waited[i], strict=True)]
            peer.longest_ns = max(peer.longest_ns, longest_ns[i])
            if is_send:
                call.started_ns = min(call.started_ns or 2**63, started_ns[i])

    def _keep(self, owner: int, keys: Keys, steps: Rows) -> None:
        """Keep the last chunks, as it shows only later which calls were slow."""
        self._steps.append((owner, keys, steps))
        self._kept += len(steps)
        while self._kept > KEPT_STEPS and len(self._steps) > 1:
            self._kept -= len(self._steps.popleft()[2])

    def _end(self, call: Call) -> None:
        del self._open[call.owner][call.key]
        self._tell(call)

    def _tell(self, call: Call) -> None:
        call.is_slow = call.is_over and self._is_slow(call)
        self.counters["calls_over"] += call.is_over
        self.counters["calls_slow"] += call.is_slow
        if call.is_slow or self.counters["calls_over"] % ONE_IN == 1:
            call.chunks = self._chunks_of(call)
        self._say(call)

    def _say(self, call: Call) -> None:
        if len(self.over) < MOST_WAITING:
            self.over.append(call)
        else:
            self.counters["calls_untold"] += 1

    def _is_slow(self, call: Call) -> bool:
        like = call.owner, call.key >> 44, call.bytes
        if like not in self._like and len(self._like) >= MOST_KINDS:
            self._like.pop(next(iter(self._like)))
        before = self._like.setdefault(like, deque(maxlen=LIKE))
        lasted_ns = call.end_ns - call.start_ns
        is_slow = len(before) >= FEWEST_LIKE and lasted_ns > SLOW * sorted(before)[len(before) // 2]
        before.append(lasted_ns)
        return is_slow

    def _chunks_of(self, call: Call) -> Rows:
        found = list(self._found(call))
        return np.concatenate(found)[:MOST_CHUNKS] if found else np.empty(0, self._steps[0][2].dtype)

    def _found(self, call: Call) -> Iterator[Rows]:
        for owner, keys, steps in self._steps:
            if owner == call.owner:
                mine = steps[np.flatnonzero(keys == np.uint64(call.key))]
                mine = mine[mine["begin_ns"] >= call.op_ns]
                if len(mine):
                    yield mine
