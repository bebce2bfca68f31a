"""Steps of migrations in the process for the verbs shim: each is passed to its program, and its answer on. No I/O of its own.

Which step comes when only the leader knows (`manager/ib/migration`): both ends must have loaded before one migrates. The shim begins
nothing after a step's deadline, and takes no step that its device is not in the state for.
"""

import errno
from collections import Counter
from typing import NamedTuple

from cwdp.agent.verbs.clients import Clients
from cwdp.agent.verbs.queuepairs import Qp, QueuePairs
from cwdp.rdma import shimwire
from cwdp.rdma.shimwire import How, Moved
from cwdp.shared.verbs import MigrationAnswer, MigrationOrder, MigrationStep

LATE_NS = 500_000_000
"""A program that has not answered so long after the deadline does not: what it has begun by then takes milliseconds."""

MOST_ASKED = 16_384

COUNTERS = ("migration_steps", "migration_steps_done", "migration_steps_refused", "migration_answers_unasked")

_HOW = {"load": How.LOAD, "migrate": How.MIGRATE}


class _Asked(NamedTuple):
    qp: Qp
    step: MigrationStep
    until_ns: int


class Steps:
    """All that are under way.

    Args:
        queue_pairs: those of the host.
        counters: of COUNTERS.
    """

    def __init__(self, queue_pairs: QueuePairs, counters: Counter[str]) -> None:
        self._queue_pairs, self._counters = queue_pairs, counters
        self._asked: dict[int, _Asked] = {}
        self._numbers = 0
        self._answers: list[MigrationAnswer] = []

    def order(self, order: MigrationOrder, clients: Clients, now_ns: int) -> None:
        """Have queue pairs take these steps."""
        for step in order.steps:
            self._counters["migration_steps"] += 1
            qp = self._meant(step)
            if now_ns > order.until_ns:
                self._answer(step, errno.ETIMEDOUT)
            elif qp is None:
                self._answer(step, errno.ENOENT)
            elif len(self._asked) >= MOST_ASKED:
                self._answer(step, errno.EAGAIN)
            else:
                self._numbers += 1
                self._asked[self._numbers] = _Asked(qp, step, order.until_ns)
                to = step.dlid, step.lmc
                data = shimwire.migrate(qp.name, self._numbers, order.until_ns, to, _HOW[step.how])
                clients.send(qp.client, qp.name, data)

    def hear(self, qp: Qp, moved: Moved) -> bool:
        """A program says what came of a step; whether it was asked."""
        asked = self._asked.get(moved.number)
        if asked is None or asked.qp is not qp:
            self._counters["migration_answers_unasked"] += 1
            return False
        del self._asked[moved.number]
        step = asked.step
        if not moved.error:
            qp.alternate = step.dlid if step.how == "load" else 0
            qp.sport = step.dlid if step.how == "migrate" else qp.sport
        self._answer(step, min(moved.error, 4_095), qp)
        return True

    def tidy(self, clients: Clients, now_ns: int) -> None:
        """Give up steps that nobody has answered."""
        for number, (qp, step, until_ns) in list(self._asked.items()):
            if self._queue_pairs.of(qp.client, qp.name) is not qp:
                del self._asked[number]
                self._answer(step, errno.ENOENT)
            elif now_ns - until_ns > LATE_NS:
                del self._asked[number]
                clients.forget(qp.client, qp.name)
                self._answer(step, errno.ETIMEDOUT, qp)

    def has_answers(self) -> bool:
        """Whether there are any to take."""
        return bool(self._answers)

    def take_answers(self) -> list[MigrationAnswer]:
        """Those since the last time."""
        taken, self._answers = self._answers, []
        return taken

    def _meant(self, step: MigrationStep) -> Qp | None:
        for qp in self._queue_pairs.between((step.nic, step.dst_addr)):
            if (qp.name[1], qp.dest_qpn, qp.client.pid) == (step.lqpn, step.qpn, step.pid) and qp.by_lid:
                return qp
        return None

    def _answer(self, step: MigrationStep, error: int, qp: Qp | None = None) -> None:
        self._counters["migration_steps_refused" if error else "migration_steps_done"] += 1
        self._answers.append(MigrationAnswer(step.number, error))
        if qp is not None:
            qp.refused = error
            self._queue_pairs.change(qp)
