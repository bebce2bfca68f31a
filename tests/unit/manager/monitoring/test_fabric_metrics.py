"""Metrics of links and findings: what they say of small fabrics, and that their number does not grow with large ones."""

import asyncio
from collections import Counter

import numpy as np
import pytest
from fabric_fakes import FakeClos
from large_fleet import LargeFleet, add_finding, collector_of, send
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from manager.api.finding_metrics import MOST_FINDINGS, job_metrics
from manager.api.link_metrics import MOST_LEAVES
from manager.api.metrics import Scrape
from manager.clock.apart import Apart
from manager.fabric.fabric import Fabric
from manager.fabric.model import Model
from manager.fabric.places import NIC, UNKNOWN, link_places
from manager.fabric.routes import DirectedLink
from manager.faults.finding import Subject, cable, direction
from manager.faults.watch import FaultWatch
from manager.moment.talkers import Talkers
from manager.placement.flows import QpName
from manager.state import FleetState
from manager.view.severity import severity

Samples = dict[tuple[str, ...], float]
MOST_SERIES = 50_000


def samples(state: FleetState) -> Samples:
    """What a scrape says, by the metric's name and the values of its labels."""
    found = {
        (sample.name, *sample.labels.values()): sample.value
        for family in scrape(state).collect()
        for sample in family.samples
    }
    assert found["cwdp_collector_success",] == 1
    return found


def scrape(state: FleetState) -> Scrape:
    collector = collector_of(state)
    return collector.scrape(asyncio.run(collector.tables()))


def of(found: Samples, name: str) -> dict[tuple[str, ...], float]:
    return {key[1:]: value for key, value in found.items() if key[0] == name}


def test_below_50_000_series_at_100_000_nics_whatever_is_wrong() -> None:
    fleet = LargeFleet(hosts=12_500)
    assert fleet.leaves > 2 * MOST_LEAVES
    found = samples(fleet.state(findings=5_000))
    assert len(found) < MOST_SERIES
    assert len(of(found, "cwdp_finding_start_seconds")) == MOST_FINDINGS
    assert sum(of(found, "cwdp_findings").values()) == 5_000


def test_above_the_limits_a_larger_fabric_has_no_more_series() -> None:
    sizes = {
        len(samples(LargeFleet(hosts=hosts, hosts_per_leaf=4, leaves_per_pod=64).state(findings=600)))
        for hosts in (520, 700, 1_100)
    }
    assert len(sizes) == 1


@pytest.mark.parametrize(
    "clos", [FakeClos(), FakeClos(leaves=4, nics=2, spines=2), FakeClos(leaves=4, pods=2)]
)
def test_tiers_and_leaves_are_those_of_the_fabrics_model(clos: FakeClos) -> None:
    fabric = Fabric()
    clos.tell(fabric)
    model = Model(fabric.routes, frozenset(clos.addresses.values()))
    places = link_places(fabric.routes.links)
    tier = {node.name: node.tier for node in model.nodes}
    expected = [[tier.get(node, NIC) for node in link] for link in fabric.routes.links]
    assert np.array_equal(np.stack([places.src_tier, places.dst_tier], axis=1), expected)
    assert places.leaves == tuple(sorted(name for name, each in tier.items() if each == 1))
    assert places.rails == tuple(model.rails)


def test_rails_are_those_of_the_fabrics_model() -> None:
    fleet = LargeFleet(hosts=6, rails=3, hosts_per_leaf=2)
    links = fleet.links()
    places = link_places(links)
    assert places.rails == ("nic0", "nic1", "nic2")
    for i, (a, b) in enumerate(links):
        nic = next((node for node in (a, b) if "/" in node), None)
        if nic is not None:
            assert places.rails[places.rail[i]] == nic.partition("/")[2]
    crossed = [*links, DirectedLink("h0/nic0", fleet.leaf(0, 1))]
    assert link_places(crossed).rails == ()


