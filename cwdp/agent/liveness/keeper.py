"""Keeps the process that sends pulses (`cwdp.agent.liveness.process`) running, with the latest orders."""

from collections.abc import Iterable
from typing import Protocol

from cwdp.agent.helper import Helper
from cwdp.agent.liveness.process import PulseOrders
from cwdp.agent.liveness.pulses import PulseOrder
from cwdp.agent.liveness.watchedpaths import Way, WayKey
from cwdp.agent.liveness.ways import ways
from cwdp.agent.tracing.table import Found


class WatchingNic(Protocol):
    """See `cwdp.agent.nic.HostNic`."""

    def pulse_order(self, key_id: int) -> PulseOrder | None:
        """What its pulses are sent from; None while it has no dataplane."""

    def watched(self) -> set[WayKey]:
        """Its watched paths."""


class Traces(Protocol):
    """See `cwdp.agent.tracing.tracer.Tracing`."""

    @property
    def changes(self) -> int:
        """Grows with every change of what is known."""

    @property
    def known(self) -> list[Found]:
        """The hops of every path that has been traced."""


class PulseKeeper(Helper[PulseOrders]):
    """The pulse process as the agent sees it.

    Args:
        interval_ms: between two pulses over a path.
    """

    def __init__(self, interval_ms: float) -> None:
        super().__init__(
            "cwdp.agent.liveness.process", [str(interval_ms)], "pulse_restarts", PulseOrders([], [])
        )
        self._seen: tuple[int, set[WayKey]] = (-1, set())
        self._ways: list[Way] = []

    def order(self, nics: Iterable[WatchingNic], key_id: int, traces: Traces) -> None:
        """Have it send from these NICs, over paths that cross the links that the traces tell."""
        found = [(order, nic.watched()) for nic in nics if (order := nic.pulse_order(key_id)) is not None]
        seen = traces.changes, set().union(*(watched for _, watched in found))
        if seen != self._seen:
            self._seen, self._ways = seen, ways(traces.known, seen[1])
        self._want(PulseOrders([order for order, _ in found], self._ways))
