"""The fabric as people see it, and which of its links break a pattern."""

import random

import pytest
from fabric_fakes import FakeClos

from manager.fabric.fabric import Fabric
from manager.fabric.model import Model, Node
from manager.fabric.path_counts import PathCounts
from manager.fabric.routes import DirectedLink, PathName, Routes
from manager.fabric.wiring import Miswired, address_of_each, miswired


def learn(clos: FakeClos, ports: int = 24) -> tuple[Model, Fabric]:
    fabric = Fabric()
    clos.tell(fabric, ports=ports)
    return Model(fabric.routes, frozenset(clos.addresses.values())), fabric


def suspected(clos: FakeClos, ports: int = 24) -> list[Miswired]:
    model, fabric = learn(clos, ports)
    covered = PathCounts(fabric.routes).covered_leaves()
    return miswired(model, address_of_each(clos.addresses), covered.__contains__)


@pytest.mark.parametrize(
    ("clos", "tiers"),
    [
        (FakeClos(), {1: 2, 2: 4}),
        (FakeClos(leaves=3, spines=5, version=6), {1: 3, 2: 5}),
        (FakeClos(leaves=4, pods=2), {1: 4, 2: 4, 3: 4}),
        (FakeClos(leaves=1), {1: 1}),
    ],
)
def test_switches_stand_in_tiers(clos: FakeClos, tiers: dict[int, int]) -> None:
    model, _ = learn(clos)
    found = [node.tier for node in model.nodes]
    assert {tier: found.count(tier) for tier in set(found)} == tiers
    assert all(node.answers for node in model.nodes)
    assert model.seats == {
        nic.name: (clos.switch("leaf", nic.leaf + 1),) for nic in sorted(clos.all_nics, key=lambda n: n.name)
    }
    assert len(model.cables) == len({frozenset(link) for link in model.links if "/" not in link.a + link.b})


def test_lower_ends_of_links_come_first() -> None:
    model, _ = learn(FakeClos())
    assert all(a.startswith("10.254.1.") and b.startswith("10.254.3.") for a, b in model.cables)


def test_what_does_not_answer_is_marked_and_private_links_are_left_out() -> None:
    model, _ = learn(FakeClos(answer=lambda: False, answers_at_end=False), ports=2)
    assert model.nodes == tuple(Node(f"?h{i}/nic0", 1, answers=False) for i in range(1, 9))
    assert model.cables == frozenset()


def test_nothing_known_is_an_empty_fabric() -> None:
    model = Model(Routes(), frozenset())
    assert (model.nodes, model.cables, dict(model.seats), dict(model.rails)) == ((), frozenset(), {}, {})
    assert miswired(model, {}) == []


def test_routes_of_plain_paths_are_read_too() -> None:
    links = (DirectedLink("a/nic0", "l1"), DirectedLink("l1", "b/nic0"))
    routes = Routes(1, links, {PathName("a/nic0", "10.2.0.1", 50_000): (0, 1)})
    assert Model(routes, frozenset({"a/nic0", "b/nic0"})).seats == {"a/nic0": ("l1",), "b/nic0": ("l1",)}


def test_rails_are_leaves_that_no_two_interface_names_share() -> None:
    clos = FakeClos(leaves=2, nics=2, hosts_per_leaf=3)
    for nics in clos.hosts.values():
        nics[:] = [
            type(nic)(nic.host, nic.ifname, i, f"10.{i + 1}.0.{nic.host[1:]}") for i, nic in enumerate(nics)
        ]
    model, _ = learn(clos)
    assert model.rails == {"nic0": ("10.254.1.1",), "nic1": ("10.254.1.2",)}
    assert learn(FakeClos(leaves=3, nics=2))[0].rails == {}
    assert learn(FakeClos())[0].rails == {}


