"""What a reader says of a subnet as it changes: whole, its tables, its counters. The subnet is in memory."""

import dataclasses
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from cwdp.agent.ib.orders import IbOrder
from cwdp.agent.ib.reading import SWEEP_S, SubnetReader
from cwdp.ib.asking import Asker
from cwdp.ib.polling import MOST_IN_VAIN
from cwdp.shared.ib.names import Names
from cwdp.shared.ib.reports import AGAIN_S, IbGrowth, IbSubnet, IbTables
from cwdp.shared.ib.subnet import Subnet
from manager.ib.subnets import Subnets

sys.path.append(str(Path(__file__).parents[2] / "ib"))

from subnets import Node, Port, two_leaves, wire


class World:
    """A subnet, its reader, and a manager that hears it."""

    def __init__(self, nodes: Mapping[str, Node], host: str = "h0") -> None:
        self.nodes, self.port, self.now_s = nodes, Port(nodes[host]), 0.0
        self.asker = Asker(self.port)
        self.reader = SubnetReader(self.asker, IbOrder(host=host), 1, lambda: self.now_s)
        self.manager = Subnets()
        self.said: list[IbSubnet | IbTables | IbGrowth] = []

    def run(self, seconds: float = 0.5) -> list[type]:
        """What is said in so long."""
        hear = {kind: take for _, kind, take in self.manager.hears()}
        said = []
        for _ in range(round(seconds / 0.5)):
            self.reader.step()
            while self.reader.waiting:
                message = self.reader.waiting.popleft()
                hear[type(message)](message, self.now_s)
                said.append(type(message))
            self.now_s += 0.5
        return said

    @property
    def subnet(self) -> Subnet:
        (now,) = self.manager.now
        return now.subnet


@pytest.fixture
def world() -> World:
    made = World(two_leaves())
    made.run(2.0)
    return made


def unwire(a: Node, port: int) -> None:
    b, at = a.wires.pop(port)
    del b.wires[at]


def test_it_is_told_once_while_nothing_changes(world: World) -> None:
    assert len(world.subnet.guids) == 8
    said = world.run(10.0)
    assert IbSubnet not in said
    assert IbTables not in said
    assert said.count(IbGrowth) in (9, 10, 11)
    assert IbSubnet in world.run(AGAIN_S)
    assert world.reader.counters["ib_sweeps"] == 1
    world.run(SWEEP_S)
    assert world.reader.counters["ib_sweeps"] > 1


def test_a_link_that_is_gone_is_told_with_the_next_look(world: World) -> None:
    unwire(world.nodes["l0"], 3)
    assert IbSubnet in world.run()
    assert len(world.subnet.links) == 2 * 2 + 4 - 1


def test_nothing_behind_a_link_that_is_gone_is_asked_for_in_vain(world: World) -> None:
    before = world.asker.counters["timed_out"]
    unwire(world.nodes["h0"].wires[1][0], 3)
    world.run()
    unwire(world.nodes["h0"].wires[1][0], 4)
    world.run()
    assert world.asker.counters["timed_out"] == before
    assert set(world.subnet.names) == {"h0", "h1", "l0"}


def test_a_host_that_comes_is_told(world: World) -> None:
    new = Node("new mlx5_0", 0x9000, False, 1, lid=60)
    leaf = world.nodes["l1"]
    leaf.port_count += 1
    wire(leaf, 5, new, 1)
    world.run(SWEEP_S + 1.0)
    assert "new mlx5_0" in world.subnet.names


def test_tables_that_change_are_told_alone_within_a_second(world: World) -> None:
    world.nodes["l0"].table[20] = 4
    said = world.run(1.5)
    assert IbTables in said
    assert IbSubnet not in said
    row = [world.subnet.names[node] for node in world.subnet.switches].index("l0")
    assert world.subnet.tables[row, 20] == 4


def test_a_table_that_grows_is_told(world: World) -> None:
    world.nodes["l0"].table[500] = 1
    world.run(1.5)
    row = [world.subnet.names[node] for node in world.subnet.switches].index("l0")
    assert world.subnet.tables[row, 500] == 1


def test_a_port_with_another_lid_is_told(world: World) -> None:
    world.nodes["h3"].lid = 40
    assert IbSubnet in world.run()
    assert world.reader.counters["ib_sweeps"] == 1
    assert 40 in world.subnet.ports["lid"]


