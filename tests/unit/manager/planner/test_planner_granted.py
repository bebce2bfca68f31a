"""A planner of one pod of several puts on shared links what it was granted, whatever they carry in all."""

import numpy as np
import pytest
from planner_world import World

from manager.fabric.routes import DirectedLink, Routes
from manager.planner.capacity import within
from manager.planner.problem import Links

LINKS = tuple(DirectedLink("s1", f"c{i}") for i in range(4))


def test_a_granted_link_counts_with_its_grant_and_is_not_tried_for_more() -> None:
    yes = np.ones(4, bool)
    links = Links(np.array([100.0, 100.0, np.nan, 100.0]), queueing=yes, full=yes, untried=yes, doubted=yes)
    granted = {LINKS[0]: 30.0, LINKS[2]: 40.0, LINKS[3]: 0.0, DirectedLink("x", "y"): 1.0}
    counts = within(links, Routes(1, LINKS), granted)
    assert counts.capacity_bps.tolist() == [30.0, 100.0, 40.0, 100.0]
    for mask in (counts.untried, counts.doubted):
        assert mask.tolist() == [False, True, False, True]
    assert counts.queueing.all()
    assert within(links, Routes(1, LINKS), {}) is links


def _over(world: World, spine: str) -> float:
    """What is put on a spine's links from the first leaf, as a share of all that crosses it."""
    crossing = [spine in world.links[world.path(qp)[1]] for qp in world.crossing()]
    return float(np.mean(crossing))


@pytest.mark.parametrize("seed", range(3))
def test_queue_pairs_leave_links_that_were_granted_to_others_and_come_back(seed: int) -> None:
    world = World(leaves=2, spines=2, hosts_per_leaf=6, nic_bps=30e6, spine_bps=60e6, seed=seed)
    for src, dst in ((0, 6), (1, 7), (2, 8), (3, 9), (4, 5), (10, 11)):
        world.add(src, dst)
    world.run(10.0)
    assert _over(world, "s0") == 0.5
    world.planner.granted_bps = {link: 1e6 for link in world.links if "s0" in link}
    world.run(15.0)
    assert _over(world, "s0") == 0.0
    world.planner.granted_bps = {}
    world.run(30.0)
    assert _over(world, "s0") == 0.5
