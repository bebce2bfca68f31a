"""Mis-wiring in fabrics of many sizes: what is named is what is wrong, and nothing else."""

import random

import pytest
from fabric_fakes import FakeClos
from hypothesis import given, settings
from hypothesis import strategies as st

from manager.fabric.fabric import Fabric
from manager.fabric.model import Model
from manager.fabric.path_counts import PathCounts
from manager.fabric.wiring import Miswired, address_of_each, miswired
from manager.fabric.wiring_watch import HOLDS_S, WiringWatch

PORTS = 8


def named(clos: FakeClos, *, by_address: bool = True) -> list[tuple[str, str | None]]:
    """What looks wrongly plugged in, and where it belongs."""
    fabric = Fabric()
    clos.tell(fabric, ports=PORTS)
    model = Model(fabric.routes, frozenset(clos.addresses.values()))
    covered = PathCounts(fabric.routes).covered_leaves()
    addresses = {nic: address for address, nic in clos.addresses.items()} if by_address else {}
    return [(each.what, each.expected) for each in miswired(model, addresses, covered.__contains__)]


@pytest.mark.parametrize("version", [4, 6])
@pytest.mark.parametrize(("nics", "leaf"), [(1, 2), (2, 0)])
def test_of_three_leaves_with_two_hosts_each_the_moved_nic_alone_is_named(
    nics: int, leaf: int, version: int
) -> None:
    clos = FakeClos(leaves=3, hosts_per_leaf=2, nics=nics, version=version, moved={"h3/nic0": leaf})
    assert named(clos) == [("h3/nic0", clos.switch("leaf", 2))]


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_one_moved_nic_is_named_alone_whatever_the_size(data: st.DataObject) -> None:
    nics = data.draw(st.integers(1, 3), "nics")
    pods = data.draw(st.integers(1, 2), "pods")
    leaves = pods * data.draw(st.integers(max(2, nics + 1), 5), "leaves of a pod")
    hosts = data.draw(st.integers(2, 4), "hosts of a leaf")
    clos = FakeClos(leaves=leaves, hosts_per_leaf=hosts, nics=nics, pods=pods)
    moved = data.draw(st.sampled_from(clos.all_nics), "moved")
    mine = {nic.leaf for nic in clos.hosts[moved.host]}
    leaf = data.draw(st.sampled_from([i for i in range(leaves) if i not in mine]), "to")
    clos = FakeClos(leaves=leaves, hosts_per_leaf=hosts, nics=nics, pods=pods, moved={moved.name: leaf})
    assert named(clos) == [(moved.name, clos.switch("leaf", moved.leaf + 1))]


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 6), st.integers(1, 5), st.integers(1, 3), st.booleans())
def test_a_fabric_that_is_as_it_should_be_raises_no_suspicion(
    leaves: int, hosts: int, nics: int, by_address: bool
) -> None:
    clos = FakeClos(leaves=max(leaves, nics), hosts_per_leaf=hosts, nics=nics)
    assert named(clos, by_address=by_address) == []


@pytest.mark.parametrize("hosts", [2, 3, 4])
def test_without_addresses_the_nic_is_named_that_leaves_the_leaves_even(hosts: int) -> None:
    clos = FakeClos(leaves=3, hosts_per_leaf=hosts, nics=2, moved={"h3/nic0": 0 if hosts == 2 else 2})
    home = (3 - 1) // hosts + 1
    assert named(clos, by_address=False) == [("h3/nic0", clos.switch("leaf", home))]


def test_what_is_suspected_for_a_moment_is_not_told_and_what_flickers_is_told_once() -> None:
    watch, odd = WiringWatch(), Miswired("h1/nic0", "l2", "l1", "why")
    missing = Miswired("l1", None, "s2", "why")
    told: list[tuple[float, str, str | None, str]] = []
    for second in range(40):
        brief, lasting, flicker = second < HOLDS_S - 1, 10 <= second < 30, second % 4
        found = [odd] if brief or (lasting and (second < 20 or flicker)) else []
        told += [(second, c.host, c.nic, c.kind) for c in watch.step([*found, missing], float(second))]
    assert [each[1:] for each in told] == [("h1", "nic0", "miswired"), ("h1", "nic0", "miswired_over")]
    assert told[0][0] == 10 + HOLDS_S
    assert told[1][0] >= 29 + HOLDS_S - 1


@pytest.mark.parametrize("seed", range(20))
def test_addresses_of_two_families_in_any_order_name_the_same(seed: int) -> None:
    clos = FakeClos(leaves=3, hosts_per_leaf=2, moved={"h3/nic0": 2})
    fabric = Fabric()
    clos.tell(fabric, ports=PORTS)
    model = Model(fabric.routes, frozenset(clos.addresses.values()))
    both = [*clos.addresses.items(), *((f"fd00::{i + 1:x}", nic.name) for i, nic in enumerate(clos.all_nics))]
    random.Random(seed).shuffle(both)
    assert [each.what for each in miswired(model, address_of_each(dict(both)))] == ["h3/nic0"]