def test_a_node_that_stops_answering_is_silent_and_comes_back(world: World) -> None:
    world.nodes["h3"].is_silent = True
    world.run()
    assert [Names(world.subnet).ports[row] for row in world.subnet.silent] == ["l1:2"]
    world.nodes["h3"].is_silent = False
    world.run(11.0)
    assert world.subnet.silent == ()
    assert len(world.subnet.guids) == 8


@pytest.mark.parametrize(
    ("states", "said"),
    [
        ({"h1": 3}, []),
        ({"h1": 3, "h2": 2}, []),
        ({"h1": 2, "h2": 2}, ["no subnet manager is the master: h1, h2 wait or look around"]),
        ({"h1": 3, "h3": 3}, ["several subnet managers are masters: h1, h3"]),
        ({}, []),
    ],
)
def test_of_subnet_managers_one_should_be_the_master(states: Mapping[str, int], said: list[str]) -> None:
    nodes = two_leaves()
    for node in nodes.values():
        node.sm_lid = nodes["h1"].lid
    for name, state in states.items():
        nodes[name].sm_state = state
    world = World(nodes)
    world.run()
    assert world.reader.doubts() == said


def test_ports_that_disagree_and_lids_that_two_have_are_said() -> None:
    nodes = two_leaves()
    for node in nodes.values():
        node.sm_lid = 18
    nodes["h3"].lid, nodes["h2"].sm_lid = nodes["h1"].lid, 20
    world = World(nodes)
    world.run()
    assert world.reader.doubts() == [
        "ports know different subnet managers: LIDs 18, 20",
        f"LIDs that two ports have: {nodes['h1'].lid}",
    ]


def test_no_subnet_manager_is_said() -> None:
    nodes = two_leaves()
    world = World(nodes)
    world.run()
    assert world.reader.doubts() == [
        "no subnet manager: no port knows one, start opensm or the switches' own"
    ]


def test_two_nodes_with_one_guid_are_said_and_survived() -> None:
    nodes = two_leaves()
    nodes["h3"].guid = nodes["h2"].guid
    world = World(nodes)
    world.run(3.0)
    assert any("two nodes have one GUID" in doubt for doubt in world.reader.doubts())
    assert world.manager.results["not_sane"] == 0
    assert len(world.subnet.guids) == 7


@pytest.mark.parametrize("seed", range(10))
def test_whatever_happens_the_manager_knows_what_there_is_in_the_end(seed: int) -> None:
    draw = np.random.default_rng(seed)
    nodes = two_leaves(spines=3, hosts=3)
    world = World(nodes, "h1")
    gone: list[tuple[Node, int, Node, int]] = []
    for _ in range(30):
        world.run(float(draw.choice([0.5, 1.0, 2.0])))
        switch = nodes[str(draw.choice(["l0", "l1"]))]
        port = int(draw.integers(1, switch.port_count + 1))
        what = draw.integers(3)
        if what == 0 and port in switch.wires and switch.wires[port][0] is not nodes["h1"]:
            far, at = switch.wires[port]
            unwire(switch, port)
            gone.append((switch, port, far, at))
        elif what == 1 and gone:
            wire(*gone.pop(int(draw.integers(len(gone)))))
        else:
            switch.table[int(draw.integers(1, 60))] = port
    world.run(SWEEP_S)
    fresh = World(nodes, "h1")
    fresh.run(2.0)
    for name in ("guids", "ports", "tables"):
        assert np.array_equal(getattr(world.subnet, name), getattr(fresh.subnet, name)), name
    assert world.manager.results["not_sane"] == 0
    assert dataclasses.is_dataclass(world.subnet)


@pytest.mark.parametrize("after", [5, 40, 90, 150, 250])
def test_nothing_is_asked_for_long_behind_a_link_that_goes_while_the_subnet_is_swept_again(
    after: int,
) -> None:
    """All of a leaf is behind it, and is reached by another way after that."""
    nodes = two_leaves(spines=2, hosts=30)
    world = World(nodes)
    world.run(1.0)
    world.now_s += SWEEP_S
    at, before = len(world.port.asked) + after, world.asker.counters["timed_out"]
    world.port.before_send = lambda: unwire(nodes["l1"], 31) if len(world.port.asked) == at else None
    world.run(1.0)
    assert world.asker.counters["timed_out"] - before <= 2 * MOST_IN_VAIN
    assert len(world.subnet.guids) == len(nodes)
    assert len(world.subnet.links) == 2 * 2 + 60 - 1
