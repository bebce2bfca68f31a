"""The fabric as a value: addresses, links, routes, clocks and quantities, without a kernel."""

from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cwdp.errors import ConfigError, LabError
from cwdp.shared.testclock import RATE_ONE
from tools.clocks import KINDS, ClockKind
from tools.lab import clocks, units
from tools.lab.network.routing import switch_routes
from tools.lab.topology import LabSpec, Topology


@st.composite
def drawn_specs(draw: st.DrawFn) -> LabSpec:
    rails = draw(st.integers(0, 4))
    pods = draw(st.integers(1, 3))
    return LabSpec(
        pods=pods,
        cores=draw(st.integers(1, 3)) if pods > 1 else 0,
        leaves=rails * draw(st.integers(1, 2)) if rails else draw(st.integers(2, 5)),
        spines=draw(st.integers(1, 4)),
        hosts_per_leaf=draw(st.integers(1, 4)),
        nics=1 if rails else draw(st.integers(1, 2)),
        rails=rails,
    )


specs = drawn_specs()


def ways(
    topology: Topology, routes: dict[str, dict[str, tuple[str, ...]]], leaf: str, to: str
) -> list[list[str]]:
    """Every way that packets to a leaf's NICs may take."""
    network = str(topology.leaf_networks(to)[0])
    done, under = [], [[leaf]]
    while under:
        way = under.pop()
        if way[-1] == to:
            done.append(way)
        else:
            under += [[*way, hop] for hop in routes[way[-1]].get(network, ()) if len(way) < 8]
    return done


def routes_by_network(topology: Topology, down: list[str]) -> dict[str, dict[str, tuple[str, ...]]]:
    return {
        switch: {str(route.destination): route.next_hops for route in routes}
        for switch, routes in switch_routes(topology, down).items()
    }


def test_default_lab_has_the_stated_size() -> None:
    topology = Topology(LabSpec())
    assert (len(topology.leaves), len(topology.spines), len(topology.hosts)) == (2, 4, 8)
    assert len(topology.links) == 8 + 2 * 4
    assert topology.link("s2-l1") is topology.link("l1-s2")


@given(specs)
def test_addresses_are_distinct_and_inside_their_leaf(spec: LabSpec) -> None:
    topology = Topology(spec)
    nics = [nic for nics in topology.nics.values() for nic in nics]
    addresses = [address for nic in nics for address in (nic.ipv4, nic.ipv6)]
    addresses += [address for switch in topology.switches for address in topology.router_addresses(switch)]
    assert max(Counter(map(str, addresses)).values()) == 1
    for nic in nics:
        ipv4_network, ipv6_network = topology.leaf_networks(nic.leaf)
        assert nic.ipv4 in ipv4_network
        assert nic.ipv6 in ipv6_network
    macs = [port.mac for link in topology.links.values() for port in (link.a, link.b)]
    assert len(set(macs)) == len(macs)


@given(specs)
def test_a_hosts_nics_are_on_different_leaves(spec: LabSpec) -> None:
    for nics in Topology(spec).nics.values():
        assert len({nic.leaf for nic in nics}) == spec.nics_per_host
        assert len({nic.leaf.partition("l")[0] for nic in nics}) == 1


@given(specs)
def test_on_rails_the_nics_of_a_leaf_have_one_name(spec: LabSpec) -> None:
    topology = Topology(spec)
    spec.validate()
    names = Counter((nic.leaf, nic.name) for nics in topology.nics.values() for nic in nics)
    if spec.rails:
        assert len(names) == len(topology.leaves)
        assert set(names.values()) == {spec.hosts_per_leaf}
    at_leaves = Counter(nic.leaf for nics in topology.nics.values() for nic in nics)
    assert set(at_leaves.values()) == {spec.nics_per_leaf}


@given(specs)
def test_leaves_reach_each_other_over_every_shortest_way(spec: LabSpec) -> None:
    topology = Topology(spec)
    routes = routes_by_network(topology, [])
    for a in topology.leaves:
        for b in topology.leaves:
            found = sorted(tuple(way) for way in ways(topology, routes, a, b))
            assert found == sorted(topology.ways(a, b))
            is_same_pod = a.partition("l")[0] == b.partition("l")[0]
            count = spec.spines if is_same_pod else spec.spines**2 * spec.cores
            assert len(found) == (1 if a == b else count)