def test_what_nobody_knows_has_no_tier() -> None:
    links = [DirectedLink("h1/nic0", "?h1/nic0>10.0.0.2:50000"), DirectedLink("s1", "s2")]
    places = link_places(links)
    assert places.dst_tier.tolist() == [UNKNOWN, UNKNOWN]
    assert places.leaf.tolist() == [-1, -1]
    assert link_places([]).leaves == ()


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("hosts", [40, 4 * (MOST_LEAVES + 50)])
def test_what_links_carry_adds_up_over_tiers_and_leaves(hosts: int, seed: int) -> None:
    fleet = LargeFleet(hosts=hosts, rails=1, hosts_per_leaf=4, leaves_per_pod=16, seed=seed)
    state = fleet.state()
    found = samples(state)
    loads, places = state.links, link_places(state.links.routes.links)
    by_tier = of(found, "cwdp_link_load_bps")
    assert sum(by_tier.values()) == pytest.approx(loads.load_bps.sum())
    beside = of(found, "cwdp_leaf_load_bps")
    assert sum(beside.values()) == pytest.approx(loads.load_bps[places.leaf >= 0].sum())
    assert ("other", "up") in beside or fleet.leaves <= MOST_LEAVES
    for side, pair in {
        "from_nics": ("nic", "1"),
        "to_nics": ("1", "nic"),
        "up": ("1", "2"),
        "down": ("2", "1"),
    }.items():
        mine = [value for (_, each), value in beside.items() if each == side]
        assert sum(mine) == pytest.approx(by_tier[pair])
        longest = max(
            value for (_, each), value in of(found, "cwdp_leaf_queue_p99_max_seconds").items() if each == side
        )
        assert longest == pytest.approx(found["cwdp_link_queue_p99_seconds", *pair, "1.0"])


def test_links_are_counted_by_the_gravest_that_is_said_of_them() -> None:
    fleet = LargeFleet(hosts=8, rails=2, hosts_per_leaf=4)
    state = fleet.state()
    count = len(state.links.routes.links)
    add_finding(state, "lossy", direction(DirectedLink("h1/nic0", fleet.leaf(1, 0))))
    add_finding(state, "dead", cable(DirectedLink("h1/nic0", fleet.leaf(1, 0))))
    add_finding(state, "slow", direction(DirectedLink(fleet.leaf(0, 0), "10.254.2.0")))
    found = samples(state)
    links = of(found, "cwdp_links")
    assert sum(links.values()) == count
    assert links["nic", "1", "dead"] == links["1", "nic", "dead"] == 1
    assert links["nic", "1", "lossy"] == 0
    assert links["1", "2", "slow"] == 1
    assert found["cwdp_leaf_links_in_trouble", fleet.leaf(0, 0)] == 3
    assert of(found, "cwdp_rail_links_in_trouble") == {("nic0",): 3, ("nic1",): 0}
    assert of(found, "cwdp_hosts") == {("healthy",): 7, ("affected",): 1, ("lost",): 0}


def test_the_gravest_findings_are_named_with_their_starts() -> None:
    state = LargeFleet(hosts=2, rails=1).state()
    for i in range(MOST_FINDINGS + 20):
        add_finding(state, "lossy", Subject("direction", f"a{i} > b"), start_s=float(i))
    add_finding(state, "silent", Subject("switch", 's "1"\n'), start_s=9e8)
    found = samples(state)
    named = of(found, "cwdp_finding_start_seconds")
    assert named["silent", "critical", 's "1"\n'] == 9e8
    assert len(named) == MOST_FINDINGS
    assert ("lossy", "warning", "a0 > b") in named
    assert ("lossy", "warning", f"a{MOST_FINDINGS + 10} > b") not in named
    counts = Counter({key: int(value) for key, value in of(found, "cwdp_findings").items()})
    assert +counts == {("lossy", "warning"): MOST_FINDINGS + 20, ("silent", severity("silent")): 1}
    assert found["cwdp_findings_opened_total", "lossy"] == MOST_FINDINGS + 20


def test_names_are_told_as_they_are() -> None:
    name = 's"1"\n{a="b"} 7\\ \u2603'
    state = LargeFleet(hosts=1, rails=1).state()
    add_finding(state, "dead", Subject("switch", name))
    registry = CollectorRegistry()
    registry.register(scrape(state))
    read = text_string_to_metric_families(generate_latest(registry).decode())
    subjects = [s.labels["subject"] for family in read for s in family.samples if "subject" in s.labels]
    assert subjects == [name]


