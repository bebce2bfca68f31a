"""What one slice leaves unused is lent to others: the division itself, and what the dataplane is told of it."""

from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from numpy.typing import NDArray

from cwdp.dataplane import abi
from cwdp.dataplane.pinned.maps import Maps
from cwdp.slices.allocation import allocate, fill
from cwdp.slices.borrowing import LEASE_NS, Borrowing
from cwdp.slices.edt import pace_q18

INF = float("inf")
MS = 1_000_000


def allocated(link: float, *rows: tuple[float, float, int, float]) -> list[float]:
    """Of slices given as guaranteed, ceiling, priority, demand."""
    guaranteed, ceiling, priority, demand = (np.array(column) for column in zip(*rows, strict=True))
    return list(allocate(link, guaranteed, ceiling, priority, demand))


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([(30, 100, 0, INF), (50, 100, 0, INF)], [40, 60]),
        ([(30, 100, 0, 0), (50, 100, 0, INF)], [30, 100]),
        ([(30, 100, 0, INF), (50, 60, 0, INF)], [40, 60]),
        ([(30, 35, 0, INF), (50, 60, 0, INF)], [35, 60]),
        ([(30, 100, 1, INF), (50, 100, 0, INF)], [30, 70]),
        ([(30, 100, 1, INF), (50, 55, 0, INF)], [45, 55]),
        ([(30, 100, 0, 10), (50, 100, 0, INF)], [30, 90]),
        ([(30, 100, 0, 40), (50, 100, 0, 60)], [40, 60]),
        ([(10, 100, 0, INF), (10, 100, 0, 15), (10, 100, 0, INF)], [42.5, 15, 42.5]),
        ([(50, 100, 0, INF), (50, 100, 0, INF)], [50, 50]),
        ([(100, 100, 0, 0), (0, 100, 0, INF)], [100, 100]),
    ],
)
def test_allocate(rows: list[tuple[float, float, int, float]], expected: list[float]) -> None:
    assert allocated(100, *rows) == pytest.approx(expected)


def test_allocations_of_any_kind() -> None:
    """Guarantees and ceilings hold, the link is not exceeded by what is wanted, and nothing wanted is left over."""
    rng = np.random.default_rng(1)
    for _ in range(500):
        n, link = int(rng.integers(1, 20)), 1e9
        guaranteed = rng.dirichlet(np.ones(n)) * link * rng.uniform(0, 1)
        ceiling = np.minimum(guaranteed * rng.uniform(1, 20, n), link)
        demand = np.where(rng.random(n) < 0.3, INF, rng.uniform(0, link, n))
        given = allocate(link, guaranteed, ceiling, rng.integers(0, 4, n), demand)
        wanted = np.minimum(demand, ceiling)
        used = np.minimum(wanted, given)
        assert (given >= guaranteed * (1 - 1e-9)).all()
        assert (given <= ceiling * (1 + 1e-9)).all()
        assert used.sum() == pytest.approx(min(link, wanted.sum()))


def test_fill_is_fair() -> None:
    assert list(fill(10, np.array([1.0, 100.0, 6.0, 100.0]))) == pytest.approx([1, 3, 3, 3])
    assert list(fill(-5, np.array([1.0, 2.0]))) == [0, 0]
    assert list(fill(5, np.array([]))) == []


def a_host(enforcer: abi.Enforcer = abi.Enforcer.EDT) -> Any:
    """Maps with a link of 100 Mbit/s, the rest (0) and two slices (1, 2)."""
    table = np.zeros(1, dtype=abi.SLICE_TABLE)
    table["enforcer"], table["link_bps"] = enforcer, 100 * MS
    slices: NDArray[np.void] = np.zeros(abi.SLICES, dtype=abi.SLICE)
    for number, guaranteed_bps in ((0, 40 * MS), (1, 20 * MS), (2, 40 * MS)):
        slices["guaranteed_bps"][number], slices["ceiling_bps"][number] = guaranteed_bps, 100 * MS
        slices["fair_q18"][number] = pace_q18(guaranteed_bps)
    slices["priority"][0] = 8
    return SimpleNamespace(slice_table=table, slices=slices)


def borrowing(host: Any) -> Borrowing:
    return Borrowing(cast("Maps", host))


def paces(host: Any) -> list[int]:
    return [int(pace) for pace in host.slices["pace_q18"][:3]]


def test_a_waiting_slice_borrows_what_the_others_leave() -> None:
    host = a_host()
    host.slices["departure_ns"][1] = 10**9 + 50 * MS
    assert borrowing(host).step(10**9)
    assert paces(host) == [pace_q18(40 * MS), pace_q18(100 * MS), pace_q18(40 * MS)]
    assert list(host.slices["lease_ns"][:4]) == [10**9 + LEASE_NS] * 3 + [0]


def test_what_is_sent_is_not_borrowed() -> None:
    host = a_host()
    host.slices["departure_ns"][1] = 10**12
    slices = borrowing(host)
    slices.step(10**9)
    host.slices["bytes"][2] += 30 * MS // 8 // 50
    slices.step(10**9 + 20 * MS)
    assert paces(host)[1] == pytest.approx(pace_q18((100 - 1.05 * 30) * MS), rel=1e-6)


def test_all_that_wait_have_their_guarantees() -> None:
    host = a_host()
    host.slices["departure_ns"][:3] = 10**12
    borrowing(host).step(10**9)
    assert paces(host) == [int(pace) for pace in host.slices["fair_q18"][:3]]


@pytest.mark.parametrize("enforcer", [abi.Enforcer.NONE, abi.Enforcer.HTB])
def test_only_departure_times_need_borrowing(enforcer: abi.Enforcer) -> None:
    host = a_host(enforcer)
    assert not borrowing(host).step(10**9)
    assert paces(host) == [0, 0, 0]


@pytest.mark.parametrize("rate_bps", [10**6, 10**9, 100 * 10**9, 400 * 10**9])
def test_paces_are_exact_to_a_thousandth(rate_bps: int) -> None:
    assert 8e9 * 2**18 / pace_q18(rate_bps) == pytest.approx(rate_bps, rel=1e-3)
    assert 0 < pace_q18(rate_bps) < 2**32