@pytest.mark.parametrize(
    "clos",
    [
        FakeClos(),
        FakeClos(leaves=1),
        FakeClos(leaves=5, hosts_per_leaf=1),
        FakeClos(leaves=3, spines=8, hosts_per_leaf=2),
        FakeClos(leaves=6, pods=3),
        FakeClos(leaves=3, nics=2),
        FakeClos(leaves=3, version=6),
    ],
    ids=["default", "one leaf", "one host a leaf", "eight spines", "three pods", "two rails", "IPv6"],
)
def test_a_fabric_that_keeps_its_pattern_raises_no_suspicion(clos: FakeClos) -> None:
    assert suspected(clos) == []


@pytest.mark.parametrize("version", [4, 6])
@pytest.mark.parametrize("nic", ["h1/nic0", "h4/nic0", "h6/nic0"])
def test_a_nic_at_another_leaf_than_its_neighbours_is_named(nic: str, version: int) -> None:
    clos = FakeClos(leaves=3, version=version, moved={nic: 2})
    [found] = suspected(clos)
    home = 1 if nic in ("h1/nic0", "h4/nic0") else 2
    assert (found.what, found.at, found.expected) == (nic, clos.switch("leaf", 3), clos.switch("leaf", home))
    assert "next to its own" in found.reason


def test_a_second_nic_at_another_leaf_than_its_likes_is_named() -> None:
    clos = FakeClos(leaves=4, nics=2, moved={"h2/nic1": 3})
    found = {each.what: each for each in suspected(clos)}
    assert set(found) == {"h2/nic1"}
    assert found["h2/nic1"].expected == "10.254.1.2"


def test_addresses_that_do_not_go_by_leaf_say_nothing() -> None:
    clos = FakeClos(leaves=4)
    rng = random.Random(5)
    for host, nics in clos.hosts.items():
        nics[:] = [type(nic)(host, nic.ifname, rng.randrange(4), nic.address) for nic in nics]
    assert suspected(clos) == []


@pytest.mark.parametrize("seed", range(8))
def test_addresses_of_both_versions_are_compared_with_their_own(seed: int) -> None:
    clos = FakeClos(leaves=4, hosts_per_leaf=2)
    both = list((FakeClos(leaves=4, hosts_per_leaf=2, version=6).addresses | clos.addresses).items())
    random.Random(seed).shuffle(both)
    model, _ = learn(clos)
    assert miswired(model, address_of_each(dict(both)), lambda _leaf: False) == []


def test_two_cables_that_were_swapped_are_both_named() -> None:
    clos = FakeClos(leaves=2, moved={"h2/nic0": 1, "h6/nic0": 0})
    assert [(s.what, s.expected) for s in suspected(clos)] == [
        ("h2/nic0", "10.254.1.1"),
        ("h6/nic0", "10.254.1.2"),
    ]


def test_a_link_that_all_like_it_have_is_missing() -> None:
    clos = FakeClos(leaves=4, dead={("10.254.1.2", "10.254.3.3")})
    [found] = suspected(clos)
    assert (found.what, found.at, found.expected) == ("10.254.1.2", None, "10.254.3.3")


def test_a_missing_link_is_not_named_before_all_others_are_known() -> None:
    clos = FakeClos(leaves=4, hosts_per_leaf=1, dead={("10.254.1.2", "10.254.3.3")})
    assert suspected(clos, ports=3) == []


def test_a_link_between_switches_of_one_tier_is_named() -> None:
    links = [("a/nic0", "l1"), ("l1", "s1"), ("s1", "l2"), ("l2", "b/nic0"), ("l1", "l2")]
    numbered = tuple(DirectedLink(*link) for link in links)
    paths = {PathName("a/nic0", "10.2.0.1", 1): (0, 1, 2, 3), PathName("a/nic0", "10.2.0.1", 2): (0, 4, 3)}
    model = Model(Routes(1, numbered, paths), frozenset({"a/nic0", "b/nic0"}))
    assert [(s.what, s.at) for s in miswired(model, {})] == [("l1", "l2")]
