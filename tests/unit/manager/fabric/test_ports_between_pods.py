"""Pairs of NICs of different pods are traced as far as their probes need it."""

import numpy as np
import pytest
from fabric_fakes import FakeClos
from traced_as_ordered import converge

from manager.fabric.fabric import Fabric
from manager.fabric.orders import Orders
from manager.fabric.path_counts import PathCounts


@pytest.mark.parametrize(("aggs", "spines"), [(1, 1), (1, 2), (4, 4), (8, 8)])
def test_pairs_between_pods_that_only_probe_seek_no_more_than_other_paths(aggs: int, spines: int) -> None:
    clos = FakeClos(leaves=4, pods=2, aggs=aggs, spines=spines, meshed=True, hosts_per_leaf=4)
    orders, fabric = Orders(), Fabric()
    in_use = {(src.name, dst.address): [60_000, 60_001] for src, dst in clos.pairs()}
    ours = {nic.host for nic in clos.all_nics if nic.leaf < 2}
    far = {(src.name, dst.address) for src, dst in clos.pairs() if (src.host in ours) != (dst.host in ours)}
    converge(clos, orders, fabric, in_use, dict.fromkeys(in_use, 2), far=far)
    counts = PathCounts(fabric.routes)
    for src, dst in clos.pairs():
        pair = src.name, dst.address
        known = counts.of(*pair)
        assert known.paths >= min(2, len(clos.ways(src, dst)))
        assert pair in far or known.link_confidence >= 0.99
    ports = {
        (f"{host}/{order.nic}", order.dst_addr): len(order.sports)
        for host, told in orders.by_host.items()
        for order in told
    }
    if aggs > 1:
        assert np.mean([ports[pair] for pair in far]) <= 6
    assert counts.covered_leaves(ours) == {clos.switch("leaf", 1), clos.switch("leaf", 2)}
    assert counts.covered_leaves() >= counts.covered_leaves(ours) or aggs > 1
    assert not counts.covered_leaves(())
