"""The faults of all subnets that readers tell of. No I/O."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from cwdp.shared.ib.counters import Growth
from cwdp.shared.ib.subnet import Subnet
from manager.fabric.routes import DirectedLink
from manager.faults.finding import Findings
from manager.faults.watch import Note
from manager.ib.faults.trust import REASONS
from manager.ib.faults.watch import SubnetFaults
from manager.ib.subnets import SubnetNow


@dataclass(eq=False)
class _Judged:
    faults: SubnetFaults
    subnet: Subnet | None = None
    growth: Growth | None = None


class SubnetWatch:
    """Judges each subnet as soon as something new is told of it.

    Args:
        findings: where what is found is kept, beside what else is wrong in the fleet.
        note: keeps events for people.
    """

    def __init__(self, findings: Findings, note: Note) -> None:
        self._findings, self._note = findings, note
        self._judged: list[_Judged] = []
        self._refused_before: Counter[str] = Counter(dict.fromkeys(REASONS, 0))

    @property
    def refused(self) -> Counter[str]:
        """What was not taken in, by reason (`manager.ib.faults.trust.REASONS`)."""
        total = self._refused_before.copy()
        for one in self._judged:
            total.update(one.faults.trust.refused)
        return total

    @property
    def dead_links(self) -> frozenset[DirectedLink]:
        """Those that are down in any subnet, each way by itself."""
        return frozenset().union(*(one.faults.dead_links for one in self._judged))

    def step(self, now: Sequence[SubnetNow], now_s: float) -> None:
        """Take in what is known now.

        Args:
            now: each subnet once.
            now_s: the manager's monotonic clock.
        """
        kept: list[_Judged] = []
        for told in now:
            one = self._of(told.subnet, kept)
            kept.append(one)
            growth = told.growth if told.growth is not one.growth else None
            if told.is_fresh and (growth is not None or told.subnet is not one.subnet):
                one.subnet, one.growth = told.subnet, told.growth
                one.faults.hear(told.subnet, told.names, growth, now_s)
        for one in self._judged:
            if one not in kept:
                one.faults.end()
                self._refused_before.update(one.faults.trust.refused)
        self._judged = kept

    def _of(self, subnet: Subnet, taken: Sequence[_Judged]) -> _Judged:
        for one in self._judged:
            is_taken = any(one is other for other in taken)
            if not is_taken and one.subnet is not None and not one.subnet.ends.isdisjoint(subnet.ends):
                return one
        return _Judged(SubnetFaults(self._findings, self._note))
