"""Placement of queue pairs: against the linear program, brute force and its own bound, over random fabrics."""

import itertools

import numpy as np
import pytest

from manager.placement import (
    Demand,
    Fabric,
    PathSet,
    fullest,
    improve,
    link_loads,
    place,
    replace_lost,
    utilisation,
)
from manager.placement.bounds import lower_bound, optimum
from tools.lab.topology import LabSpec, Topology


def _clos(leaves: int, spines: int, capacity_bps: float = 1e9, slow: float = 1.0) -> Fabric:
    """A leaf-spine fabric whose first spine's links have another capacity; pair a * leaves + b leads from a to b."""
    up = np.arange(leaves * spines).reshape(leaves, spines)
    down = up + leaves * spines
    pair = np.arange(leaves * leaves)
    capacity = np.full(2 * leaves * spines, capacity_bps)
    capacity[up[:, 0]] *= slow
    capacity[down[:, 0]] *= slow
    links = np.stack([up[pair // leaves], down[pair % leaves]])
    return Fabric(capacity, PathSet(links, 2 * leaves * spines))


def _random_demand(leaves: int, count: int, rng: np.random.Generator) -> Demand:
    src = rng.integers(0, leaves, count)
    dst = (src + rng.integers(1, leaves, count)) % leaves
    return Demand(src * leaves + dst, rng.uniform(0.2e9, 1e9, count))


def _all_to_all(hosts: int, leaves: int, nic_bps: float) -> Demand:
    """Two jobs that take every other host each, all to all."""
    pairs = []
    for job in (0, 1):
        members = range(job, hosts, 2)
        for a, b in itertools.permutations(members, 2):
            leaf_a, leaf_b = a * leaves // hosts, b * leaves // hosts
            if leaf_a != leaf_b:
                pairs.append(leaf_a * leaves + leaf_b)
    per_host = hosts // 2 - 1
    return Demand(np.array(pairs), np.full(len(pairs), nic_bps / per_host))


@pytest.mark.parametrize("spines", [2, 3, 4, 8])
def test_two_jobs_fit_where_the_best_placement_just_fits(spines: int) -> None:
    demand = _all_to_all(8, 2, 1e9)
    flows_per_leaf = len(demand.pair) // 2
    capacity = -(-flows_per_leaf // spines) * demand.rate_bps[0]
    fabric = _clos(2, spines, capacity)
    choice = improve(fabric, demand, place(fabric, demand))
    assert fullest(fabric, demand, choice) <= 1.0 + 1e-9
    assert optimum(fabric, demand) <= 1.0 + 1e-9


@pytest.mark.parametrize("seed", range(8))
def test_it_is_as_good_as_trying_everything(seed: int) -> None:
    rng = np.random.default_rng(seed)
    fabric = _clos(2, 3, slow=float(rng.choice([1.0, 0.5])))
    demand = _random_demand(2, 6, rng)
    best = min(
        fullest(fabric, demand, np.array(choice))
        for choice in itertools.product(range(3), repeat=len(demand.pair))
    )
    found = fullest(fabric, demand, improve(fabric, demand, place(fabric, demand)))
    assert found <= best * 1.15
    assert lower_bound(fabric, demand) <= best * (1 + 1e-9)
    assert optimum(fabric, demand) <= best * (1 + 1e-9)


@pytest.mark.parametrize("seed", range(12))
def test_it_comes_close_to_the_bound_with_many_queue_pairs(seed: int) -> None:
    rng = np.random.default_rng(seed)
    leaves, spines = int(rng.integers(3, 12)), int(rng.integers(2, 9))
    fabric = _clos(leaves, spines, slow=float(rng.choice([1.0, 0.5, 0.25])))
    demand = _random_demand(leaves, leaves * spines * 12, rng)
    choice = improve(fabric, demand, place(fabric, demand))
    assert fullest(fabric, demand, choice) <= 1.05 * max(lower_bound(fabric, demand), optimum(fabric, demand))


@pytest.mark.parametrize("seed", range(12))
def test_chains_find_a_place_for_everybody_where_there_is_one(seed: int) -> None:
    """A permutation of hosts over leaves is a regular bipartite graph: as many spines as hosts a leaf are enough."""
    rng = np.random.default_rng(seed)
    leaves, width = int(rng.integers(3, 16)), int(rng.integers(4, 16))
    fabric = _clos(leaves, width, 1e9)
    hosts = np.arange(leaves * width)
    src, dst = hosts // width, rng.permutation(hosts) // width
    demand = Demand((src * leaves + dst)[src != dst], np.full(np.count_nonzero(src != dst), 1e9))
    assert fullest(fabric, demand, improve(fabric, demand, place(fabric, demand))) <= 1.0 + 1e-9


@pytest.mark.parametrize("seed", range(10))
def test_after_a_failure_only_the_lost_are_placed_anew_and_all_is_even_again(seed: int) -> None:
    rng = np.random.default_rng(seed)
    fabric = _clos(6, 4)
    demand = _random_demand(6, 400, rng)
    before = improve(fabric, demand, place(fabric, demand))
    dead = int(rng.integers(0, fabric.paths.link_count))
    broken = Fabric(
        np.where(np.arange(fabric.paths.link_count) == dead, 0.0, fabric.capacity_bps), fabric.paths
    )
    after = replace_lost(broken, demand, before)
    crossed = (fabric.paths.links[:, demand.pair, before] == dead).any(axis=0)
    assert (after[~crossed] == before[~crossed]).all()
    assert link_loads(broken, demand, after)[dead] == 0.0
    even = improve(broken, demand, after)
    assert link_loads(broken, demand, even)[dead] == 0.0
    assert fullest(broken, demand, even) <= 1.05 * lower_bound(broken, demand)


@pytest.mark.parametrize("seed", range(10))
def test_limits_are_kept(seed: int) -> None:
    rng = np.random.default_rng(seed)
    fabric, demand = _clos(4, 4), _random_demand(4, 100, rng)
    start = rng.integers(0, 4, 100)
    movable = rng.random(100) < 0.5
    choice = improve(fabric, demand, start, movable=movable, most_moves=7)
    assert np.count_nonzero(choice != start) <= 7
    assert (choice[~movable] == start[~movable]).all()
    assert fullest(fabric, demand, choice) <= fullest(fabric, demand, start)


def test_of_moves_that_help_alike_the_least_unwelcome_is_made() -> None:
    fabric = _clos(2, 2)
    demand = Demand(np.full(4, 1), np.full(4, 1e8))
    choice = improve(
        fabric, demand, np.array([0, 0, 0, 1]), reluctance=np.array([3.0, 1.0, 2.0, 0.0]), least_gain=0.01
    )
    assert choice.tolist() == [0, 1, 0, 1]


def test_a_move_that_gains_little_is_not_made() -> None:
    fabric = _clos(2, 2)
    demand = Demand(np.full(21, 1), np.full(21, 1e8))
    start = np.array([0] * 11 + [1] * 10)
    assert (improve(fabric, demand, start) == start).all()
    start[10] = 1
    start[9] = 1
    assert (improve(fabric, demand, start, least_gain=0.2) == start).all()
    assert np.count_nonzero(improve(fabric, demand, start, least_gain=0.05) != start) == 1


def test_what_shares_no_link_loads_none() -> None:
    paths = PathSet.of([[()], [(0, 1), (2,)]], 3)
    fabric = Fabric(np.ones(3), paths)
    demand = Demand(np.array([0, 1, 1]), np.array([5.0, 1.0, 1.0]))
    choice = place(fabric, demand)
    assert utilisation(fabric, demand, choice).tolist() == [1.0, 1.0, 1.0, 0.0]
    assert lower_bound(fabric, demand) <= 1.0


def test_with_every_link_dead_there_is_a_place_nevertheless() -> None:
    fabric = _clos(2, 2, 0.0)
    demand = Demand(np.full(3, 1), np.full(3, 1e8))
    choice = replace_lost(fabric, demand, place(fabric, demand))
    assert set(choice.tolist()) <= {0, 1}


def _three_tiers(pods: int, leaves: int, spines: int, cores: int) -> Fabric:
    """Every leaf of every pod to every other, over every way up and down; pair a * all leaves + b leads from a to b."""
    topology = Topology(LabSpec(pods=pods, leaves=leaves, spines=spines, cores=cores, hosts_per_leaf=1))
    links: dict[tuple[str, str], int] = {}
    pairs = [
        [
            [links.setdefault(hop, len(links)) for hop in itertools.pairwise(way)]
            for way in topology.ways(a, b)
        ]
        for a, b in itertools.product(topology.leaves, repeat=2)
    ]
    return Fabric(np.full(len(links), 1e9), PathSet.of(pairs, len(links)))


@pytest.mark.parametrize(("pods", "leaves", "spines", "cores"), [(2, 2, 2, 2), (4, 3, 2, 3), (16, 2, 2, 2)])
def test_in_three_tiers_placement_is_near_its_bound_and_so_after_a_link_has_died(
    pods: int, leaves: int, spines: int, cores: int
) -> None:
    rng = np.random.default_rng(pods * leaves)
    fabric = _three_tiers(pods, leaves, spines, cores)
    demand = _random_demand(pods * leaves, 40 * pods * leaves, rng)
    choice = improve(fabric, demand, place(fabric, demand))
    assert fullest(fabric, demand, choice) <= 1.05 * lower_bound(fabric, demand)
    if pods < 16:
        assert fullest(fabric, demand, choice) <= 1.05 * optimum(fabric, demand)
    capacity = fabric.capacity_bps.copy()
    capacity[rng.integers(len(capacity))] = 0.0
    broken = Fabric(capacity, fabric.paths)
    again = improve(broken, demand, replace_lost(broken, demand, choice))
    assert fullest(broken, demand, again) <= 1.1 * lower_bound(broken, demand)


@pytest.mark.parametrize("seed", range(20))
def test_pairs_with_fewer_paths_than_others_are_put_on_paths_of_their_own(seed: int) -> None:
    """Chains of moves lead through queue pairs of any pair."""
    rng = np.random.default_rng(seed)
    links = 12
    pairs = [
        [
            rng.choice(links, int(rng.integers(1, 4)), replace=False).tolist()
            for _ in range(int(rng.integers(1, 6)))
        ]
        for _ in range(8)
    ]
    fabric = Fabric(rng.uniform(0.5e9, 1e9, links), PathSet.of(pairs, links))
    demand = Demand(rng.integers(0, len(pairs), 60), rng.uniform(0.01e9, 0.2e9, 60))
    before = place(fabric, demand)
    after = improve(fabric, demand, rng.permutation(before) % np.array([len(pairs[p]) for p in demand.pair]))
    for choice in (before, after):
        assert (choice < [len(pairs[p]) for p in demand.pair]).all()
    assert fullest(fabric, demand, after) >= lower_bound(fabric, demand) * (1 - 1e-9)
    assert optimum(fabric, demand) <= fullest(fabric, demand, after) * (1 + 1e-6)
    assert lower_bound(fabric, demand) <= fullest(fabric, demand, before) * (1 + 1e-9)
