"""Patterns, plans and the mathematics of results, without running anything."""

import random
import subprocess
from collections import Counter
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cwdp.errors import ConfigError
from cwdp.rdma.sport import flow_label_to_sport
from tools.roce.flows import Endpoint, Flow, flow_label, largest_mtu, verbs_flow
from tools.roce.patterns import NIC_WINDOW, PATTERNS, shared_window
from tools.roce.process import PROGRAM
from tools.roce.results import lost_packets, summary, timeline

RANK = "rank id=0 iterations=0 seed=1 stall_ns=0 stall_every_ns=0\n"
STEP = "step compute_ns=0 jitter_ns=0\n"

hosts = st.integers(2, 64)
seeds = st.integers()


def end(host: int) -> Endpoint:
    return Endpoint(f"h{host}", ip_address("10.1.0.0") + host)


def flow(**settings: Any) -> Flow:
    return verbs_flow(7, end(1), end(2), 0x11, 0x12, **settings)


@given(hosts, seeds)
def test_a_permutation_is_one_cycle_through_all(count: int, seed: int) -> None:
    targets = dict(PATTERNS["permutation"](count, random.Random(seed)))
    host, seen = 0, []
    for _ in range(count):
        seen.append(host)
        host = targets[host]
    assert host == 0
    assert sorted(seen) == list(range(count))


@given(hosts)
def test_the_other_patterns(count: int) -> None:
    rng = random.Random(0)
    assert set(PATTERNS["ring"](count, rng)) == {(host, (host + 1) % count) for host in range(count)}
    pairs = PATTERNS["all-to-all"](count, rng)
    assert len(pairs) == len(set(pairs)) == count * (count - 1)
    assert all(source != target for source, target in pairs)
    assert PATTERNS["incast"](count, rng) == [(source, 0) for source in range(1, count)]


@given(st.integers(2, 2**24 - 2), st.integers(2, 2**24 - 2))
def test_source_ports_are_those_of_roce_and_the_same_both_ways(qpn: int, remote_qpn: int) -> None:
    port = flow_label_to_sport(flow_label(qpn, remote_qpn))
    assert 49152 <= port <= 65535
    assert port == flow_label_to_sport(flow_label(remote_qpn, qpn))


def test_source_ports_spread() -> None:
    ports = {flow_label_to_sport(flow_label(qpn, qpn + 1)) for qpn in range(1000, 2000)}
    assert len(ports) > 900


@pytest.mark.parametrize(
    ("link_mtu", "mtu"), [(1280, 1024), (1500, 1024), (4175, 2048), (4176, 4096), (9000, 4096)]
)
def test_the_largest_mtu_that_fits(link_mtu: int, mtu: int) -> None:
    assert largest_mtu(link_mtu) == mtu


def test_queue_pairs_that_meet_share_a_window() -> None:
    assert shared_window([(end(1), end(2)), (end(2), end(1))]) == NIC_WINDOW
    assert shared_window([(end(host), end(1)) for host in range(2, 10)]) == NIC_WINDOW // 8
    assert shared_window([(end(1), end(2))] * 1000) > 0


def test_both_ends_name_each_other() -> None:
    made = flow(first_psn=5, dscp=46, ecn=3)
    sends, receives = (
        dict(word.split("=") for word in line.split()[1:]) for line in (made.send_line(), made.receive_line())
    )
    assert (sends["local"], sends["remote"]) == (receives["remote"], receives["local"])
    assert (sends["qpn"], sends["remote_qpn"]) == (receives["remote_qpn"], receives["qpn"])
    assert sends["first_psn"] == receives["first_psn"] == "5"
    assert (int(sends["tos"]), int(receives["tos"])) == (46 << 2 | 3, 46 << 2 | 2)


