"""The rounds of an audit's throughput over the bus: hosts are ordered to send, what they tell chooses the next."""

import asyncio
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from cwdp.shared.bus.audits import FlowReport
from cwdp.shared.bus.connection import Bus
from cwdp.shared.bus.subjects import down
from manager.audit.results import Audit
from manager.audit.service.flow_round import LASTS_S, FlowRound, Limits
from manager.audit.service.running import Heard
from manager.audit.throughput.carried import Carried
from manager.audit.throughput.course import MOST_OF_ALL, Course, Round
from manager.audit.throughput.judged import carried, judged
from manager.audit.throughput.ways import Ways
from manager.fabric.wiring import address_of_each

ROUNDS = 64
"""An audit has fewer; so many numbers of orders are its own."""

MOST_BEGIN_S = 16.0
USUAL_TELLING_S = 2.0
MOST_S = MOST_OF_ALL * (Limits().begin_s + LASTS_S + USUAL_TELLING_S)

STRIKES = 2
"""A NIC that could not send, or receive, in so many rounds takes no part any more."""

KIND = "audit-flows"


@dataclass
class _Nics:
    """Who could not send, or receive, in so many rounds one after the other, and why."""

    failed: Counter[tuple[str, bool]] = field(default_factory=Counter)
    refused: dict[str, str] = field(default_factory=dict)

    def ran(self, nic: str, *, sends: bool) -> None:
        """A flow of it was measured."""
        self.failed[nic, sends] = 0

    def did_not(self, nic: str, why: str, *, sends: bool) -> None:
        """One could not be."""
        self.failed[nic, sends] += 1
        if self.failed[nic, sends] >= STRIKES:
            self.refused[nic] = why


class Throughput:
    """One audit's.

    Args:
        bus: to tell hosts by.
        ways: the paths.
        owners: the NIC of each address.
        speeds_bps: of NICs, as far as they are known.
        limits: what people allow.
        number: of the audit's first round.
    """

    def __init__(
        self,
        bus: Bus,
        ways: Ways,
        owners: Mapping[str, str],
        speeds_bps: Mapping[str, int],
        limits: Limits,
        *,
        number: int,
    ) -> None:
        self._bus, self._ways, self._limits, self._number = bus, ways, limits, number
        self._addresses = address_of_each(owners)
        self.course = Course(ways, speeds_bps, number, is_capped=limits.cap_bps > 0)
        self._rounds = self.course.rounds()
        self._round: FlowRound | None = None
        self._nics = _Nics()

    @property
    def left_s(self) -> float:
        """It takes at most so long yet."""
        return (MOST_OF_ALL - self.course.done) * (self._limits.begin_s + LASTS_S + USUAL_TELLING_S)

    def hear(self, report: FlowReport) -> Heard:
        """A host tells what became of its flows."""
        return "not_asked" if self._round is None else self._round.hear(report)

    async def go_on(self) -> bool:
        """Begin the next round if the one under way is over; whether there is none any more."""
        if self._round is not None and not self._round.is_over(time.monotonic()):
            return False
        planned = await asyncio.to_thread(self._next)
        if planned is None:
            self._round = None
            return True
        self._number += 1
        self._round = FlowRound(
            self._number,
            self._ways,
            planned.rows,
            self._addresses,
            self._limits,
            began_s=time.monotonic(),
        )
        orders = self._round.orders()
        await self._bus.publish_each((down(self._bus.pod, order.host, KIND), order) for order in orders)
        return False

    def _next(self) -> Round | None:
        """The next round by what the last one has shown."""
        try:
            if self._round is None:
                return next(self._rounds)
            return self._rounds.send(self._learned(self._round))
        except StopIteration:
            return None

    def _learned(self, done: FlowRound) -> dict[int, float]:
        bps = done.bps()
        if done.was_late:
            self._limits = replace(self._limits, begin_s=min(2 * self._limits.begin_s, MOST_BEGIN_S))
        for src, dst in map(self._ways.ends, bps):
            self._nics.ran(src, sends=True)
            self._nics.ran(dst, sends=False)
        for row, (nic, why) in done.troubles().items():
            self._nics.did_not(nic, why, sends=nic == self._ways.ends(row)[0])
        for nic in self._nics.refused:
            self.course.bar(nic)
        return bps

    def judged(self) -> tuple[Audit, Carried]:
        """What it came to, once it is over."""
        results, passed = judged(self.course, self._nics.refused, self._limits.cap_bps)
        return Audit(results=results, hosts={}, passed=passed, not_applicable={}), carried(
            self.course, self._limits.cap_bps
        )
