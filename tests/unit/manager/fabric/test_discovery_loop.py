"""Agents' traces and the manager's discovery together, in arithmetic, while links die and come back."""

import random
from collections.abc import Callable

import pytest
from fabric_fakes import FakeClos, FakeNic
from test_fabric_ports import Fleet

from cwdp.agent.tracing.packets import Answer, FlowPath, HopProbe
from cwdp.agent.tracing.table import Found, TraceTable
from cwdp.shared.bus.messages import Trace, TraceReport

STEP_S = 0.02
STEPS_A_REPORT = 12
UNREACHABLE_S = 1.0
"""Linux answers each peer once so often to a port that nobody serves."""
DEADLINE_S = 60.0


class World:
    """A fleet whose agents really trace, through a fabric that loses some answers."""

    def __init__(self, clos: FakeClos, loss: float, seed: int) -> None:
        self.clos, self.loss, self.rng = clos, loss, random.Random(seed)
        self.fleet = Fleet(clos)
        self.now_s = 0.0
        self.tables = {host: TraceTable(4791, random.Random(f"{host} {seed}")) for host in clos.hosts}
        self.at = {nic.address: nic for nic in clos.all_nics}
        self.refused_s: dict[tuple[str, str], float] = {}
        self._order()

    def run(self, seconds: float, until: Callable[[], bool] = lambda: False) -> bool:
        """Let time pass, until something holds; whether it did."""
        for step in range(round(seconds / STEP_S)):
            for host, table in self.tables.items():
                for probe in table.step(self.now_s):
                    self._answer(host, table, probe)
            self.now_s += STEP_S
            if step % STEPS_A_REPORT == 0:
                self._report()
                if until():
                    return True
        return False

    def is_known(self) -> bool:
        """Whether the links of all paths are the fabric's."""
        routes = self.fleet.state.fabric.routes
        used = {routes.links[number] for links in routes.paths.values() for number in links}
        return used == self.clos.links()

    def wrong(self) -> int:
        """Paths that are not what they are taken for."""
        routes = self.fleet.state.fabric.routes
        return sum(
            [routes.links[n].b for n in links][:-1]
            != self.clos.way(self._nic(name.src), self.at[name.dst_addr], name.sport)
            for name, links in routes.paths.items()
        )

    def _nic(self, name: str) -> FakeNic:
        return next(nic for nic in self.clos.all_nics if nic.name == name)

    def _answer(self, host: str, table: TraceTable, probe: HopProbe) -> None:
        path = probe.path
        way = self.clos.way(self.clos.hosts[host][0], self.at[path.destination], path.sport)
        if self.rng.random() < self.loss:
            return
        if probe.hop_limit <= len(way):
            table.hear(Answer(way[probe.hop_limit - 1], "expired", probe.packet))
        elif self.now_s - self.refused_s.get((host, path.destination), -9.0) >= UNREACHABLE_S:
            self.refused_s[host, path.destination] = self.now_s
            table.hear(Answer(path.destination, "unreachable", probe.packet))

    def _report(self) -> None:
        state = self.fleet.state
        for host, table in self.tables.items():
            traces = [_trace(found) for found in table.take_found()]
            if traces:
                state.discovery.hear(TraceReport(host=host, traces=traces))
        state.note_fabric(state.discovery.learn(self.now_s))
        changed = state.discover(self.now_s)
        self.fleet.documents |= {document.host: document for document in changed}
        if changed:
            self._order()

    def _order(self) -> None:
        for host, document in self.fleet.documents.items():
            source = self.clos.hosts[host][0].address
            self.tables[host].want(
                [FlowPath(o.nic, source, o.dst_addr, sport) for o in document.traces for sport in o.sports]
            )


def _trace(found: Found) -> Trace:
    path = found.path
    return Trace(
        nic=path.ifname,
        dst_addr=path.destination,
        sport=path.sport,
        hops=list(found.hops),
        reached=found.reached,
        local_ns=0,
    )


@pytest.mark.parametrize(("loss", "seed"), [(0.0, 1), (0.05, 2), (0.2, 3)])
def test_routes_follow_links_that_die_and_come_back(loss: float, seed: int) -> None:
    world = World(FakeClos(leaves=3, spines=3, hosts_per_leaf=2), loss, seed)
    assert world.run(DEADLINE_S, world.is_known)
    world.run(8.0)
    for link in (("10.254.1.1", "10.254.3.2"), ("10.254.1.3", "10.254.3.1")):
        world.clos.dead.add(link)
        assert world.run(DEADLINE_S, world.is_known)
        assert world.run(DEADLINE_S, lambda: world.wrong() == 0)
        world.clos.dead.clear()
        assert world.run(DEADLINE_S, world.is_known)
        assert world.run(DEADLINE_S, lambda: world.wrong() == 0)
    assert max(len(table) for table in world.tables.values()) <= 5 * 48
    assert [event.kind for event in world.fleet.state.events if event.kind.startswith("paths")] == []
