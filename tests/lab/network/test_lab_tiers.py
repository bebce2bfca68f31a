"""Three tiers and rails carry packets as the design says."""

import itertools
import socket
from collections.abc import Iterator

import pytest
from conftest import lab_name, need_ecmp_seeds
from lab_traffic import address, hop

from tools.lab import Lab, LabSpec, faults, lifecycle
from tools.lab.lab import Host
from tools.lab.truth.ecmp import Stream, switches_of

pytestmark = pytest.mark.lab

FAMILIES = [socket.AF_INET, socket.AF_INET6]
PORTS = range(50_000, 50_060)


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    need_ecmp_seeds()
    name = lab_name("tiers")
    lifecycle.up(LabSpec(name=name, pods=2, leaves=2, spines=2, cores=2, hosts_per_leaf=1))
    try:
        yield Lab.open(name)
    finally:
        lifecycle.down(name)


def traced(lab: Lab, ends: tuple[Host, Host], family: int, port: int, *, hops: int) -> tuple[str, ...]:
    """The switches that answer for a flow."""
    v6 = family == socket.AF_INET6
    routers = {str(lab.topology.router_addresses(s)[v6]): s for s in lab.topology.switches}
    return tuple(routers[hop(*ends, family, port, place) or ""] for place in range(1, hops + 1))


@pytest.mark.parametrize("family", FAMILIES)
def test_every_hop_answers_and_ports_lead_over_every_way_between_pods(lab: Lab, family: int) -> None:
    source, target = lab.host("h1"), lab.host("h4")
    ways = {traced(lab, (source, target), family, port, hops=5) for port in PORTS}
    assert ways == set(lab.topology.ways("p1l1", "p2l2"))
    assert hop(source, target, family, 50_000, 6) == address(target.nics[0], family)
    near = {traced(lab, (source, lab.host("h2")), family, port, hops=3) for port in PORTS[:20]}
    assert near == set(lab.topology.ways("p1l1", "p1l2"))


def test_switches_choose_each_for_itself(lab: Lab) -> None:
    """With one seed for all, the flows that a leaf sends to one spine would all go on to the same core."""
    streams = [
        Stream("h1", lab.host("h1").nics[0].ipv4, lab.host("h3").nics[0].ipv4, port)
        for port in range(49_152, 49_652)
    ]
    ways = list(switches_of(lab, streams).values())
    counts = [ways.count(way) for way in lab.topology.ways("p1l1", "p2l1")]
    assert sum(counts) == len(streams)
    assert min(counts) > len(streams) / 8 / 2


def test_a_link_to_a_core_that_is_cut_is_left_and_used_again(lab: Lab) -> None:
    source, target = lab.host("h1"), lab.host("h3")

    def ways() -> set[tuple[str, ...]]:
        return {traced(lab, (source, target), socket.AF_INET, port, hops=5) for port in PORTS}

    faults.cut(lab.name, "p1s1-c1")
    try:
        assert ways() == {way for way in lab.topology.ways("p1l1", "p2l1") if way[1:3] != ("p1s1", "c1")}
    finally:
        faults.heal(lab.name, "p1s1-c1")
    assert ways() == set(lab.topology.ways("p1l1", "p2l1"))


def test_rails_meet_at_the_spines(spare_name: str) -> None:
    lifecycle.up(LabSpec(name=spare_name, leaves=4, spines=2, hosts_per_leaf=2, rails=4))
    lab = Lab.open(spare_name)
    one, other = lab.hosts
    assert [nic.leaf for nic in one.nics] == ["l1", "l2", "l3", "l4"] == [nic.leaf for nic in other.nics]
    for family, (i, nic) in itertools.product(FAMILIES, enumerate(other.nics)):
        target = Host(other.name, other.netns, (nic,), other.mgmt_address, other.clock_file)
        hops = 1 if i == 0 else 3
        assert traced(lab, (one, target), family, 50_000, hops=hops)[-1] == nic.leaf
        assert hop(one, target, family, 50_000, hops + 1) == address(nic, family)
