"""Calls of NCCL that were seen, as rows of collectives. No I/O.

Nothing is known of them but when they were enqueued: what NCCL does later is not seen.
"""

import secrets
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from cwdp.agent.collectives.orders import NcclWord
from cwdp.agent.uprobes.probes.records import CallSeen, CommSeen
from cwdp.shared.bus.collectives import CALL_ROW, ENQUEUED, Communicator
from cwdp.shared.bus.packing import row_bytes

MOST_CALLS, MOST_WAITING, MOST_COMMS = 512, 4_096, 4_096
"""Of one word; that have not been told; communicators."""

_Key = tuple[int, int]


@dataclass
class _Comm:
    """A communicator of a program; `seqs` how many calls of each function it has had."""

    id: int
    rank: int
    ranks: int
    seqs: Counter[int] = field(default_factory=Counter)


class SeenCalls:
    """Those that have not been told.

    Args:
        counters: of `cwdp.agent.uprobes.orders.COUNTERS`.
    """

    def __init__(self, counters: Counter[str]) -> None:
        self._counters = counters
        self._comms: dict[_Key, _Comm] = {}
        self._calls: deque[tuple[CallSeen, _Comm, int]] = deque()

    def hear_comm(self, seen: CommSeen) -> None:
        """A communicator was made, or is gone."""
        key = seen.pid, seen.comm
        self._comms.pop(key, None)
        if seen.is_made:
            self._keep(key, _Comm(seen.id, seen.rank, seen.ranks))

    def hear(self, seen: CallSeen) -> None:
        """A call has returned."""
        key = seen.pid, seen.comm
        comm = self._comms.get(key)
        if comm is None:  # made before it was traced: which ranks of others' are of it is not known
            self._counters["comms_unknown"] += 1
            comm = self._keep(key, _Comm(secrets.randbits(64), -1, 0))
        number = comm.seqs[seen.function]
        comm.seqs[seen.function] += 1
        if len(self._calls) >= MOST_WAITING:
            self._counters["calls_untold"] += 1
        else:
            self._calls.append((seen, comm, number))

    def forget(self, is_there: Callable[[int], bool]) -> None:
        """Programs have ended."""
        self._comms = {key: comm for key, comm in self._comms.items() if is_there(key[0])}

    def take(self, job_of: Callable[[int], str]) -> NcclWord | None:
        """Some of them, for the next word; None for none.

        Args:
            job_of: the job of a program.
        """
        told = [self._calls.popleft() for _ in range(min(MOST_CALLS, len(self._calls)))]
        if not told:
            return None
        self._counters["calls_told"] += len(told)
        comms: dict[Communicator, int] = {}
        rows = []
        for seen, comm, number in told:
            known = Communicator(
                id=comm.id,
                name="",
                rank=comm.rank,
                ranks=comm.ranks,
                nodes=0,
                pid=seen.pid,
                job=job_of(seen.pid),
            )
            place = comms.setdefault(known, len(comms))
            times = seen.time_ns, seen.time_ns, seen.time_ns + seen.lasted_ns
            rows.append(
                (place, seen.peer, seen.function, ENQUEUED, (0, 0), 0, 0, 0, number, seen.bytes, *times)
            )
        return NcclWord(counters={}, comms=list(comms), calls=row_bytes(np.array(rows, CALL_ROW)))

    def _keep(self, key: _Key, comm: _Comm) -> _Comm:
        if len(self._comms) >= MOST_COMMS:
            del self._comms[next(iter(self._comms))]
        self._comms[key] = comm
        return comm