@pytest.mark.parametrize(
    ("settings", "message"),
    [({"mtu": 1500}, "an MTU of 1500"), ({"message_bytes": 0}, "messages of 0 bytes")],
)
def test_a_flow_that_cannot_be_is_refused(settings: dict[str, int], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        flow(**settings)


def test_a_flow_has_one_ip_version() -> None:
    with pytest.raises(ConfigError, match="one IP version"):
        verbs_flow(1, end(1), Endpoint("h2", ip_address("fd0c::1")), 2, 3)


@pytest.mark.needs(PROGRAM)
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nonsense a=1\n", "nonsense, which means nothing"),
        ("snapshots\n", "no settings"),
        ("snapshots interval_ns=5 interval_ns\n", "interval_ns=5 is not a number from 1000000"),
        ("snapshots interval_ns=1e9\n", "interval_ns=1e9 is not a number"),
        ("snapshots other=1\n", "no setting other"),
        ("send id=1\n", "a line has 1 settings and needs"),
        (flow().send_line().replace("mtu=4096", "mtu=9000"), "mtu=9000 is not a number from 256 to 4096"),
        (flow().send_line().replace("qpn=17", "qpn=16777216"), "qpn=16777216 is not a number"),
        (flow().send_line().replace("10.1.0.1", "10.1.0"), "10.1.0 is not an IP address"),
        (flow().send_line().replace("10.1.0.1", "fd0c::1"), "other address's family"),
        (flow().send_line() * 2, "two queue pairs have the number 17"),
        (STEP, "a step belongs to no rank"),
        (RANK + "post flow=7\n", "a message belongs to no step"),
        (RANK + STEP, "the rank 0 neither waits for messages nor posts any"),
        (
            flow().send_line() + RANK + STEP + "await flow=7\n",
            "waits for the flow 7, which does not come here",
        ),
        (flow().receive_line() + RANK + STEP + "post flow=7\n", "to the flow 7, which does not begin here"),
    ],
)
def test_a_wrong_plan_is_refused_with_its_reason(tmp_path: Path, text: str, message: str) -> None:
    plan = tmp_path / "plan"
    plan.write_text(text)
    done = subprocess.run(
        [PROGRAM, plan], check=False, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=60
    )
    assert done.returncode == 2
    assert message in done.stderr


def test_a_summary_is_that_of_all_durations() -> None:
    values = np.random.default_rng(1).integers(1, 1000, size=5000)
    halves = [
        {"max_ns": int(half.max()), "counts": [list(pair) for pair in Counter(half.tolist()).items()]}
        for half in (values[:2000], values[2000:])
    ]
    found = summary(halves)
    assert found["count"] == 5000
    assert found["p50_ns"] == np.percentile(values, 50, method="inverted_cdf")
    assert found["p99_ns"] == np.percentile(values, 99, method="inverted_cdf")
    assert found["max_ns"] == values.max()


def test_a_summary_of_nothing() -> None:
    assert summary([{"max_ns": 0, "counts": []}])["p99_ns"] is None


def test_what_was_overtaken_was_not_lost() -> None:
    lost = {"psn": 5, "overtaken": False, "last_lost_sent_ns": 120}
    late = {"psn": 9, "overtaken": True, "last_lost_sent_ns": 500}
    nak = {"cause": "nak", "psn": 5, "first_sent_ns": 100, "last_sent_ns": 200}
    needless = {"cause": "nak", "psn": 9, "first_sent_ns": 450, "last_sent_ns": 600}
    timeout = {"cause": "timeout", "psn": 9, "first_sent_ns": 300, "last_sent_ns": 320}
    assert sorted(lost_packets([nak, needless], [lost, late])) == [100, 120]
    assert sorted(lost_packets([timeout], [])) == [300, 320]


def test_the_timeline_is_in_the_order_of_time() -> None:
    rows = timeline(
        {
            "h1": [{"at_ns": 30, "acked": [[1, 100, 2]], "delivered": []}],
            "h2": [{"at_ns": 20, "acked": [], "delivered": [[1, 150]]}],
        }
    )
    assert [row["at_ns"] for row in rows] == [20, 30]
    assert rows[0]["delivered_bytes"] == {1: 150}
    assert (rows[1]["acked_bytes"], rows[1]["retransmitted_packets"]) == ({1: 100}, {1: 2})
