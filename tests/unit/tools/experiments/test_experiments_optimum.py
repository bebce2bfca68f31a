"""The linear programs against closed forms and against placements found by trying all of them."""

import itertools
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from tools.experiments.optimum import (
    fair_optimum_bps,
    fitting_spine_flows,
    link_capacities,
    placed_optimum_bps,
    total_optimum_bps,
)
from tools.lab.topology import LabSpec, Topology
from tools.roce.jobs import interleaved

RATE_BPS = 60_000_000


def fabric(leaves: int = 2, spines: int = 4, hosts: int = 4, spine_bps: int = RATE_BPS) -> Topology:
    return Topology(
        LabSpec(
            leaves=leaves,
            spines=spines,
            hosts_per_leaf=hosts,
            rate_bps=RATE_BPS,
            spine_rate_bps=spine_bps,
        )
    )


def job_pairs(topology: Topology) -> list[tuple[str, str]]:
    return [pair for job in interleaved(topology.hosts) for pair in job.pairs]


def test_two_jobs_of_four_just_fit_at_two_queue_pairs_a_spine() -> None:
    topology = fabric()
    pairs = job_pairs(topology)
    assert len(pairs) == 24
    assert fitting_spine_flows(topology, pairs) == 2
    demand = RATE_BPS / 3
    for spine_bps, expected in ((40_000_000, demand), (80_000_000, demand), (20_000_000, 10_000_000.0)):
        found = fair_optimum_bps(topology, pairs, demand, link_capacities(fabric(spine_bps=spine_bps)))
        assert found == pytest.approx(expected)


@pytest.mark.parametrize(
    ("spines", "slow", "fits"), [(3, 1.0, 3), (8, 1.0, 1), (4, 0.5, 3), (4, 0.0, 3), (1, 1.0, 8)]
)
def test_fitting_rates_of_other_fabrics(spines: int, slow: float, fits: int) -> None:
    topology = fabric(spines=spines)
    assert fitting_spine_flows(topology, job_pairs(topology), slow) == fits


@given(st.integers(2, 3), st.integers(1, 3), st.integers(0, 10_000), st.sampled_from([1.0, 0.5, 0.34]))
@settings(max_examples=40)
def test_what_is_said_to_fit_does_and_one_less_does_not(
    leaves: int, spines: int, seed: int, slow: float
) -> None:
    topology = fabric(leaves=leaves, spines=spines, hosts=2)
    rng = random.Random(seed)
    pairs = [pair for pair in itertools.permutations(topology.hosts, 2) if rng.random() < 0.3]
    crossing = [
        (a, b) for a, b in ((topology.nics[s][0].leaf, topology.nics[t][0].leaf) for s, t in pairs) if a != b
    ][:7]
    kept = [(f"h{2 * int(a[1:])}", f"h{2 * int(b[1:])}") for a, b in crossing]
    fits = fitting_spine_flows(topology, kept, slow)

    def placeable(each: int) -> bool:
        room = [int(each * slow + 1e-9)] + [each] * (spines - 1)
        for spines_of in itertools.product(range(spines), repeat=len(crossing)):
            used: dict[tuple[str, str, int], int] = {}
            for (a, b), spine in zip(crossing, spines_of, strict=True):
                for key in (("up", a, spine), ("down", b, spine)):
                    used[key] = used.get(key, 0) + 1
            if all(count <= room[key[2]] for key, count in used.items()):
                return True
        return False

    assert placeable(fits)
    assert fits == 1 or not placeable(fits - 1)


@given(st.integers(0, 10_000))
@settings(max_examples=25)
def test_fair_shares_never_exceed_the_total_and_grow_with_the_links(seed: int) -> None:
    rng = random.Random(seed)
    topology = fabric(leaves=rng.randint(2, 3), spines=rng.randint(1, 4), hosts=2)
    pairs = job_pairs(topology)
    slow = {
        name: rng.uniform(1e6, 6e7) for name, link in topology.links.items() if link.a.node.startswith("l")
    }
    capacities = link_capacities(topology, slow)
    demand = rng.uniform(1e6, 6e7)
    fair = fair_optimum_bps(topology, pairs, demand, capacities)
    total = total_optimum_bps(topology, pairs, demand, capacities)
    assert 0 < fair <= demand * (1 + 1e-9)
    assert fair * len(pairs) <= total * (1 + 1e-6)
    wider = {name: 2 * rate for name, rate in capacities.items()}
    assert fair_optimum_bps(topology, pairs, demand, wider) >= fair * (1 - 1e-9)


