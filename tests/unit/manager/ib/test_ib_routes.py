"""Ways through an InfiniBand subnet by its tables: exact, and two that share nothing."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from ib_worlds import clos, cut, named, port

from cwdp.shared.ib.names import Names
from cwdp.shared.ib.routes import Routes
from cwdp.shared.ib.subnet import NO_ROUTE
from manager.ib.ways import chosen, ways


def test_a_way_is_what_the_tables_say() -> None:
    subnet = clos()
    routes = Routes(subnet)
    src, dst = port(subnet, "h1 mlx5_0", 1), port(subnet, "h9 mlx5_0", 1)
    found = ways(routes, src, dst)
    assert [way.dlid for way in found] == [100, 101, 102, 103]
    assert named(subnet, found[1].leaves or ()) == ["h1/mlx5_0", "l0:6", "s1:3", "l2:2"]
    assert [subnet.names[row] for row in found[1].switches] == ["l0", "s1", "l2"]


@pytest.mark.parametrize(("leaves", "spines", "lmc"), [(4, 4, 2), (3, 2, 1), (2, 4, 2), (4, 3, 3)])
def test_every_pair_has_a_primary_and_a_backup_that_share_nothing(leaves: int, spines: int, lmc: int) -> None:
    subnet = clos(leaves=leaves, spines=spines, hosts=4, lmc=lmc)
    routes = Routes(subnet)
    for a, b in itertools.permutations(Names(subnet).nics.values(), 2):
        best = chosen(ways(routes, a, b))
        assert best.primary is not None
        if routes.first_switch(a) == routes.first_switch(b):
            assert best.backup is None
            continue
        assert best.backup is not None
        assert not set(best.primary.between) & set(best.backup.between)
        assert set(best.primary.switches) & set(best.backup.switches) == {
            best.primary.switches[0],
            best.primary.switches[-1],
        }
        assert not best.shares_switches


def test_one_lid_has_no_backup() -> None:
    subnet = clos(lmc=0)
    nics = Names(subnet).nics
    best = chosen(ways(Routes(subnet), nics["h0/mlx5_0"], nics["h9/mlx5_0"]))
    assert best.primary is not None
    assert best.backup is None


def test_what_crosses_a_link_that_is_gone_does_not_arrive() -> None:
    subnet = clos()
    gone = cut(subnet, port(subnet, "l0", 5))
    routes = Routes(gone)
    src, dst = port(gone, "h1 mlx5_0", 1), port(gone, "h9 mlx5_0", 1)
    assert [way.leaves is None for way in ways(routes, src, dst)] == [True, False, False, False]
    assert chosen(ways(routes, src, dst)).backup is not None
    assert routes.way(port(gone, "h1 mlx5_0", 1), 9_999) is None


def test_nothing_goes_over_a_link_that_is_not_active() -> None:
    subnet = clos()
    ports = subnet.ports.copy()
    ports["state"][port(subnet, "s0", 3)] = 2
    routes = Routes(replace(subnet, ports=ports))
    src, dst = port(subnet, "h1 mlx5_0", 1), port(subnet, "h9 mlx5_0", 1)
    assert [way.leaves is None for way in ways(routes, src, dst)] == [True, False, False, False]


@pytest.mark.parametrize("seed", range(20))
def test_whatever_tables_say_it_comes_to_an_end(seed: int) -> None:
    """Tables at random: circles, ports that are not there, LIDs of nobody. What arrives does so by links that there are."""
    draw, subnet = np.random.default_rng(seed), clos(leaves=3, spines=2, hosts=2)
    wrong = draw.random(subnet.tables.shape) < draw.choice([0.1, 0.5, 1.0])
    tables = np.where(wrong, draw.choice([0, 1, 2, 3, 4, 5, 9, NO_ROUTE], subnet.tables.shape), subnet.tables)
    subnet = replace(subnet, tables=tables.astype(np.uint8))
    routes = Routes(subnet)
    for src in Names(subnet).nics.values():
        for dlid in range(len(routes.owner)):
            leaves = routes.way(src, dlid)
            if leaves is None:
                continue
            for here, after in itertools.pairwise(leaves):
                entered = subnet.ports[subnet.ports["peer"][here]]
                assert entered["node"] == subnet.ports["node"][after]
                switch = subnet.switches.tolist().index(int(entered["node"]))
                assert subnet.tables[switch, dlid] == subnet.ports["number"][after]
            assert routes.owner[dlid] in (
                subnet.ports["peer"][leaves[-1]],
                *np.flatnonzero(
                    (subnet.ports["node"] == subnet.ports["node"][subnet.ports["peer"][leaves[-1]]])
                    & (subnet.ports["number"] == 0)
                ),
            )


def test_to_one_lid_and_from_one_switch_are_the_same_ways() -> None:
    subnet = clos(leaves=3, spines=2)
    routes = Routes(subnet)
    for lid in (64, 70, 101, 2):
        there = routes.to_lid(lid)
        for switch in range(len(subnet.switches)):
            ways_from = routes.from_switch(switch)
            assert there.arrives[switch] == ways_from.arrives[lid]
            assert [row for row in there.leaves[switch].tolist() if row >= 0] == [
                row for row in ways_from.leaves[lid].tolist() if row >= 0
            ]
