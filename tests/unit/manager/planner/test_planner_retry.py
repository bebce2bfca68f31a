"""A link that was slow, and that nothing crosses since: whether it is tried again, and with what."""

import numpy as np
import pytest
from planner_world import World

from manager.placement import Demand, Fabric, PathSet
from manager.planner.capacity import DOUBTED_AFTER_S
from manager.planner.retry import put_one_back

SLOW_BPS, WELL_BPS = 20e6, 200e6


def _slow_spine(seed: int, spines: int) -> World:
    """A fabric that is hardly loaded: nothing is wanted of the slow spine once it is known to be so."""
    world = World(spines=spines, spine_bps=WELL_BPS, slow=SLOW_BPS / WELL_BPS, seed=seed)
    world.all_to_all(list(range(world.hosts)), most_bps=8e6)
    return world


def _over_s0(world: World) -> list[float]:
    """What each link of the spine carries."""
    load, rates = np.zeros(len(world.links)), world.rates()
    for qp, rate in zip(world.qps, rates, strict=True):
        load[list(world.in_use(qp))] += rate
    return [float(load[i]) for i, link in enumerate(world.links) if "s0" in link]


def _heal(world: World) -> None:
    for i, link in enumerate(world.links):
        if "s0" in link:
            world.capacity[i] = WELL_BPS


@pytest.mark.parametrize("seed", range(2))
def test_a_link_that_was_slow_is_tried_again_though_nobody_is_in_need(seed: int) -> None:
    world = _slow_spine(seed, 4)
    world.run(10.0)
    assert max(_over_s0(world)) < SLOW_BPS
    _heal(world)
    world.run(DOUBTED_AFTER_S - 10.0)
    assert max(_over_s0(world)) < SLOW_BPS
    world.run(20.0)
    assert min(_over_s0(world)) > SLOW_BPS
    assert any("tried on a link" in detail for _, kind, detail in world.events if kind == "qp_moved")


def test_one_queue_pair_is_put_back_only_where_its_way_is_hardly_fuller_by_that() -> None:
    paths = PathSet.of([[[0, 1], [0, 2]]], 3)
    doubted, nowhere = np.array([False, False, True]), np.zeros(2, np.intp)
    demand = Demand(nowhere, np.array([30.0, 40.0]))
    for capacity, movable, expected in (
        (100.0, [True, True], [0, 1]),
        (100.0, [True, False], [1, 0]),
        (45.0, [True, True], [1, 0]),
        (35.0, [True, True], [0, 0]),
        (100.0, [False, False], [0, 0]),
    ):
        fabric = Fabric(np.array([100.0, 100.0, capacity]), paths)
        chosen = put_one_back(fabric, demand, nowhere, doubted=doubted, movable=np.array(movable))
        assert chosen.tolist() == expected
