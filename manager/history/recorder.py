"""What is to be written, in the order in which it happened. No I/O: `manager.history.service` writes it."""

import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict

import msgspec

from manager.history.records import (
    LONGEST_BYTES,
    EventRecord,
    MoveRecord,
    OverrideRecord,
    Record,
    size_bytes,
)
from manager.hosts.happening import Happening, Move
from manager.overrides.change import OverrideChange

MOST_WAITING = 100_000
HELD_S = 15.0
"""Events that were heard while somebody else led, or nobody, are held for so long: who led may have been dead already."""

MOST_HELD = 10_000
TAKEN_AT_ONCE = 4_096


class Recorder:
    """A queue of records; what does not fit in is counted and lost.

    Args:
        leads: whether this manager's word counts; what others lead, others record.

    Attributes:
        counters: `dropped`.
    """

    def __init__(self, leads: Callable[[], bool]) -> None:
        self.counters: Counter[str] = Counter(dropped=0)
        self._leads = leads
        self._waiting: deque[Record] = deque()
        self._held: deque[EventRecord] = deque(maxlen=MOST_HELD)

    @property
    def waiting(self) -> int:
        """How many are not written yet."""
        return len(self._waiting)

    def hear_event(self, event: Happening) -> None:
        """Something happened."""
        record = EventRecord(
            time_s=event.time_s,
            host=event.host,
            kind=event.kind,
            nic=event.nic,
            detail=event.detail,
            path=event.path,
            why=event.why,
            moves=event.moves,
        )
        if self._leads():
            self.add([record])
        else:
            self._held.append(record)

    def hear_moves(self, moves: Iterable[Move]) -> None:
        """The planner wants something of queue pairs."""
        now_s = time.time()
        self.add(MoveRecord(time_s=now_s, **msgspec.structs.asdict(move)) for move in moves)

    def hear_override(self, override: OverrideChange) -> None:
        """Somebody has set or withdrawn something."""
        self.add([OverrideRecord(time_s=time.time(), **asdict(override))])

    def add(self, records: Iterable[Record]) -> None:
        """Have these written."""
        for record in records:
            if len(self._waiting) < MOST_WAITING:
                self._waiting.append(record)
            else:
                self.counters["dropped"] += 1

    def held(self) -> list[EventRecord]:
        """What was heard of late while this manager did not lead; held no more."""
        since_s = time.time() - HELD_S
        found = [event for event in self._held if event.time_s >= since_s]
        self._held.clear()
        return found

    def next(self) -> list[Record]:
        """Those that are to be written now, as many as a message takes; they wait until they are `written`."""
        chosen: list[Record] = []
        total_bytes = 0
        for record in self._waiting:
            total_bytes += size_bytes(record)
            if chosen and (total_bytes > LONGEST_BYTES or len(chosen) == TAKEN_AT_ONCE):
                break
            chosen.append(record)
        return chosen

    def written(self, records: Sequence[Record]) -> None:
        """These are on the disk."""
        for _ in records:
            self._waiting.popleft()
