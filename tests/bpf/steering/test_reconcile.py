"""What is wanted of many queue pairs at once: the maps are what is wanted, and every path has as many users as steer by it."""

import random
from collections import Counter
from collections.abc import Iterator
from ipaddress import ip_address

import numpy as np
import pytest
from machine import Namespace

from cwdp.dataplane import abi
from cwdp.dataplane.kernel import libbpf
from cwdp.dataplane.loading import loader
from cwdp.dataplane.pinned import tree
from cwdp.dataplane.pinned.maps import Maps
from cwdp.dataplane.steering.steering import QpKey, Steer, Steering
from cwdp.shared.addresses import address_bytes

pytestmark = pytest.mark.kernel

NIC = "roce0"
ADDRESSES = [ip_address(text) for text in ("10.0.0.2", "10.0.1.2", "fd00::2", "fd00::3")]


@pytest.fixture
def maps(namespace: Namespace) -> Iterator[Maps]:
    """Of a dataplane of its own."""
    del namespace
    loader.load(NIC)
    with Maps(tree.here(NIC)) as opened:
        yield opened


def _plan(source: random.Random, ports: int) -> dict[QpKey, Steer]:
    plan = {}
    for _ in range(source.randrange(60)):
        sport, backup = source.sample(range(50_000, 50_000 + ports), 2)
        backed = source.choice([backup, None])
        label, override = (source.random() < 0.2 for _ in range(2))
        steer = Steer(sport, backed, flow_label=label, managed=True, override=override)
        plan[QpKey(source.choice(ADDRESSES), source.randrange(20))] = steer
    return plan


def _assert_consistent(maps: Maps, wanted: dict[QpKey, Steer]) -> None:
    """The numbers in the records lead to the paths that are meant, and each is used as often."""
    assert Steering(maps).all() == wanted
    users: Counter[int] = Counter()
    for key, steer in wanted.items():
        raw = libbpf.hash_lookup(maps.steer_fd, key.pack(), abi.STEER.itemsize)
        assert raw is not None
        record = np.frombuffer(raw, dtype=abi.STEER)[0]
        numbers = [int(record["path"]), int(record["backup_path"])][: len(steer.ports())]
        for number, port in zip(numbers, steer.ports(), strict=True):
            path = maps.paths[number]
            assert (path["dst"].tobytes(), int(path["sport"])) == (address_bytes(key.dst), port)
        users.update(numbers)
    assert {int(n): int(maps.paths["users"][n]) for n in np.flatnonzero(maps.paths["users"])} == users


@pytest.mark.parametrize("seed", range(5))
def test_every_plan_becomes_what_is(maps: Maps, seed: int) -> None:
    source = random.Random(seed)
    for _ in range(20):
        plan = _plan(source, ports=12)
        assert Steering(maps).reconcile(plan) == []
        _assert_consistent(maps, plan)


def test_what_was_set_by_hand_stays(maps: Maps) -> None:
    by_hand = {QpKey(ADDRESSES[0], 7): Steer(51_000, 51_001)}
    for key, steer in by_hand.items():
        Steering(maps).set(key, steer)
    plan = {QpKey(ADDRESSES[0], qpn): Steer(50_000, managed=True) for qpn in range(10)}
    (refused,) = Steering(maps).reconcile(plan)
    assert refused.message == "10.0.0.2 QPN 7 was steered by hand"
    _assert_consistent(maps, plan | by_hand)
    Steering(maps).reconcile({})
    _assert_consistent(maps, by_hand)


def _one_path_each(first_port: int, count: int) -> dict[QpKey, Steer]:
    return {QpKey(ADDRESSES[0], qpn): Steer(first_port + qpn, managed=True) for qpn in range(count)}


def test_a_plan_is_reached_though_both_together_do_not_fit(maps: Maps) -> None:
    """All paths change at once: those of before make room as soon as the dataplane has let go of them."""
    for first_port in (50_000, 55_000):
        plan = _one_path_each(first_port, abi.PATHS * 3 // 5)
        assert Steering(maps).reconcile(plan) == []
        _assert_consistent(maps, plan)


def test_one_path_too_many_is_refused_and_changes_nothing(maps: Maps) -> None:
    plan = _one_path_each(50_000, abi.PATHS - 1)
    assert Steering(maps).reconcile(plan) == []
    beyond = plan | {QpKey(ADDRESSES[1], 1): Steer(50_000, managed=True)}
    (refused,) = Steering(maps).reconcile(beyond)
    assert refused.message == f"{abi.PATHS - 1} paths are watched already, no more fit"
    _assert_consistent(maps, plan)


def test_a_recount_mends_what_a_killed_process_left(maps: Maps) -> None:
    plan = _plan(random.Random(1), ports=12)
    Steering(maps).reconcile(plan)
    maps.paths["users"][1:4] += 3
    Steering(maps).recount([])
    _assert_consistent(maps, plan)