def test_dead_links_take_their_share_and_no_more() -> None:
    topology = fabric(hosts=2, spine_bps=30_000_000)
    pairs = [("h1", "h3"), ("h2", "h4")] * 4
    whole, one_dead = (
        total_optimum_bps(topology, pairs, 15_000_000, link_capacities(topology, dead=dead))
        for dead in ((), ("l1-s2",))
    )
    assert whole == pytest.approx(120_000_000)
    assert one_dead == pytest.approx(90_000_000)
    capacities = link_capacities(topology, dead=[f"l1-{spine}" for spine in topology.spines])
    assert total_optimum_bps(topology, pairs, 15_000_000, capacities) == pytest.approx(0)


@given(
    st.integers(2, 3),
    st.integers(2, 4),
    st.integers(0, 10_000),
    st.sampled_from([0.3, 0.6, 1.0]),
    st.booleans(),
)
@settings(max_examples=25)
def test_the_best_placement_of_whole_flows_is_that_of_trying_all(
    leaves: int, spines: int, seed: int, load: float, dead: bool
) -> None:
    rng = random.Random(seed)
    topology = fabric(leaves=leaves, spines=spines, hosts=2, spine_bps=RATE_BPS // 2)
    sources, targets = topology.hosts[:2], topology.hosts[2:4]
    pairs = [(rng.choice(sources), rng.choice(targets)) for _ in range(4)]
    capacity_bps = link_capacities(topology, dead=["l1-s1"] if dead else [])
    demand_bps = load * RATE_BPS
    tried = [
        _whole_bps(topology, pairs, demand_bps, capacity_bps, spine)
        for spine in itertools.product(topology.spines, repeat=4)
    ]
    found = placed_optimum_bps(topology, pairs, demand_bps, capacity_bps)
    assert found == pytest.approx(max(tried), rel=0.006)
    assert found <= total_optimum_bps(topology, pairs, demand_bps, capacity_bps) * 1.000001


def _whole_bps(
    topology: Topology,
    pairs: list[tuple[str, str]],
    demand_bps: float,
    capacity_bps: dict[str, float],
    chosen: tuple[str, ...],
) -> float:
    """What flows between the first two leaves carry in all over one spine each: where none shares two links that
    are full, each link takes what it can. Linear in the rates, so solved over a fabric where nobody else may go.
    """
    total = linprog(
        -np.ones(len(pairs)),
        A_ub=np.array(
            [
                [
                    link in (f"{a}>l1", f"l1>{spine}", f"{spine}>l2", f"l2>{b}")
                    for (a, b), spine in zip(pairs, chosen, strict=True)
                ]
                for link in capacity_bps
            ],
            dtype=float,
        ),
        b_ub=list(capacity_bps.values()),
        bounds=(0.0, demand_bps),
    )
    return float(-total.fun)


@given(st.integers(2, 3), st.integers(1, 2), st.integers(1, 3), st.integers(1, 2), st.integers(0, 10_000))
@settings(max_examples=25)
def test_between_pods_what_is_said_to_fit_does(
    pods: int, leaves: int, spines: int, cores: int, seed: int
) -> None:
    spec = LabSpec(pods=pods, leaves=leaves, spines=spines, cores=cores, hosts_per_leaf=2, rate_bps=RATE_BPS)
    topology = Topology(spec)
    rng = random.Random(seed)
    pairs = [pair for pair in itertools.permutations(topology.hosts, 2) if rng.random() < 0.2]
    fits = fitting_spine_flows(topology, pairs)
    demand = RATE_BPS / 16
    capacities = {
        direction: fits * demand if link in topology.switch_links else float(RATE_BPS)
        for link in topology.links.values()
        for direction in link.directions
    }
    if pairs:
        assert placed_optimum_bps(topology, pairs, demand, capacities) >= len(pairs) * demand * 0.99
