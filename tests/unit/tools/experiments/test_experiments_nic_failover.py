"""What the experiment nic-failover draws and sums up."""

import random

import pytest

from tools.experiments import measure
from tools.experiments.nic_failover import model
from tools.experiments.nic_failover.model import Kind
from tools.lab import LabSpec
from tools.lab.topology import Topology

SPEC = LabSpec(leaves=3, spines=2, hosts_per_leaf=2, nics=2)
MS = 1_000_000


@pytest.mark.parametrize("ipv6", [False, True])
def test_every_nic_sends_to_both_nics_of_one_other_host(ipv6: bool) -> None:
    flows = model.make_flows(SPEC, 0.3, seed=1, ipv6=ipv6)
    assert len(flows) == 6 * 2 * 2
    by_source = {flow.source for flow in flows}
    assert len(by_source) == 6 * 2
    for source in by_source:
        mine = [flow for flow in flows if flow.source == source]
        assert len({flow.target.host for flow in mine}) == 1
        assert len({flow.target for flow in mine}) == 2
        assert mine[0].target.host != source.host
        assert sum(flow.rate_bps or 0 for flow in mine) == pytest.approx(0.3 * SPEC.rate_bps, rel=1e-6)
    assert {flow.source.address.version for flow in flows} == {6 if ipv6 else 4}


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("kind", [Kind.SILENT, Kind.CARRIER])
def test_one_nic_dies(kind: Kind, seed: int) -> None:
    death = model.draw_death(kind, SPEC, random.Random(seed))
    nic = next(nic for nic in Topology(SPEC).nics[death.host] if nic.name == death.nic)
    assert death.links == (f"{death.host}-{nic.leaf}",)
    assert death.addresses == {str(nic.ipv4), str(nic.ipv6)}


@pytest.mark.parametrize("seed", range(20))
def test_a_leaf_loses_its_uplinks(seed: int) -> None:
    death = model.draw_death(Kind.LEAF, SPEC, random.Random(seed))
    leaf = death.links[0].split("-")[0]
    assert {link.split("-")[1] for link in death.links} == {"s1", "s2"}
    assert len(death.addresses) == 2 * sum(
        nic.leaf == leaf for nics in Topology(SPEC).nics.values() for nic in nics
    )


@pytest.mark.parametrize(("kind", "expected"), [(Kind.SILENT, [1, 2, 3]), (Kind.LEAF, [1, 2])])
def test_who_is_hit(kind: Kind, expected: list[int]) -> None:
    """Below one leaf nothing is lost with the uplinks."""
    death = model.Death(kind, "h1", "nic0", ("h1-l1",), frozenset({"a", "b"}))
    pairs = {1: ("a", "x"), 2: ("x", "b"), 3: ("a", "b"), 4: ("x", "y")}
    flows = [{"id": n, "source_address": s, "target_address": t} for n, (s, t) in pairs.items()]
    assert [flow["id"] for flow in model.hit_flows(death, {"flows": flows})] == expected


@pytest.mark.parametrize(
    ("began_ms", "expected_ms"), [(0, 30), (950, 80), (1000, 80), (1999, 80), (2000, 30)]
)
def test_a_stall_counts_where_it_began(began_ms: int, expected_ms: int) -> None:
    """From the last delivery before a death, which may lie one interval of packets before it."""
    pauses = [(began_ms, 80), (3000, 30)]
    flow = {"pauses": [{"start_ns": at * MS, "lasted_ns": ms * MS} for at, ms in pauses], "failed": False}
    assert measure.stall_ns(flow, 1000 * MS, 2000 * MS) == expected_ms * MS


def test_a_longer_stall_elsewhere_hides_none() -> None:
    pauses = [(200, 500), (1010, 70), (1500, 90), (2600, 400)]
    flow = {"pauses": [{"start_ns": at * MS, "lasted_ns": ms * MS} for at, ms in pauses], "failed": False}
    assert measure.stall_ns(flow, 1000 * MS, 2000 * MS) == 90 * MS


def test_what_died_delivered_nothing() -> None:
    flow = {"outage_start_ns": 0, "outage_ns": 1, "failed": True}
    assert measure.stall_ns(flow, 1000 * MS, 2000 * MS) == 1000 * MS


def test_both_ways_are_steered_with_a_backup() -> None:
    topology = Topology(SPEC)
    for flow in model.make_flows(SPEC, 0.3, seed=2):
        there, back = model.overrides(topology, flow)
        assert (there["host"], there["dst"], there["qpn"]) == (
            flow.source.host,
            str(flow.target.address),
            flow.remote_qpn,
        )
        assert (back["host"], back["dst"], back["qpn"]) == (
            flow.target.host,
            str(flow.source.address),
            flow.qpn,
        )
        for override in (there, back):
            assert 49_152 <= override["backup_sport"] <= 65_535
            assert override["sport"] != override["backup_sport"]
