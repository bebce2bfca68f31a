"""How shared links are divided among pods, and what that is for."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from manager.fabric.routes import DirectedLink
from manager.placement import Demand, Fabric, PathSet, improve, link_loads, place
from manager.pods.grants import FLOOR, grants, shares

RATES = st.sampled_from([0.0, 1.0, 7.5, 1e3, 4e11]) | st.floats(0.0, 1e12)


@st.composite
def cases(draw: st.DrawFn) -> tuple[NDArray[np.float64], NDArray[np.float64], int]:
    pods, links = draw(st.integers(1, 16)), draw(st.integers(0, 5))
    capacity = draw(st.lists(st.floats(1.0, 1e12), min_size=links, max_size=links))
    demand = draw(st.lists(RATES, min_size=pods * links, max_size=pods * links))
    return np.array(capacity), np.array(demand).reshape(pods, links), draw(st.integers(0, 40))


@example((np.array([1.0]), np.array([[0.0], [137_438_953_472.0]]), 0))
@settings(max_examples=400)
@given(cases())
def test_grants_are_all_of_the_capacity_and_no_more_and_fair(
    case: tuple[NDArray[np.float64], NDArray[np.float64], int],
) -> None:
    capacity, demand, turn = case
    granted = grants(capacity, demand, turn)
    pods = len(demand)
    assert granted.shape == demand.shape
    assert granted.sum(axis=0) == pytest.approx(capacity, rel=1e-9)
    floor = FLOOR * capacity / pods
    assert (granted >= floor * (1 - 1e-9)).all()
    for link in range(len(capacity)):
        mine, wants = granted[:, link], np.maximum(demand[:, link], floor[link])
        short = mine < wants * (1 - 1e-9)
        if short.any():
            assert mine.max() <= mine[short].min() * (1 + 1e-9)
        elif demand[:, link].sum() > capacity[link] * (1 + 1e-9):
            raise AssertionError("more is wanted than there is, and nobody is short")


@given(cases(), st.randoms(use_true_random=False))
def test_grants_do_not_depend_on_the_order_of_pods_where_none_is_in_need(
    case: tuple[NDArray[np.float64], NDArray[np.float64], int], random: object
) -> None:
    capacity, demand, _ = case
    demand = demand / max(1.0, float((demand.sum(axis=0) / capacity).max(initial=1.0)) * 2)
    order = np.arange(len(demand))
    random.shuffle(order)  # type: ignore[attr-defined]
    assert grants(capacity, demand[order]) == pytest.approx(grants(capacity, demand)[order], rel=1e-9)


@pytest.mark.parametrize(
    ("capacity", "demand"),
    [
        ([1.0], [[-1.0]]),
        ([1.0], [[np.nan]]),
        ([0.0], [[1.0]]),
        ([np.inf], [[1.0]]),
        ([1.0], np.zeros((0, 1))),
    ],
)
def test_numbers_that_cannot_be_are_refused(capacity: list[float], demand: list[list[float]]) -> None:
    with pytest.raises(ValueError, match="cannot be"):
        grants(np.array(capacity), np.array(demand))


def test_who_is_granted_nothing_takes_an_even_share_of_what_it_knows() -> None:
    known, unknown = DirectedLink("s1", "c1"), DirectedLink("s1", "c2")
    assert shares({known: 100.0, unknown: 0.0}, 4) == {known: 25.0}


class Pod:
    """Queue pairs of a pod that may go over either of two cores; it sees the links at what it is granted."""

    def __init__(self, rates_bps: Sequence[float]) -> None:
        self.demand = Demand(np.zeros(len(rates_bps), np.intp), np.array(rates_bps))
        self.paths = PathSet.of([[[0], [1]]], 2)
        self.choice = np.zeros(len(rates_bps), np.intp)

    def plan(self, capacity_bps: NDArray[np.float64]) -> None:
        """As the planner does: moves while more is put on a link than it carries."""
        fabric = Fabric(capacity_bps, self.paths)
        self.choice = improve(fabric, self.demand, place(fabric, self.demand, self.choice), target=1.0)

    @property
    def load_bps(self) -> NDArray[np.float64]:
        fabric = Fabric(np.ones(2), self.paths)
        return link_loads(fabric, self.demand, self.choice)[:2]


@pytest.mark.parametrize("rates", [[20.0, 20.0, 20.0], [60.0], [30.0, 30.0], [5.0] * 12])
@pytest.mark.parametrize("pods", [2, 3])
def test_pods_that_plan_alone_collide_on_one_core_and_with_grants_do_not(
    rates: list[float], pods: int
) -> None:
    capacity = np.full(2, 60.0 * pods / 2 * 1.34)
    each = [Pod(rates) for _ in range(pods)]
    for _ in range(5):
        for pod in each:
            pod.plan(capacity)
    load = np.sum([pod.load_bps for pod in each], axis=0)
    assert load[0] > capacity[0]
    assert load[1] == 0.0

    for turn in range(6):
        granted = grants(capacity, np.stack([pod.load_bps for pod in each]), turn)
        for pod, mine in zip(each, granted, strict=True):
            pod.plan(mine)
    load = np.sum([pod.load_bps for pod in each], axis=0)
    assert (load <= capacity).all()
