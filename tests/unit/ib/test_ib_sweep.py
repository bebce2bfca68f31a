"""What is found of a subnet, and which way packets go there by its tables."""

import pytest
from subnets import Node, Port, two_leaves, wire

from cwdp.ib.asking import Asker
from cwdp.ib.attributes import read_name
from cwdp.ib.snapshot import ends_of, snapshot
from cwdp.ib.sweep import End, Fabric, sweep
from cwdp.ib.tables import named, read_tables
from cwdp.shared.ib.routes import Routes


def swept(nodes: dict[str, Node], host: str = "h0") -> tuple[Fabric, Asker]:
    asker = Asker(Port(nodes[host]))
    return sweep(asker), asker


def routed(nodes: dict[str, Node]) -> tuple[Fabric, Routes]:
    fabric, asker = swept(nodes)
    return fabric, Routes(snapshot(fabric, read_tables(asker, fabric)))


def ways(nodes: dict[str, Node], src: str, dst: str) -> list[list[str] | None]:
    fabric, routes = routed(nodes)
    ends = ends_of(fabric)
    own = ends.index(End(nodes[src].guid, 1))
    leaves = [routes.way(own, nodes[dst].lid + i) for i in range(1 << nodes[dst].lmc)]
    return [None if one is None else named(fabric.nodes, [ends[row] for row in one]) for one in leaves]


def test_all_nodes_and_links_are_found_from_any_host() -> None:
    nodes = two_leaves(spines=3, hosts=4)
    for host in ("h0", "h7"):
        fabric, asker = swept(nodes, host)
        assert {node.name for node in fabric.nodes.values()} == nodes.keys()
        assert len(fabric.links) == 2 * (2 * 3 + 2 * 4)
        assert all(fabric.links[there] == here for here, there in fabric.links.items())
        assert fabric.silent == []
        assert asker.counters["timed_out"] == asker.counters["refused"] == 0


def test_ports_tell_their_lids_and_rates() -> None:
    fabric, _ = swept(two_leaves())
    host = next(node for node in fabric.nodes.values() if node.name == "h1")
    port = host.ports[1]
    assert (port.lid, port.lmc, port.width, port.widest) == (18, 1, 4, 4)
    assert port.rate_bps == 4 * 25_781_250_000 * 64 // 66
    leaf = next(node for node in fabric.nodes.values() if node.name == "l0")
    assert sorted(leaf.ports) == [0, 1, 2, 3, 4]


def test_each_lid_of_a_host_goes_by_another_spine() -> None:
    assert ways(two_leaves(), "h0", "h2") == [
        ["h0/1", "l0:3", "s0:2", "l1:1"],
        ["h0/1", "l0:4", "s1:2", "l1:1"],
    ]
    assert ways(two_leaves(), "h0", "h1") == [["h0/1", "l0:2"]] * 2


def test_tables_that_lead_nowhere_or_round_in_circles() -> None:
    nodes = two_leaves()
    lid = nodes["h2"].lid
    del nodes["l0"].table[lid]
    nodes["s1"].table[lid + 1] = 1
    assert ways(nodes, "h0", "h2") == [None, None]


def test_a_port_whose_far_end_is_silent_is_told() -> None:
    nodes = two_leaves()
    nodes["s1"].is_silent = True
    fabric, _ = swept(nodes)
    assert named(fabric.nodes, fabric.silent) == ["l0:4", "l1:4"]
    assert len(fabric.nodes) == len(nodes) - 1


def test_nothing_goes_through_a_host_with_two_ports() -> None:
    nodes = two_leaves()
    nodes["h0"].port_count = 2
    nodes["l1"].port_count = 5
    wire(nodes["h0"], 2, nodes["l1"], 5)
    for host in ("h0", "h3"):
        fabric, _ = swept(nodes, host)
        assert len(fabric.nodes) == len(nodes)
        assert sorted(fabric.nodes[nodes["h0"].guid].ports) == [1, 2]
        assert len(fabric.links) == 2 * (4 + 4 + 1)


def test_names_are_shown_as_they_can_be() -> None:
    assert read_name(b"gpu1 HCA-1" + bytes(54)) == "gpu1 HCA-1"
    assert read_name(b"\x1b[31mred\xff" + bytes(10)) == "?[31mred?"
    assert read_name(b"x" * 192) == "x" * 64
    assert read_name(bytes(192)) == ""


def test_each_lid_has_an_owner() -> None:
    nodes = two_leaves()
    nodes["l0"].table[nodes["l1"].lid] = 3  # the highest that any has
    fabric, routes = routed(nodes)
    ends = ends_of(fabric)
    found = {lid: ends[row] for lid, row in enumerate(routes.owner.tolist()) if row >= 0}
    assert found[nodes["h3"].lid + 1] == End(nodes["h3"].guid, 1)
    assert found[nodes["s1"].lid] == End(nodes["s1"].guid, 0)
    assert len(found) == 4 * 2 + 4


@pytest.mark.parametrize("dlid", [0, 5_000, 0xFFFF])
def test_a_lid_that_is_nobodys_has_no_way(dlid: int) -> None:
    nodes = two_leaves()
    fabric, routes = routed(nodes)
    assert routes.way(ends_of(fabric).index(End(nodes["h0"].guid, 1)), dlid) is None
