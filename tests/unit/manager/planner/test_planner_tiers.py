"""Paths of three tiers, where ECMP hashes at every switch: each is one of its own, and backups share nothing with them."""

import random
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from planner_world import World

from manager.fabric.choice import spread
from manager.fabric.routes import DirectedLink, PathName, Routes
from manager.planner.candidates import MOST_CANDIDATES, Candidates, Watched, backup_for
from tools.lab.topology import LabSpec, Topology

SRC, DST = "h1/nic0", "10.9.9.9"


def routes_of(topology: Topology, ports: int, seed: int) -> tuple[Routes, dict[int, tuple[str, ...]]]:
    """Paths from the first leaf to the last, each port's over any way."""
    rng = random.Random(seed)
    ways = topology.ways(topology.leaves[0], topology.leaves[-1])
    links: dict[DirectedLink, int] = {}
    paths, taken = {}, {}
    for port in range(50_000, 50_000 + ports):
        taken[port] = rng.choice(ways)
        hops = [DirectedLink(*hop) for hop in pairwise((SRC, *taken[port], "h9/nic0"))]
        paths[PathName(SRC, DST, port)] = tuple(links.setdefault(hop, len(links)) for hop in hops)
    return Routes(1, tuple(links), paths), taken


@settings(max_examples=60)
@given(st.data())
def test_primary_and_backup_share_no_link_and_no_switch_where_the_fabric_allows(data: st.DataObject) -> None:
    pods = data.draw(st.integers(1, 3), "pods")
    spines = data.draw(st.integers(2, 6), "spines")
    cores = data.draw(st.integers(1, 4), "cores") if pods > 1 else 0
    topology = Topology(LabSpec(pods=pods, leaves=2, spines=spines, cores=cores, hosts_per_leaf=1))
    routes, taken = routes_of(topology, 400, data.draw(st.integers(0, 99), "seed"))
    choices = Candidates(routes).of(SRC, DST)
    assert choices is not None
    dead = np.zeros(len(routes.links) + 1, bool)
    assert len(choices.paths) == min(MOST_CANDIDATES, len(set(taken.values())))
    for k, sport in enumerate(choices.ports):
        backup = backup_for(choices, k, sport, present=None, watched=Watched(), dead=dead)
        assert backup is not None
        first, second = taken[sport][1:-1], taken[backup][1:-1]
        assert not set(pairwise(taken[sport])) & set(pairwise(taken[backup]))
        shared = set(first) & set(second)
        assert shared == set() if cores != 1 else shared == {"c1"}


@settings(max_examples=30)
@given(st.integers(2, 12), st.integers(1, 8), st.integers(0, 99))
def test_of_too_many_paths_those_are_kept_that_cross_every_link(spines: int, cores: int, seed: int) -> None:
    rng = random.Random(seed)
    paths = [
        (a, spines + a * cores + c, 500 + c * spines + b, 900 + b)
        for a in range(spines)
        for c in range(cores)
        for b in range(spines)
    ]
    rng.shuffle(paths)
    count = max(spines, spines * cores, len(paths) // 2)
    kept = spread(paths, count) if count < len(paths) else tuple(paths)
    assert len(set(kept)) == count
    for place in (0, 3):
        uses = [sum(path[place] == link for path in kept) for link in {path[place] for path in paths}]
        assert max(uses) - min(uses) <= max(2, count // 4)
        assert min(uses) > 0


def _contending(seed: int) -> World:
    """Two jobs all over two pods, whose links between switches carry it if they are used evenly."""
    world = World(
        pods=2, leaves=2, spines=2, cores=2, hosts_per_leaf=2, nic_bps=60e6, spine_bps=90e6, seed=seed
    )
    for job in (0, 1):
        world.all_to_all(list(range(job, world.hosts, 2)))
    return world


@pytest.mark.parametrize("seed", range(3))
def test_jobs_across_pods_are_placed_near_the_best_and_survive_a_link_to_a_core(seed: int) -> None:
    world = _contending(seed)
    world.run(8.0)
    before = world.run(1.0)[-1]
    assert before.min() >= 0.9 * 60e6 / 3
    for qp in world.qps:
        if len(world.path(qp)) > 2:
            assert qp.backup is not None
            assert set(world.path(qp)[1:-1]).isdisjoint(world.path(qp, qp.backup)[1:-1])
    world.cut_link("s0", "c1")
    world.run(1.0)
    world.localised = set(world.dead)
    after = world.run(4.0)[-1]
    assert after.min() >= 0.6 * 60e6 / 3
    for qp in world.qps:
        assert not any(world.links[i] in world.dead for i in world.path(qp))
