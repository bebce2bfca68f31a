"""What experiments make of a generator's result."""

import random
from typing import Any

import numpy as np
import pytest

from cwdp.errors import ConfigError
from tools.experiments import measure
from tools.experiments.contention.model import Arm, make_setting, summarise
from tools.experiments.contention.run import summarise_arm
from tools.experiments.failover.model import Cut, Kind, draw_cut, summarise_cut
from tools.experiments.failover.model import make_setting as make_failover
from tools.experiments.failover.run import summarise_arm as arm_of_failover
from tools.lab.topology import LabSpec, Topology
from tools.roce.jobs import interleaved


def test_jobs_take_turns_and_reach_every_leaf() -> None:
    topology = Topology(LabSpec())
    a, b = interleaved(topology.hosts)
    assert a.members == ("h1", "h3", "h5", "h7")
    assert b.members == ("h2", "h4", "h6", "h8")
    assert len(a.pairs) == len(set(a.pairs)) == 12
    with pytest.raises(ConfigError, match="2 jobs on 3 hosts"):
        interleaved(topology.hosts[:3])


def test_the_payload_of_a_message_of_known_packets() -> None:
    assert measure.payload_share(4096, 4096) == 4096 / (4096 + 58 + 16)
    assert measure.payload_share(3 * 1024, 1024) == 3072 / (3072 + 3 * 58 + 16)
    assert measure.payload_share(1025, 1024) == 1025 / (1025 + 2 * 58 + 16)


def result(rates_bps: dict[int, float], seconds: int = 8) -> dict[str, object]:
    """Queue pairs that deliver evenly; each target snapshots at moments of its own."""
    start_ns = 5_000_000_000
    flows = [
        {
            "id": flow,
            "source": f"h{1 + flow % 2}",
            "sports": [{"port": 50_000}] * (1 + flow % 2),
            "gap_events": [],
        }
        for flow in rates_bps
    ]
    timeline = [
        {
            "at_ns": start_ns + at_ns,
            "host": f"t{flow}",
            "delivered_bytes": {flow: round(rate_bps * at_ns / 8e9)},
        }
        for flow, rate_bps in rates_bps.items()
        for at_ns in range(100_000_000 + 7_000_000 * flow, seconds * 1_000_000_000, 100_000_000)
    ]
    quantiles = {"p50_ns": 1, "p99_ns": 2}
    total = {
        "completion": quantiles,
        "owd": quantiles,
        "outage_ns": 3,
        "retransmitted_packets": 4,
        "failed": 0,
        "icrc_errors": 0,
    }
    return {"start_ns": start_ns, "flows": flows, "timeline": timeline, "total": total, "idle_share": 0.5}


def test_goodput_is_read_between_snapshots() -> None:
    deliveries = measure.Deliveries(result({0: 8e6, 1: 2e6, 2: 4e6}))
    assert deliveries.mean_bps(3e9, 7e9) == pytest.approx([8e6, 2e6, 4e6], rel=1e-4)
    edges = np.arange(1e9, 6e9, 0.25e9)
    assert deliveries.rates_bps(edges) == pytest.approx(
        np.repeat([[8e6], [2e6], [4e6]], len(edges) - 1, axis=1), rel=1e-3
    )
    assert 7.8e9 < deliveries.end_ns < 8e9


def test_a_queue_pair_that_delivers_nothing_has_no_goodput() -> None:
    run = result({0: 8e6, 1: 0.0})
    assert measure.Deliveries(run).mean_bps(3e9, 7e9) == pytest.approx([8e6, 0.0], rel=1e-4)


def test_the_slowest_member_counts() -> None:
    setting = make_setting(LabSpec(rate_bps=30_000_000), spine_rate_bps=None, slow_share=1.0)
    assert setting.spec.spine_rate_bps == 20_000_000
    share = measure.payload_share(64 * 1024, 4096)
    assert setting.optimum_bps == pytest.approx(0.94 * 10_000_000 * share)
    row = summarise(setting, result({0: 8e6, 1: 2e6, 2: 4e6}))
    assert row["slowest_member_bps"] == pytest.approx(6e6, rel=1e-4)
    assert row["slowest_host_bps"] == pytest.approx(2e6, rel=1e-4)
    assert row["sum_bps"] == pytest.approx(14e6, rel=1e-4)
    assert row["optimum_share"] == pytest.approx(2e6 / setting.optimum_bps, rel=1e-4)
    assert row["moves"] == 1


def test_an_arm_is_compared_with_ecmp_seed_by_seed() -> None:
    base = summarise(make_setting(LabSpec(), spine_rate_bps=None, slow_share=1.0), result({0: 1e6, 1: 1e6}))
    runs = [
        base | {"arm": arm, "seed": seed, "slowest_member_bps": rate, "optimum_share": rate / 10}
        for arm, rates in (("ecmp", (4.0, 5.0, 2.0)), ("cwdp", (8.0, 9.0, 9.0)))
        for seed, rate in enumerate(rates)
    ]
    row = summarise_arm(Arm.CWDP, runs)
    assert row["over_ecmp_median"] == 2.0
    assert row["over_ecmp_min"] == 1.8
    assert row["optimum_share_min"] == 0.8
    assert summarise_arm(Arm.ECMP, runs)["over_ecmp_median"] == 1.0
    assert summarise_arm(Arm.CWDP, [run for run in runs if run["arm"] == "cwdp"])["over_ecmp_min"] is None


