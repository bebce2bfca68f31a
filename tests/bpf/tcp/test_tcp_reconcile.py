"""What is wanted of many connections at once: the maps are what is wanted, and every path has as many users as steer by it."""

import random
import time
from collections import Counter
from collections.abc import Iterator
from ipaddress import ip_address

import numpy as np
import pytest
from machine import Machine
from segments import announcement

from cwdp.dataplane import abi
from cwdp.dataplane.kernel import libbpf
from cwdp.dataplane.pinned.maps import Maps
from cwdp.dataplane.steering import tcp
from cwdp.dataplane.steering.pathtable import PathKey
from cwdp.dataplane.steering.tcp import KEPT_NS, TcpConnection, TcpSteer, TcpSteering
from cwdp.errors import SteeringError

pytestmark = pytest.mark.kernel

HERE, THERE = ip_address("10.0.0.1"), [ip_address(f"10.0.1.{n}") for n in (2, 3)]


@pytest.fixture
def steering(dataplane: Machine) -> Iterator[TcpSteering]:
    made = TcpSteering(dataplane.maps)
    yield made
    made.reconcile({})
    for one in made.all():
        made.unset(one)
    made.forget_silent(2**62)


def _plan(source: random.Random) -> dict[TcpConnection, TcpSteer]:
    plan = {}
    for port in source.sample(range(40_000, 40_040), source.randrange(30)):
        sport, backup = source.sample(range(50_000, 50_006), 2)
        connection = TcpConnection(HERE, source.choice(THERE), port, source.choice((5_201, 5_202)))
        plan[connection] = TcpSteer(sport, source.choice([backup, None]), managed=True)
    alike = Counter(one.wire_key() for one in plan)
    return {one: steer for one, steer in plan.items() if alike[one.wire_key()] == 1}


def _assert_is(maps: Maps, plan: dict[TcpConnection, TcpSteer]) -> None:
    steering = TcpSteering(maps)
    assert steering.all() == plan
    assert int(maps.tcp_steered["total"][0]) == int(maps.tcp_steered["by_sum"].sum()) == len(plan)
    keys = {
        key: int.from_bytes(value, "little")
        for key, value in libbpf.hash_items(maps.tcp_out_fd, abi.TCP_KEY.itemsize, 4)
    }
    assert keys.keys() == {connection.pack() for connection in plan}
    for key, number in keys.items():
        assert maps.tcp_conns["key"][number].tobytes() == key
    users = Counter(key for one, steer in plan.items() for key in steer.path_keys(one))
    paths = maps.paths
    found = {
        PathKey(paths["dst"][n].tobytes(), int(paths["sport"][n]), int(paths["protocol"][n])): int(
            paths["users"][n]
        )
        for n in np.flatnonzero(paths["users"])
    }
    assert found == users


@pytest.mark.parametrize("seed", range(10))
def test_from_one_plan_to_the_next(dataplane: Machine, steering: TcpSteering, seed: int) -> None:
    source = random.Random(seed)
    for _ in range(10):
        plan = _plan(source)
        assert [str(error) for error in steering.reconcile(plan) if "would look like" not in str(error)] == []
        steering.reconcile(plan)
        _assert_is(dataplane.maps, plan)


def test_what_was_set_by_hand_stays(dataplane: Machine, steering: TcpSteering) -> None:
    connection = TcpConnection(HERE, THERE[0], 40_000, 5_201)
    steering.set(connection, TcpSteer(50_000))
    (refused,) = steering.reconcile({connection: TcpSteer(50_001, managed=True)})
    assert "by hand" in refused.message
    assert steering.reconcile({}) == []
    _assert_is(dataplane.maps, {connection: TcpSteer(50_000)})


def test_nothing_changes_where_nothing_is_wanted_anew(dataplane: Machine, steering: TcpSteering) -> None:
    """Queue pairs need not look up what is wanted of them again."""
    before = int(dataplane.maps.control["generation"][0])
    steering.reconcile({})
    assert int(dataplane.maps.control["generation"][0]) == before