def test_in_three_tiers_the_names_say_the_pod() -> None:
    topology = Topology(LabSpec(pods=2, leaves=2, spines=2, cores=2, hosts_per_leaf=1))
    assert topology.leaves == ["p1l1", "p1l2", "p2l1", "p2l2"]
    assert topology.spines == ["p1s1", "p1s2", "p2s1", "p2s2"]
    assert topology.cores == ["c1", "c2"]
    assert {"h3-p2l1", "p1l1-p1s2", "p2s1-c2"} <= topology.links.keys()
    assert "p1l1-p2s1" not in topology.links
    assert len(topology.links) == 4 + 8 + 8
    assert [topology.tiers[name] for name in ("p2l2", "p1s1", "c2")] == [1, 2, 3]
    assert topology.spec.describe() == "4 hosts, 4 leaves, 4 spines in 2 pods, 2 cores"


def test_the_far_leaf_avoids_a_spine_that_lost_its_link() -> None:
    topology = Topology(LabSpec())
    network = topology.leaf_networks("l1")[0]
    routes = switch_routes(topology, ["l1-s2"])["l2"]
    assert [r.next_hops for r in routes if r.destination == network] == [("s1", "s3", "s4")]


def test_a_leaf_without_links_is_out_of_reach() -> None:
    topology = Topology(LabSpec(spines=2))
    routes = switch_routes(topology, ["l1-s1", "l1-s2"])
    assert {route.next_hops for route in routes["l1"]} == {()}


@given(specs, st.data())
def test_nothing_that_came_down_goes_up_again_and_nothing_crosses_a_dead_link(
    spec: LabSpec, data: st.DataObject
) -> None:
    topology = Topology(spec)
    links = [link.name for link in topology.switch_links]
    down = data.draw(st.lists(st.sampled_from(links), unique=True, max_size=8))
    routes = routes_by_network(topology, down)
    for a in topology.leaves:
        for b in topology.leaves:
            for way in ways(topology, routes, a, b):
                tiers = [topology.tiers[switch] for switch in way]
                top = tiers.index(max(tiers))
                assert tiers == [*range(1, top + 2), *range(top, 0, -1)]
                crossed = {topology.link(f"{x}-{y}").name for x, y in pairwise(way)}
                assert not crossed.intersection(down)
    # Nor does a switch that has a leaf below it send to it any other way.
    for link in topology.switch_links:
        if link.a.node in topology.leaves:
            network = str(topology.leaf_networks(link.a.node)[0])
            hops = routes[link.b.node][network]
            assert (hops == (link.a.node,)) == (link.name not in down)


@given(specs, st.data())
def test_whoever_is_sent_to_has_its_route_before(spec: LabSpec, data: st.DataObject) -> None:
    topology = Topology(spec)
    links = [link.name for link in topology.switch_links]
    down = data.draw(st.lists(st.sampled_from(links), unique=True, max_size=4))
    found = switch_routes(topology, down)
    distance = {(s, route.destination): route.distance for s in found for route in found[s]}
    for routes in found.values():
        for route in routes:
            for hop in route.next_hops:
                assert distance.get((hop, route.destination), 0) == route.distance - 1


@pytest.mark.parametrize("kind", KINDS)
def test_clocks_come_from_the_seed_and_stay_in_range(kind: ClockKind) -> None:
    def described(seed: int) -> dict[str, object]:
        drawn = clocks.draw(LabSpec(seed=seed, clocks=kind, hosts_per_leaf=1), base_ns=5)
        return {host: clocks.describe(clock, 5) for host, clock in drawn}

    assert described(7) == described(7)
    assert described(7) != described(8)
    for host, clock in clocks.draw(LabSpec(clocks=kind, hosts_per_leaf=1), base_ns=5):
        assert host in {"h1", "h2"}
        assert clock.base_ns == 5
        assert abs(clock.offset_ns) <= 3_000_000_000
        assert np.abs(clock.oscillator.rate_q40).max() <= 120e-6 * RATE_ONE
        assert (clock.clock.rate_q40 != clock.oscillator.rate_q40).any() == (kind in {"disciplined", "rough"})