def test_what_went_and_came_back_is_counted_after_it_is_over() -> None:
    watch = FaultWatch(lambda *_args, **_more: None)
    for up in (False, True, False, True):
        watch.follow_carriers({"h1/nic0": up}, [])
    assert watch.flaps.total == 4
    assert not watch.findings.current
    assert watch.findings.opened == {"dead": 2}


def test_a_fleet_that_nothing_is_known_of_has_no_links() -> None:
    found = samples(LargeFleet(hosts=0).state())
    assert of(found, "cwdp_links") == {}
    assert sum(of(found, "cwdp_findings").values()) == 0


def _talkers() -> Talkers:
    """Two jobs: h0 and h1 over a spine, h2 and h3 within a leaf."""
    ends = [("h0", "h1/nic0"), ("h1", "h0/nic0"), ("h2", "h3/nic0")]
    links = [
        ("h0/nic0", "l1"),
        ("l1", "s1"),
        ("s1", "l2"),
        ("l2", "h1/nic0"),
        ("h2/nic0", "l1"),
        ("l1", "h3/nic0"),
    ]
    return Talkers(
        names=[QpName(host, "nic0", dst, 7) for host, dst in ends],
        dst=[dst for _, dst in ends],
        sport=np.full(3, 50_000),
        rate_bps=np.array([1e9, np.nan, 2e9]),
        links=links,
        crossed=np.array([[0, 1, 2, 3], [-1, -1, -1, -1], [4, 5, -1, -1]], np.int32),
    )


@pytest.mark.parametrize(
    ("subject", "affected"),
    [
        (Subject("host", "h9"), 0),
        (Subject("host", "h3"), 1),
        (Subject("nic", "h1/nic0"), 1),
        (direction(DirectedLink("l1", "s1")), 1),
        (direction(DirectedLink("s1", "l1")), 0),
        (Subject("switch", "l1", (DirectedLink("l1", "s1"), DirectedLink("h2/nic0", "l1"))), 2),
    ],
)
def test_a_job_is_affected_by_what_its_queue_pairs_cross(subject: Subject, affected: int) -> None:
    state = LargeFleet(hosts=4, rails=1).state()
    finding = add_finding(state, "slow", subject)
    (jobs,) = job_metrics(_talkers(), [finding])
    values = {sample.labels["state"]: sample.value for sample in jobs.samples}
    assert values == {"healthy": 2 - affected, "affected": affected}


def test_jobs_are_made_of_hosts_whose_queue_pairs_connect_them() -> None:
    fleet = LargeFleet(hosts=9, rails=2, hosts_per_leaf=3)
    state = fleet.state()
    send(fleet, state, [(0, 1), (1, 2), (4, 5), (6, 7)])
    assert of(samples(state), "cwdp_jobs") == {("healthy",): 3, ("affected",): 0}
    add_finding(state, "slow_sender", Subject("host", "h5"))
    assert of(samples(state), "cwdp_jobs") == {("healthy",): 2, ("affected",): 1}


def test_jobs_that_were_found_a_moment_ago_are_told_again() -> None:
    fleet = LargeFleet(hosts=3, rails=1)
    state = fleet.state()
    send(fleet, state, [(0, 1)])
    collector = collector_of(state)
    told = []
    for tables in (asyncio.run(collector.tables()), None):
        families = {family.name: family for family in collector.scrape(tables).collect()}
        told.append([sample.value for sample in families["cwdp_jobs"].samples])
    assert told == [[1, 0], [1, 0]]


def test_what_other_pods_leaders_say_of_hosts_and_timelines_is_counted() -> None:
    state = LargeFleet(hosts=0).state()
    elsewhere = state.members.elsewhere
    for epoch in (2, 1):
        elsewhere.take("b", [], epoch=epoch, number=1, timeline="t", now_s=0.0)
    elsewhere.apart = {"b": Apart(ref_ns=0, ahead_ns=1, frac_ns=0.0, rate=0.0, bound_ns=9.0, bound_rate=0.0)}
    found = samples(state)
    hosts = of(found, "cwdp_manager_pod_hosts_total")
    assert (hosts["ok",], hosts["old_leader",], hosts["held_here",]) == (1, 1, 0)
    assert of(found, "cwdp_manager_pod_traces_total") == {("ok",): 0, ("not_theirs",): 0}
    assert found["cwdp_manager_pod_timelines",] == 1
