"""What an agent tells of an audit: facts and walks together, or nothing."""

import asyncio
import socket
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from cwdp.agent.auditing import audits
from cwdp.agent.auditing.audits import Audits
from cwdp.agent.config import AgentConfig
from cwdp.agent.links import LinkTable
from cwdp.agent.probing.prober import Told
from cwdp.agent.steering.steering import DesiredSteering
from cwdp.shared.audit.asks import Ask, Asked, AskedNic
from cwdp.shared.audit.facts import HostFacts, Walk, Walked
from cwdp.shared.bus.audits import AuditOrder, facts_of

WALK = Walk(nic="nic0", dst_addr="10.2.0.1", sport=1, size_bytes=1_500, tos=0, hops=1)
FACTS = HostFacts(host="h1", taken_s=1.0, subjects=[])


class Bus:
    """Keeps what is said."""

    def __init__(self) -> None:
        self.said: list[Any] = []
        self.order: Any = None

    def hear(self, kind: str, _of: type, handler: Any) -> None:
        if kind == "audit":
            self.order = handler

    def say(self, _kind: str, message: Any) -> None:
        self.said.append(message)


class Nic:
    """Is answered always."""

    ifname = "nic0"

    def address(self, family: socket.AddressFamily) -> str | None:
        return "10.0.0.1" if family == socket.AF_INET else None

    def ask(self, asked: Sequence[tuple[str, int]], _now_ns: int, tell: Told) -> bool:
        tell(np.ones(len(asked), bool), np.ones(len(asked), bool))
        return True


class Setup:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.bus = Bus()
        links = LinkTable(lambda _name: None)
        config = AgentConfig(nics=["nic0"], host="h1")
        steering = DesiredSteering([], lambda *_: None)
        self.audits = Audits(config, self.bus, links, steering, [Nic()])  # type: ignore[arg-type]
        self.facts: list[HostFacts | Exception] = []
        self.walk_s = 0.0
        self.cancelled = False
        monkeypatch.setattr(audits, "collect", self._collect)
        monkeypatch.setattr(self.audits._walks, "make", self._make)

    async def _collect(self, _wanted: object) -> HostFacts:
        await asyncio.sleep(0.01)
        found = self.facts.pop(0) if self.facts else FACTS
        if isinstance(found, Exception):
            raise found
        return found

    async def _make(self, walks: list[Walk]) -> list[Walked]:
        try:
            await asyncio.sleep(self.walk_s)
        except asyncio.CancelledError:
            self.cancelled = True
            raise
        return [Walked(walk=walk, trouble="none of it") for walk in walks]

    def audit(self, *orders: AuditOrder, seconds: float = 0.2) -> None:
        async def for_a_moment() -> None:
            task = asyncio.create_task(self.audits.run())
            for order in orders:
                self.bus.order(order)
                await asyncio.sleep(seconds)
            assert not task.done()
            task.cancel()

        asyncio.run(for_a_moment())


@pytest.fixture
def setup(monkeypatch: pytest.MonkeyPatch) -> Setup:
    return Setup(monkeypatch)


def test_walks_are_told_with_the_facts(setup: Setup) -> None:
    setup.walk_s = 0.05
    setup.audit(AuditOrder(host="h1", number=7, walks=[WALK]))
    [report] = setup.bus.said
    assert (report.number, report.host) == (7, "h1")
    told = facts_of([report.facts])
    assert told.walks == [Walked(walk=WALK, trouble="none of it")]
    assert told.subjects == FACTS.subjects
    assert setup.audits.counters["audits_told"] == 1


def test_whom_nics_reach_is_told_with_the_facts(setup: Setup) -> None:
    ask = Ask(nics=["nic0"], ipv4=bytes([10, 0, 0, 2, 10, 0, 0, 3]), ports=5)
    setup.audit(AuditOrder(host="h1", number=7, ask=ask))
    [report] = setup.bus.said
    told = facts_of([report.facts])
    assert told.asked == Asked(nics=[AskedNic(nic="nic0", asked=10, answered=10)])
    assert setup.audits.counters["asks_sent"] == setup.audits.counters["asks_answered"] == 10


def test_an_order_without_walks(setup: Setup) -> None:
    setup.audit(AuditOrder(host="h1", number=7))
    [report] = setup.bus.said
    assert facts_of([report.facts]) == FACTS


@pytest.mark.parametrize("error", [OSError("no process"), ValueError("too much")], ids=["os", "value"])
def test_facts_that_fail_end_the_walks_and_the_next_audit_is_made(setup: Setup, error: Exception) -> None:
    setup.facts, setup.walk_s = [error], 0.1
    setup.audit(*(AuditOrder(host="h1", number=number, walks=[WALK]) for number in (7, 8)))
    assert setup.cancelled
    assert [report.number for report in setup.bus.said] == [8]
    assert (setup.audits.counters["audits_failed"], setup.audits.counters["audits_told"]) == (1, 1)
