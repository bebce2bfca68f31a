"""Migrations under way: their orders to agents, and the agents' answers. No I/O.

An order says until when it may be begun, by the clock of the host that it goes to: as its agent told that last, so that what was on
the way for long, or waits in an agent that stands still, is not done when nobody expects it any more. Nothing is tried again before
it is known to be over.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from cwdp.shared.verbs import MigrationAnswer, MigrationOrder, MigrationStep
from manager.ib.migration.connections import Connection, Key
from manager.ib.migration.steps import Migration, Step

ORDER_S = 2.0
"""So long an order may be begun."""

ANSWER_S = 1.0
"""So long after that its answer may come."""

AGAIN_S = 0.1
"""Before a step that the queue pair was not ready for is ordered again."""

MOST_OF_AN_ORDER = 1_024

_NS_PER_S = 1_000_000_000

Why = Literal["operator", "fault", "follow", "room", "backup"]
Send = Callable[[str, MigrationOrder], object]
Clocks = Mapping[str, tuple[int, float]]
"""See `manager.queue_pairs.verbs.VerbsStore.clocks`."""


@dataclass(eq=False)
class Attempt:
    """One connection's.

    Attributes:
        key: of the connection.
        connection: as it was told when this began.
        number: of the path that it goes to, or loads.
        why: what it is for; `follow`: one end goes where the other is already; `backup`: a path is loaded, to be migrated to later.
        steps: how far it has come.
        began_s: when it did, seconds of the manager's monotonic clock.
        asked: numbers of its orders that are not answered.
    """

    key: Key
    connection: Connection
    number: int
    why: Why
    steps: Migration
    began_s: float
    asked: set[int] = field(default_factory=set)


class Attempts:
    """All that are under way.

    Args:
        clocks: of hosts.

    Attributes:
        send: has a host do what an order says.
        epoch: of the leader that orders.
    """

    def __init__(self, clocks: Clocks) -> None:
        self._clocks = clocks
        self.send: Send = lambda _host, _order: None
        self.epoch = 0
        self._under_way: dict[Key, Attempt] = {}
        self._asked: dict[int, tuple[Attempt, Step]] = {}
        self._again: list[tuple[float, Attempt, Step]] = []
        self._out: defaultdict[tuple[str, float], list[MigrationStep]] = defaultdict(list)
        self._numbers = 0

    def __len__(self) -> int:
        return len(self._under_way)

    def __contains__(self, key: Key) -> bool:
        return key in self._under_way

    def begin(self, attempt: Attempt) -> None:
        """Have a connection go to a path, or load it."""
        self._under_way[attempt.key] = attempt
        for step in attempt.steps.begin():
            self._ask(attempt, step)

    def hear(self, host: str, answers: Iterable[MigrationAnswer], now_s: float) -> list[Attempt]:
        """A host has answered; the attempts that are over now. What it was not asked counts for nothing."""
        over = []
        for answer in answers:
            attempt, step = self._asked.get(answer.number, (None, None))
            if attempt is None or step is None or attempt.connection.ends[step.end].host != host:
                continue
            del self._asked[answer.number]
            attempt.asked.discard(answer.number)
            for following in attempt.steps.hear(step, answer.error, round(now_s * _NS_PER_S)):
                if following == step:
                    self._again.append((now_s + AGAIN_S, attempt, following))
                else:
                    self._ask(attempt, following)
            if attempt.steps.is_over:
                over.append(self._end(attempt))
        self.flush(now_s)
        return over

    def tidy(self, now_s: float) -> list[Attempt]:
        """Order again what is due, and give up what has come to nothing; the attempts that are over now."""
        due = [one for one in self._again if one[0] <= now_s]
        self._again = [one for one in self._again if one[0] > now_s]
        for _, attempt, step in due:
            if not attempt.steps.is_over:
                self._ask(attempt, step)
        over = []
        for attempt in list(self._under_way.values()):
            attempt.steps.tidy(round(now_s * _NS_PER_S))
            if attempt.steps.is_over:
                over.append(self._end(attempt))
        self.flush(now_s)
        return over

    def forget(self) -> None:
        """Another manager leads: what comes of these is none of this one's business."""
        for memory in (self._under_way, self._asked, self._again, self._out):
            memory.clear()

    def flush(self, now_s: float) -> None:
        """Send all orders that have been made."""
        for (host, began_s), steps in self._out.items():
            told_ns, heard_s = self._clocks.get(host, (0, now_s))
            until_ns = told_ns + round((began_s + ORDER_S - heard_s) * _NS_PER_S)
            for first in range(0, len(steps), MOST_OF_AN_ORDER):
                part = steps[first : first + MOST_OF_AN_ORDER]
                self.send(
                    host, MigrationOrder(host=host, epoch=self.epoch, until_ns=max(0, until_ns), steps=part)
                )
        self._out.clear()

    def _ask(self, attempt: Attempt, step: Step) -> None:
        self._numbers += 1
        self._asked[self._numbers] = attempt, step
        attempt.asked.add(self._numbers)
        end = attempt.connection.ends[step.end]
        lids = end.there.end.lids
        _, nic, dst_addr, qpn = end.name
        self._out[end.host, attempt.began_s].append(
            MigrationStep(
                number=self._numbers,
                nic=nic,
                dst_addr=dst_addr,
                qpn=qpn,
                lqpn=end.qp.lqpn,
                pid=end.qp.pid,
                dlid=lids.lid + attempt.number,
                lmc=lids.lmc,
                how=step.how,
            )
        )

    def _end(self, attempt: Attempt) -> Attempt:
        self._under_way.pop(attempt.key, None)
        for number in attempt.asked:
            self._asked.pop(number, None)
        return attempt