@pytest.mark.parametrize("seed", range(5))
def test_repaired_after_a_change_that_was_cut_short(
    dataplane: Machine, steering: TcpSteering, seed: int
) -> None:
    source = random.Random(seed)
    plan = _plan(source)
    steering.reconcile(plan)
    maps = dataplane.maps
    maps.tcp_steered["total"], maps.tcp_steered["by_sum"] = 3, 1
    for one in source.sample(sorted(plan), len(plan) // 2):
        libbpf.hash_delete(maps.tcp_out_fd, one.pack())
    gone = TcpConnection(HERE, THERE[1], 1, 1)
    libbpf.hash_update(maps.tcp_out_fd, gone.pack(), (4_000).to_bytes(4, "little"))
    steering.repair()
    _assert_is(maps, plan)


def test_no_more_than_there_is_room_for(dataplane: Machine, steering: TcpSteering) -> None:
    wanted = {
        TcpConnection(HERE, THERE[0], 1 + n, 5_201): TcpSteer(50_000, managed=True)
        for n in range(abi.TCP_CONNS + 5)
    }
    refused = steering.reconcile(wanted)
    assert len(refused) == 6
    assert "steered already" in refused[0].message
    with pytest.raises(SteeringError, match="is not steered"):
        steering.unset(TcpConnection(HERE, THERE[1], 1, 1))


def test_hosts_that_announce_no_more_are_forgotten(dataplane: Machine, steering: TcpSteering) -> None:
    own = TcpConnection(HERE, THERE[1], 40_000, 5_201)
    steering.set(own, TcpSteer(50_000))
    dataplane.ingress(announcement())
    now_ns = time.monotonic_ns()
    assert steering.forget_silent(now_ns) == 0
    assert steering.forget_silent(now_ns + KEPT_NS + 10**9) == 2
    items = libbpf.hash_items(dataplane.maps.tcp_in_fd, abi.TCP_WIRE_KEY.itemsize, abi.TCP_PORTS.itemsize)
    assert [key for key, _ in items] == [own.wire_key()]


def test_a_full_table_of_ports_refuses_and_leaves_nothing(
    dataplane: Machine, steering: TcpSteering, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(7, "Argument list too long")

    monkeypatch.setattr(tcp, "_enter", full)
    with pytest.raises(SteeringError, match="no more fit"):
        steering.set(TcpConnection(HERE, THERE[0], 40_000, 5_201), TcpSteer(50_000))
    _assert_is(dataplane.maps, {})


def _own(maps: Maps) -> set[bytes]:
    items = libbpf.hash_items(maps.tcp_in_fd, abi.TCP_WIRE_KEY.itemsize, abi.TCP_PORTS.itemsize)
    return {key for key, _ in items}


ONE, ALIKE = (TcpConnection(HERE, THERE[0], 40_000 + n, 5_202 - n) for n in (0, 1))
LABEL = TcpSteer(50_000, ports=False, flow_label=True)


def test_one_that_has_its_ports_change_from_now_on_is_found_by_them(
    dataplane: Machine, steering: TcpSteering
) -> None:
    steering.set(ONE, LABEL)
    assert _own(dataplane.maps) == set()
    steering.set(ONE, TcpSteer(50_000))
    assert _own(dataplane.maps) == {ONE.wire_key()}
    with pytest.raises(SteeringError, match="would look like"):
        steering.set(ALIKE, TcpSteer(50_000))
    steering.set(ONE, LABEL)
    assert _own(dataplane.maps) == set()
    steering.set(ALIKE, TcpSteer(50_000))


def test_who_has_labels_alone_takes_nothing_along(dataplane: Machine, steering: TcpSteering) -> None:
    """One with the same sum of ports, whose ports change, stays known by them."""
    steering.set(ONE, LABEL)
    steering.set(ALIKE, TcpSteer(50_000))
    steering.unset(ONE)
    assert _own(dataplane.maps) == {ALIKE.wire_key()}
    with pytest.raises(SteeringError, match="would look like"):
        steering.set(ONE, TcpSteer(50_000))


def test_an_address_of_ipv4_within_ipv6_is_refused() -> None:
    """Segments of such a socket are IPv4's, and so is its connection."""
    mapped = ip_address("::ffff:10.0.0.1"), ip_address("::ffff:10.0.1.2")
    with pytest.raises(SteeringError, match="is an address of IPv4"):
        TcpConnection(*mapped, 40_000, 5_201)
