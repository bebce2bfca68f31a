"""What is wanted of many detours at once: the maps are what is wanted, and every path is in reserve as often as they use it."""

import random
from collections import Counter
from collections.abc import Iterator
from ipaddress import ip_address

import numpy as np
import pytest
from machine import Namespace, add_veth

from cwdp.dataplane import abi
from cwdp.dataplane.kernel import libbpf
from cwdp.dataplane.loading import loader
from cwdp.dataplane.pinned.maps import Maps
from cwdp.dataplane.steering.detours import Detour, Detours
from cwdp.shared.addresses import Address, address_bytes

pytestmark = pytest.mark.kernel

FITTING = (abi.PATHS - 1) // 3
"""So many detours fit: each has a path of its own NIC and two of the partner, which has as many detours."""

Plan = dict[Address, Detour]


@pytest.fixture
def nics(namespace: Namespace) -> Iterator[tuple[Maps, Maps]]:
    """Two that stand in for each other."""
    del namespace
    add_veth("roce1", "far1")
    with Maps(loader.load("roce0").where) as one, Maps(loader.load("roce1").where) as two:
        yield one, two


def _plan(source: random.Random, most: int) -> Plan:
    numbers = source.sample(range(most), source.randrange(most))
    return {
        _address(source.choice(["10.0.0.0", "fd00::"]), number): Detour(
            source.choice([None, _address("10.1.0.0", number)]),
            source.randrange(50_000, 50_004),
            by_other=source.random() < 0.8,
        )
        for number in numbers
    }


def _all_to(sport: int, count: int) -> Plan:
    return {
        _address("10.0.0.0", number): Detour(_address("10.1.0.0", number), sport) for number in range(count)
    }


def _address(first: str, number: int) -> Address:
    return ip_address(first) + number


def _assert_consistent(plans: list[Plan], nics: tuple[Maps, Maps]) -> None:
    """Every number leads to the path that is meant, and each path is counted as often as it is part of a detour."""
    counted: list[Counter[int]] = [Counter(), Counter()]
    for mine, plan in enumerate(plans):
        other = 1 - mine
        raw = libbpf.hash_items(nics[mine].detours_fd, 16, abi.DETOUR.itemsize)
        records = {key: np.frombuffer(value, dtype=abi.DETOUR)[0] for key, value in raw}
        assert records.keys() == {address_bytes(dst) for dst in plan}
        for dst, detour in plan.items():
            record = records[address_bytes(dst)]
            for field, nic, to in (
                ("detour", mine, detour.other_dst),
                ("other", other, dst if detour.by_other else None),
                ("other_detour", other, detour.other_dst if detour.by_other else None),
            ):
                number = int(record[field])
                assert (number != 0) == (to is not None)
                if to is not None:
                    path = nics[nic].paths[number]
                    assert (path["dst"].tobytes(), path["sport"]) == (address_bytes(to), detour.sport)
                    counted[nic][number] += 1
    for maps, count in zip(nics, counted, strict=True):
        assert {int(n): int(maps.paths["detours"][n]) for n in np.flatnonzero(maps.paths["detours"])} == count


@pytest.mark.parametrize("seed", range(4))
def test_every_plan_becomes_what_is(nics: tuple[Maps, Maps], seed: int) -> None:
    source = random.Random(seed)
    plans: list[Plan] = [{}, {}]
    for step in range(12):
        mine = step % 2
        plans[mine] = _plan(source, 150)
        assert Detours(nics[mine], nics[1 - mine]).reconcile(plans[mine]) == []
        _assert_consistent(plans, nics)


@pytest.mark.parametrize("count", [700, 1_000, FITTING])
def test_a_plan_is_reached_though_old_and_new_together_do_not_fit(
    nics: tuple[Maps, Maps], count: int
) -> None:
    for sport in (50_000, 50_001, 50_002):
        plans = [_all_to(sport, count), _all_to(sport, count)]
        for mine, plan in enumerate(plans):
            assert Detours(nics[mine], nics[1 - mine]).reconcile(plan) == []
    _assert_consistent(plans, nics)


def test_what_does_not_fit_is_refused_and_the_rest_is_had(nics: tuple[Maps, Maps]) -> None:
    beyond = 3 * FITTING
    refused = Detours(*nics).reconcile(_all_to(50_000, beyond))
    assert {error.message for error in refused} == {f"{abi.PATHS - 1} paths are watched already, no more fit"}
    had = dict(list(_all_to(50_000, beyond).items())[: beyond - len(refused)])
    assert len(had) == (abi.PATHS - 1) // 2
    _assert_consistent([had, {}], nics)
    assert Detours(*nics).reconcile({}) == []
    _assert_consistent([{}, {}], nics)


def test_without_a_partner(nics: tuple[Maps, Maps]) -> None:
    plan = {
        dst: Detour(detour.other_dst, 50_000, by_other=False) for dst, detour in _all_to(50_000, 50).items()
    }
    assert Detours(nics[0], None).reconcile(plan) == []
    _assert_consistent([plan, {}], nics)
