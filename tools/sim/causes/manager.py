"""What the manager makes of a drawn job as time goes by: its own rules, over what hosts would have told by then. No I/O."""

from collections.abc import Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import cast

import numpy as np

from cwdp.shared.bus.collectives import (
    CALL_ROW,
    FUNCTIONS,
    OVER,
    PEER_ROW,
    WAITS,
    CollectiveReport,
    Communicator,
)
from cwdp.shared.bus.messages import host_of
from cwdp.shared.bus.packing import row_bytes
from manager.causes.cause import Cause
from manager.causes.watch import CauseWatch
from manager.collectives.store import CollectiveStore
from manager.hosts.members import Members
from manager.jobs.names import named
from manager.jobs.steps import finish
from manager.jobs.watch import JobWatch
from manager.queue_pairs.bursts import BurstStore
from manager.queue_pairs.traffic import Traffic
from tools.sim.causes.drawn import MINE, Drawn
from tools.sim.jobs.running import Call
from tools.sim.jobs.world import EPOCH_NS

LOOK_S = 1.0
TOLD_S = 1.0
"""So long after a burst or a call is over the manager knows of it. In a lab it looks every 0.6 to 1 s, and knows as late."""


@dataclass(frozen=True)
class Told:
    """A cause and when it was told, in seconds from the beginning."""

    at_s: float
    cause: Cause


class Manager:
    """Looks at a job again and again.

    Args:
        drawn: the job.
        plugged: whether its ranks tell of their calls.
        seen: whether its packets pass the hosts' network stack, so that bursts are told.
    """

    def __init__(self, drawn: Drawn, *, plugged: bool, seen: bool = True) -> None:
        self._drawn, self._now_ns = drawn, EPOCH_NS
        self._bursts, self._calls = BurstStore(), CollectiveStore()
        world = drawn.world
        self._rows = {
            nic: rows[np.argsort(rows["end_ns"], kind="stable")] for nic, rows in world.rings.items() if seen
        }
        self._told_of = sorted(_reports(world.calls[0]), key=lambda each: each[0]) if plugged else []
        traffic = SimpleNamespace(
            timeline_ns=lambda _now_s: self._now_ns,
            bursts=self._bursts,
            verbs=SimpleNamespace(each=lambda: ()),
        )
        members = SimpleNamespace(nics_by_packed_address=world.owners)
        self._jobs = JobWatch(cast(Traffic, traffic), cast(Members, members), self._calls.bursts.told)
        self._causes = CauseWatch(
            lambda *_args, **_more: None, lambda: lambda _: drawn.links(self._now_ns), self._calls
        )

    def run(self, first_s: float) -> list[Told]:
        """What it tells until the end.

        Args:
            first_s: when it looks first.
        """
        found: list[Told] = []
        known_s = 0.0
        for now_s in np.arange(first_s, self._drawn.ends_s, LOOK_S).tolist():
            self._hear(known_s, now_s - TOLD_S)
            known_s = now_s - TOLD_S
            self._now_ns = EPOCH_NS + round(now_s * 1e9)
            infer = self._jobs.due(now_s)
            if infer is not None:
                self._jobs.take(finish(infer))
            self._causes.take(
                self._causes.due(named(self._jobs.jobs), now_s, self._now_ns, self._jobs.strays)(), now_s
            )
            found += [Told(now_s, each.cause) for each in self._causes.current if each.number > len(found)]
        return found

    def _hear(self, since_s: float, until_s: float) -> None:
        since_ns, until_ns = (EPOCH_NS + round(at_s * 1e9) for at_s in (since_s, until_s))
        for nic, rows in self._rows.items():
            first, last = np.searchsorted(rows["end_ns"], (since_ns, until_ns))
            self._bursts.hear([nic], rows[first:last], [last - first], until_ns)
        while self._told_of and self._told_of[0][0] < until_ns:
            _, report = self._told_of.pop(0)
            self._calls.hear(report, {report.host}, until_ns)


def _reports(ranks: list[list[Call]]) -> Iterator[tuple[int, CollectiveReport]]:
    """What the ranks of a ring tell, and when on the timeline a call of theirs was over."""
    for rank, calls in enumerate(ranks):
        for seq, call in enumerate(calls):
            comm = Communicator(
                id=7, name="data", rank=rank, ranks=len(ranks), nodes=len(ranks), pid=100 + rank
            )
            row, peers = np.zeros(1, CALL_ROW), np.zeros(2, PEER_ROW)
            row["function"], row["flags"], row["seq"] = FUNCTIONS.index("AllReduce"), OVER, seq
            row["ops"], row["bytes"] = 1, 10**7
            row["start_ns"], row["end_ns"] = EPOCH_NS + call.start_ns, EPOCH_NS + call.end_ns
            to = (rank + 1) % len(ranks)
            peers["peer"], peers["is_send"], peers["chunks"], peers["bytes"] = (
                (to, rank - 1),
                (1, 0),
                1,
                10**7,
            )
            peers["peer"] %= len(ranks)
            taken = ranks[to][seq].waited_ns if seq < len(ranks[to]) else {}
            peers["wait_ns"][0, WAITS.index("peer")] = sum(taken.values())
            report = CollectiveReport(
                host=host_of(MINE[rank]),
                comms=[comm],
                calls=row_bytes(row),
                peers=row_bytes(peers),
                chunks=b"",
            )
            yield EPOCH_NS + call.end_ns, report
