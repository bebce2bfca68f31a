"""An audit's rounds over a bus, with hosts that send in arithmetic."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from asynchronous import asynchronous

from cwdp.shared.bus.audits import LATE, FlowOrder, FlowReport, FlowTold
from manager.audit.results import Audit
from manager.audit.service import flow_round
from manager.audit.service.flow_round import Limits
from manager.audit.service.throughput import Throughput
from manager.audit.throughput.carried import Carried
from tools.sim.audit.carrying import NIC_BPS, Fabric

LASTS_S = 2.0


@dataclass
class Hosts:
    """Hosts that do as they are ordered, at once.

    Attributes:
        busy: NICs on which queue pairs send.
        silent: hosts that say nothing.
        ready_s: who is given less time is late.
    """

    fabric: Fabric
    busy: frozenset[str] = frozenset()
    silent: frozenset[str] = frozenset()
    ready_s: float = 0.0
    orders: list[list[FlowOrder]] = field(default_factory=list)
    throughput: Throughput | None = None
    pod: str = "main"

    async def publish_each(self, messages: Iterable[tuple[str, Any]]) -> None:
        orders = [order for _, order in messages]
        self.orders.append(orders)
        assert self.throughput is not None
        rows = {
            (f"{order.host}/{flow.nic}", flow.peer_addr, flow.sport): (order.host, flow.id)
            for order in orders
            for flow in order.flows
            if flow.sends
        }
        ways = self.throughput.course.ways
        of = {row: rows[name] for row, name in enumerate(ways.names) if name in rows}
        found: dict[str, list[FlowTold]] = {}
        for row, bps in self.fabric.carry(ways, list(of)).items():
            host, flow = of[row]
            told = self._told(row, flow, bps, orders[0].begin_s, forced=orders[0].force)
            found.setdefault(host, []).append(told)
        for order in orders:
            if order.host not in self.silent:
                report = FlowReport(host=order.host, number=order.number, flows=found.get(order.host, []))
                assert self.throughput.hear(report) == "ok"

    def _told(self, row: int, flow: int, bps: float, begin_s: float, *, forced: bool) -> FlowTold:
        assert self.throughput is not None
        ways = self.throughput.course.ways
        src, _ = ways.ends(row)
        if src in self.busy and not forced:
            return FlowTold(id=flow, trouble="queue pairs send on nic0")
        if begin_s < self.ready_s:
            return FlowTold(id=flow, trouble=LATE)
        return FlowTold(id=flow, carried_bytes=round(bps * LASTS_S / 8), took_s=LASTS_S)


async def _made(hosts: Hosts, *, force: bool = False) -> tuple[Audit, Carried]:
    fabric, limits = hosts.fabric, Limits(force=force)
    bus: Any = hosts
    hosts.throughput = Throughput(bus, fabric.ways(), fabric.owners, {}, limits, number=640)
    while not await hosts.throughput.go_on():
        pass
    return hosts.throughput.judged()


def _named(audit: Audit) -> list[tuple[str, str, str]]:
    return [(one.verdict, one.host, one.subject) for one in audit.results]


@asynchronous
async def test_a_fabric_that_is_well() -> None:
    hosts = Hosts(Fabric())
    audit, carried = await _made(hosts)
    assert _named(audit) == []
    assert (carried.filled, carried.links, carried.rounds) == (64, 64, len(hosts.orders))
    filled = f"were filled after {carried.filled_after} rounds of {carried.rounds};"
    assert f"64 of 64 links, one way each, {filled}" in carried.in_words()
    numbers = [{order.number for order in orders} for orders in hosts.orders]
    assert numbers == [{641 + i} for i in range(len(numbers))]


@asynchronous
async def test_a_slow_link() -> None:
    audit, _ = await _made(Hosts(Fabric(slow_bps={("l2", "p0s1"): 0.5 * NIC_BPS})))
    assert _named(audit) == [("fail", "fabric", "l2 > p0s1")]


@asynchronous
async def test_nics_in_use_take_no_part_unless_they_are_forced() -> None:
    busy = frozenset({"h3/nic0"})
    hosts = Hosts(Fabric(), busy=busy)
    audit, _ = await _made(hosts)
    (one,) = (result for result in audit.results if result.host == "h3")
    assert (one.verdict, one.reason) == ("unknown", "queue pairs send on nic0")
    last = {order.host for orders in hosts.orders[3:] for order in orders}
    assert "h3" not in last
    audit, _ = await _made(Hosts(Fabric(), busy=busy), force=True)
    assert _named(audit) == []


@asynchronous
async def test_hosts_that_are_late_get_more_time() -> None:
    hosts = Hosts(Fabric(hosts=2), ready_s=5.0)
    audit, carried = await _made(hosts)
    assert _named(audit) == []
    assert [orders[0].begin_s for orders in hosts.orders][:4] == [2.0, 4.0, 8.0, 8.0]
    assert carried.filled == carried.links


@asynchronous
async def test_a_host_that_says_nothing_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flow_round, "TELLING_S", -4.0)
    audit, _ = await _made(Hosts(Fabric(), silent=frozenset({"h5"})))
    assert [one.reason for one in audit.results if one.host == "h5"] == [flow_round.NOT_TOLD]
    assert {one.verdict for one in audit.results} == {"unknown"}


def test_no_round_no_report() -> None:
    bus: Any = SimpleNamespace(pod="main")
    fabric = Fabric(degree=0)
    throughput = Throughput(bus, fabric.ways(), fabric.owners, {}, Limits(), number=1)
    assert throughput.hear(FlowReport(host="h1", number=2, flows=[])) == "not_asked"
