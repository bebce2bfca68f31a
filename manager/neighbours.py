"""What a manager does with its pod's neighbours: it tells them of its hosts, and has its own probe theirs."""

import time
from collections.abc import Callable, Sequence

from cwdp.shared.bus.connection import Bus
from cwdp.shared.bus.messages import TraceReport
from manager.hosts.elsewhere import PodHost
from manager.pods.directory import Directory, hosts_told
from manager.probing.between_pods import Between, build_between
from manager.probing.schedule import Member
from manager.state import FleetState


class Neighbours(Directory):
    """The other pods, as far as they concern what a manager knows of its own.

    Args:
        bus: the manager's.
        state: what it knows.
    """

    def __init__(self, bus: Bus, state: FleetState) -> None:
        self._state, self._pod = state, bus.pod
        super().__init__(
            bus,
            state.members.elsewhere,
            hosts=self._own,
            leader=lambda: (state.leader.epoch, state.clock.timeline) if state.leads else None,
            seen=state.timelines.seen,
            on_traces=state.discovery.hear,
        )

    def hear_own_traces(self, report: TraceReport) -> None:
        """A host of this pod traced paths."""
        self._state.discovery.hear(report)
        self.pass_on(report)

    def between(self, members: Sequence[Member], seed: int) -> Callable[[], Between | None]:
        """What finds out whom members are to probe in other pods, None where there is nobody; a thread may call it."""
        others = self._state.members.elsewhere.members()
        return lambda: build_between(members, others, self._pod, seed) if others else None

    def _own(self) -> list[PodHost]:
        state = self._state
        return hosts_told(state.members, state.proven_hellos(), state.clock.line_of, time.monotonic())
