"""Who asks whom: all pairs where that fits, and else fewer, so that each NIC is asked as often, within all bounds."""

import time
from collections import Counter

import msgspec
import numpy as np
import pytest
from numpy.typing import NDArray

from cwdp.shared.audit.asks import MOST_ADDRESSES, MOST_PROBES, Ask
from manager.audit.network.asks import LEAST_PORTS, MOST_BYTES, USUAL_PORTS, Plan, met, plan, ports_for
from manager.probing.schedule import Family, Member
from tests.unit.manager.audit.network.asking import leaf_of, members


def _plan(
    who: list[Member], *, family: Family = "4", ways: int = 4, at_leaf: int = 16, seed: int = 1
) -> Plan:
    hosts = {host for host, _ in who}
    return plan(who, hosts, family=family, ways=ways, leaf=leaf_of(who, at_leaf), seed=seed)


def _times(made: Plan) -> NDArray[np.int64]:
    """How many hosts ask each target, shape (targets,)."""
    return np.bincount(np.concatenate(list(made.chosen.values())), minlength=len(made.targets))


@pytest.mark.parametrize(("hosts", "nics"), [(2, 1), (8, 1), (5, 8), (64, 2)])
def test_all_pairs_are_asked_where_that_fits(hosts: int, nics: int) -> None:
    who = members(hosts, nics)
    made = _plan(who)
    assert (made.share, made.ports, made.left_out) == (1.0, ports_for(4), 0)
    for host, order in made.orders.items():
        asked = {made.targets[place].nic for place in made.chosen[host].tolist()}
        assert asked == {f"{other}/{nic.ifname}" for other, nic in who if other != host}
        assert order.nics == [f"nic{number}" for number in range(nics)]
        assert len(order.ipv4) == 4 * len(asked)
        assert order.ipv6 == b""
    assert made.orders.keys() == {host for host, _ in who}


@pytest.mark.parametrize(("hosts", "nics"), [(1_250, 8), (10_000, 1), (300, 8), (2_500, 4)])
@pytest.mark.parametrize("ways", [1, 4, 32])
def test_a_large_fleet_is_within_all_bounds(hosts: int, nics: int, ways: int) -> None:
    began_s = time.monotonic()
    made = _plan(members(hosts, nics), ways=ways)
    assert time.monotonic() - began_s < 10.0
    times = _times(made)
    assert times.max() <= 1.05 * times.min() + 2
    assert made.ports >= LEAST_PORTS
    for host, order in made.orders.items():
        count = len(order.ipv4) // 4
        assert count <= MOST_ADDRESSES
        assert len(order.nics) * count * order.ports <= MOST_PROBES
        assert not any(
            made.targets[place].nic.startswith(f"{host}/") for place in made.chosen[host][:5].tolist()
        )
    sizes = [len(msgspec.msgpack.encode(order)) for order in made.orders.values()]
    assert max(sizes) < 4 * MOST_ADDRESSES + 200
    assert sum(sizes) < MOST_BYTES + 200 * hosts


def test_each_host_asks_some_of_each_leaf() -> None:
    who = members(1_250, 8)
    made = _plan(who, at_leaf=64)
    leaves = set(made.leaf.values())
    for mine in list(made.chosen.values())[::100]:
        assert {made.leaf[made.targets[place].nic] for place in mine.tolist()} == leaves
    assert made.share == pytest.approx(MOST_PROBES / LEAST_PORTS / 8 / 10_000, rel=0.01)


def test_a_host_that_asks_alone_asks_all() -> None:
    who = members(20, 2)
    made = plan(who, {"h3"}, family="4", ways=2, leaf={}, seed=1)
    assert made.orders.keys() == {"h3"}
    assert (made.share, len(made.chosen["h3"])) == (1.0, 38)


def test_nics_that_cannot_ask_are_left_out_and_counted() -> None:
    who = members(4, 2)
    ud = [
        (host, msgspec.structs.replace(nic, transport="ud") if nic.ifname == "nic1" else nic)
        for host, nic in who
    ]
    made = _plan(ud)
    assert made.left_out == 4
    assert all(target.nic.endswith("nic0") for target in made.targets)
    assert _plan(ud[1:2]).orders == _plan([]).orders == {}


@pytest.mark.parametrize(("family", "ipv4", "ipv6"), [("4", 3, 0), ("6", 0, 3), ("both", 3, 3)])
def test_addresses_are_of_the_family_that_is_probed(family: Family, ipv4: int, ipv6: int) -> None:
    made = _plan(members(4, 1), family=family)
    assert {(len(order.ipv4) // 4, len(order.ipv6) // 16) for order in made.orders.values()} == {(ipv4, ipv6)}


def test_where_some_nics_have_one_family_only_others_are_asked_by_both() -> None:
    who = members(4, 1)
    who[0] = (who[0][0], msgspec.structs.replace(who[0][1], ipv4=None))
    made = _plan(who)
    assert {host: (len(order.ipv4) // 4, len(order.ipv6) // 16) for host, order in made.orders.items()} == {
        "h1": (3, 3), "h2": (2, 3), "h3": (2, 3), "h4": (2, 3)
    }  # fmt: skip
    assert made.families == {"h1/nic0": 2, "h2/nic0": 3, "h3/nic0": 3, "h4/nic0": 3}


@pytest.mark.parametrize("ways", [2, 4, 8, 64])
def test_so_many_ports_meet_each_path(ways: int) -> None:
    ports = ports_for(ways)
    assert met(ports, ways) >= 0.99 > met(ports - 1, ways)
    rng = np.random.default_rng(1)
    times = 2_000
    all_met = sum(len(np.unique(rng.integers(0, ways, ports))) == ways for _ in range(times))
    assert all_met / times > 0.985


def test_ports_where_there_is_one_path_or_nobody_knows() -> None:
    assert (ports_for(0), ports_for(1)) == (USUAL_PORTS, LEAST_PORTS)
    assert (met(4, 1), met(0, 1), met(1, 8)) == (1.0, 0.0, 0.0)
    assert ports_for(10**6) <= 1_024
    msgspec.msgpack.decode(msgspec.msgpack.encode(Ask(nics=["nic0"], ports=ports_for(10**6))), type=Ask)


def test_the_same_seed_makes_the_same_plan() -> None:
    who = members(300, 8)
    one, again, other = (_plan(who, seed=seed) for seed in (1, 1, 2))
    assert one.orders == again.orders != other.orders
    assert Counter(target.nic for target in one.targets) == Counter(target.nic for target in other.targets)