@pytest.mark.parametrize(
    ("spec", "complaint"),
    [
        (LabSpec(leaves=0), "--leaves is 0"),
        (LabSpec(leaves=1, nics=2), "2 NICs a host need as many leaves"),
        (LabSpec(nics=3), "--nics is 3"),
        (LabSpec(pods=2), "2 pods and 0 cores"),
        (LabSpec(cores=2), "1 pod and 2 cores"),
        (LabSpec(pods=17, cores=1), "--pods is 17"),
        (LabSpec(leaves=3, rails=2), "3 leaves cannot be shared out among 2 rails"),
        (LabSpec(leaves=2, nics=2, rails=2), "2 rails give each host 2 NICs"),
        (LabSpec(leaves=2, rails=2, miswired="h1"), "h1 is at every one of the 2 leaves"),
        (LabSpec(mtu=100), "--mtu is 100"),
        (LabSpec(queue_bytes=1500), "--queue in bytes is 1500"),
        (LabSpec(name="Two Words"), "'Two Words' is not a name"),
    ],
)
def test_impossible_specs_are_refused_by_name(spec: LabSpec, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint) as caught:
        spec.validate()
    assert caught.value.hint


def test_unknown_links_and_nodes_name_their_neighbours() -> None:
    topology = Topology(LabSpec())
    with pytest.raises(LabError, match="no link 'h1-l9'") as caught:
        topology.link("h1-l9")
    assert "h1-l1" in caught.value.hint
    with pytest.raises(LabError, match="no node 'l3'") as caught:
        topology.require_node("l3")
    assert "l1" in caught.value.hint


@pytest.mark.parametrize(("text", "queue_bytes"), [("256kb", 262_144), ("5ms", 125_000), ("9000b", 9000)])
def test_queues_by_size_and_by_time(text: str, queue_bytes: int) -> None:
    assert units.parse_queue(text, rate_bps=200_000_000) == queue_bytes


@pytest.mark.parametrize(
    ("text", "size_bytes"), [("4mb", 4_194_304), ("5000000", 5_000_000), ("1.5kb", 1536)]
)
def test_sizes(text: str, size_bytes: int) -> None:
    assert units.parse_size(text) == size_bytes


@pytest.mark.parametrize(("text", "complaint"), [("0", "less than a byte"), ("5ms", "is not a size")])
def test_what_is_no_size_is_refused(text: str, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        units.parse_size(text)


@pytest.mark.parametrize(("text", "share"), [("0.5%", 0.005), ("0.005", 0.005), ("100%", 1.0), ("1", 1.0)])
def test_shares(text: str, share: float) -> None:
    assert units.parse_share(text) == pytest.approx(share)


def test_a_share_above_one_is_refused() -> None:
    with pytest.raises(ConfigError, match="more than 1"):
        units.parse_share("150%")


def test_a_miswired_host_keeps_its_addresses_at_another_leaf() -> None:
    plain, odd = Topology(LabSpec(leaves=3)), Topology(LabSpec(leaves=3, miswired="h2"))
    before, after = plain.nics["h2"][0], odd.nics["h2"][0]
    assert (before.leaf, after.leaf) == ("l1", "l2")
    assert (before.ipv4, before.ipv6) == (after.ipv4, after.ipv6)
    assert "h2-l2" in odd.links
    assert "h2-l1" not in odd.links
    for switch, routes in switch_routes(odd, ()).items():
        to = {str(route.destination): route.next_hops for route in routes}
        assert (f"{after.ipv4}/32" in to) == (switch != "l2")
    assert plain.strangers("l2") == []


def test_a_host_that_cannot_be_miswired_is_refused() -> None:
    for spec in (LabSpec(miswired="h9"), LabSpec(miswired="l1"), LabSpec(nics=2, miswired="h1")):
        with pytest.raises(ConfigError, match="h"):
            spec.validate()
    LabSpec(nics=2, leaves=3, miswired="h1").validate()