def test_an_outage_is_all_the_time_in_which_packets_were_lost_but_not_overtaken() -> None:
    gaps = [
        _gap(90, 95),
        _gap(100, 111),
        _gap(113, 114),
        _gap(120, 190, overtaken=True),
        _gap(150, None),
        _gap(300, 400),
    ]
    assert measure.outage_ns({"gap_events": gaps}, 98, 200) == 12
    assert measure.outage_ns({"gap_events": gaps}, 200, 250) is None
    assert measure.outage_ns({"gap_events": gaps[3:5]}, 98, 200) is None


def _gap(last_arrival_ns: int, last_lost_sent_ns: int | None, *, overtaken: bool = False) -> dict[str, Any]:
    return {
        "last_arrival_ns": last_arrival_ns,
        "last_lost_sent_ns": last_lost_sent_ns,
        "overtaken": overtaken,
    }


def test_cuts_are_drawn_among_the_links_in_use() -> None:
    topology = Topology(LabSpec(spines=3))
    rng = random.Random(1)
    used = ["l1>s2", "s2>l2"]
    for kind in Kind:
        for _ in range(20):
            cut = draw_cut(kind, used, topology, rng)
            if kind is Kind.SPINE:
                assert cut.links == ("l1-s2", "l2-s2")
            else:
                assert cut.links in (("l1-s2",), ("l2-s2",))
            assert cut.direction in (used if kind is Kind.ONE_WAY else ["both"])


def test_survivors_of_a_failover_carry_what_is_offered_unless_too_little_is_left() -> None:
    setting = make_failover(LabSpec(hosts_per_leaf=2, rate_bps=40_000_000), 0.6, None)
    assert setting.spec.spine_rate_bps == 20_000_000
    offered = setting.flow_bps * len(setting.pairs) * measure.payload_share(64 * 1024, 4096)
    assert setting.survivors_bps(["l1-s1"]) == pytest.approx(offered)
    assert setting.survivors_bps(["l1-s1", "l1-s2", "l1-s3"]) < 0.75 * offered


@pytest.mark.parametrize(
    ("cut", "hit"),
    [
        (Cut(Kind.SILENT, ("l1-s1",)), {0, 1, 2}),
        (Cut(Kind.ONE_WAY, ("l1-s1",), "l1>s1"), {0}),
        (Cut(Kind.ONE_WAY, ("l2-s1",), "s1>l2"), {0, 2}),
        (Cut(Kind.CARRIER, ("l1-s2",)), {3}),
        (Cut(Kind.SPINE, ("l1-s1", "l2-s1")), {0, 1, 2}),
    ],
    ids=str,
)
def test_who_is_hit_by_a_cut(cut: Cut, hit: set[int]) -> None:
    taken = [{"l1>s1", "s1>l2"}, {"l2>s1", "s1>l1"}, {"s1>l1", "s1>l2"}, {"l1>s2", "s2>l2"}, set()]
    assert {flow for flow, links in enumerate(taken) if cut.hits(frozenset(links))} == hit


def test_who_waits_for_a_timer_is_counted_though_nothing_was_lost() -> None:
    """A window that is used up before the switch: no packet was lost behind another one."""
    setting = make_failover(LabSpec(hosts_per_leaf=2, rate_bps=40_000_000), 0.6, None)
    run: dict[str, Any] = result({0: 8e6, 1: 8e6, 2: 8e6})
    cut_ns = run["start_ns"] + 4_000_000_000
    for flow, lasted_ns in zip(run["flows"], (90_000_000, 70_000_000, 80_000_000), strict=True):
        pauses = [(cut_ns - 3_000_000_000, 95_000_000), (cut_ns - 1_000_000, lasted_ns)]
        flow["pauses"] = [{"start_ns": at_ns, "lasted_ns": ns} for at_ns, ns in pauses]
        flow["failed"] = False
    taken = {0: frozenset({"l1>s1"}), 1: frozenset({"l1>s2"}), 2: frozenset({"s1>l1"})}
    cut = Cut(Kind.SILENT, ("l1-s1",))
    row = summarise_cut(setting, cut, taken, run, (cut_ns, cut_ns + 2_000_000_000))
    assert (row["stalls_ns"], row["outages_ns"]) == ([90_000_000, 80_000_000], [])
    assert row["placed_bps"] <= row["survivors_bps"] * 1.000001
    arm = arm_of_failover("cwdp", 0.6, [row | {"moves": 0}] * 3)
    assert (arm["queue_pairs_hit"], arm["stall_max_ns"]) == (6, 90_000_000)
    assert arm["outage_p99_ns"] is None


def test_a_stall_that_is_not_among_the_pauses_known_was_no_longer_than_they() -> None:
    pauses = [{"start_ns": at_ns, "lasted_ns": 1000 - at_ns} for at_ns in (100, 200, 300)]
    flow = {"failed": False, "pauses": pauses}
    assert measure.stall_ns(flow, 10**9, 10**9 + 500) == 700
    assert measure.stall_ns(flow | {"pauses": []}, 10**9, 10**9 + 500) == 0
