"""The experiments with TCP: who sends to whom, what is best possible, and what is made of what was seen."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import ip_address
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from cwdp.dataplane import abi
from cwdp.errors import ConfigError, LabError
from tools.experiments.fleets import RARE_PULSES
from tools.experiments.tcp import arms, contention, contention_run, failover
from tools.experiments.tcp.arms import Arm
from tools.experiments.tcp.watching import Ends, Received
from tools.lab import LabSpec
from tools.lab.topology import Topology
from tools.lab.truth.passing import tcp_between
from tools.mpi.allreduce import Job, Reduces, command

MS = 1_000_000
SPEC = LabSpec(by_headers=True, rate_bps=15_000_000)


def test_neighbours_in_a_ring_are_below_different_leaves_and_one_placement_just_fits() -> None:
    setting = contention.make_setting(SPEC)
    assert setting.members == (("h1", "h5", "h3", "h7"), ("h2", "h6", "h4", "h8"))
    leaf = {host: nics[0].leaf for host, nics in Topology(SPEC).nics.items()}
    for job in setting.jobs("ipv4"):
        assert all(leaf[a] != leaf[b] for a, b in job.pairs)
    assert setting.spec.spine_rate_bps == SPEC.rate_bps
    assert setting.optimum_bps == pytest.approx(SPEC.rate_bps)
    assert [job.ports for job in setting.jobs("ipv6")] == [(10_000, 100), (10_100, 100)]


def test_the_best_time_is_that_of_a_ring_with_its_headers() -> None:
    setting = contention.make_setting(SPEC, size_bytes=4_000_000)
    job = setting.jobs("ipv4")[0]
    assert job.sent_bytes == 6_000_000
    assert setting.best_ns(job) == pytest.approx(1e9 * 48e6 / (15e6 * 8948 / 9014))
    assert setting.best_ns(setting.jobs("ipv6")[0]) > setting.best_ns(job)


def test_too_few_hosts_make_no_rings() -> None:
    with pytest.raises(ConfigError, match="2 rings of 4 hosts or more do not fit on 6 hosts"):
        contention.make_setting(LabSpec(hosts_per_leaf=3))


def test_a_run_is_as_good_as_its_slower_job_after_it_has_settled() -> None:
    setting = contention.make_setting(SPEC)
    best_ns = round(setting.best_ns(setting.jobs("ipv4")[0]))
    settled = round(contention.SETTLE_S * 1e9)
    began = np.array([0, settled, settled + 5], np.int64)
    jobs = [
        Reduces(began, began + np.array([9 * best_ns, k * best_ns, k * best_ns]), wrong=k) for k in (1, 2)
    ]
    run = contention.summarise(setting, Arm.ECMP, jobs, 0)
    assert [job["iterations"] for job in run["jobs"]] == [2, 2]
    assert run["optimum_share"] == pytest.approx(0.5, rel=1e-6)
    assert run["wrong_sums"] == 3
    nothing = contention.summarise(setting, Arm.ECMP, [jobs[0], Reduces(began[:1], began[:1], 0)], 0)
    assert nothing["optimum_share"] == 0.0
    more = {"resets": 1, "retransmitted_bytes": 7, "idle_share": 0.5}
    arm = contention_run.summarise_arm(Arm.ECMP, [run | more, nothing | more], open_share=0.5)
    assert (arm["optimum_share_min"], arm["resets"], arm["retransmitted_bytes"]) == (0.0, 2, 14)
    assert arm["of_open_median"] == pytest.approx(0.5, rel=1e-6)


def test_where_nobody_is_in_the_way_all_hosts_fit_on_each_link() -> None:
    setting = contention.make_setting(SPEC)
    there = contention.opened(setting)
    assert there.spec.spine_rate_bps == 8 * SPEC.rate_bps
    assert (there.optimum_bps, there.members) == (setting.optimum_bps, setting.members)


def test_mpirun_is_told_the_hosts_the_ports_and_the_family(tmp_path: object) -> None:
    job = Job(members=("h1", "h2"), size_bytes=8, ports=(10_000, 100), family="ipv6")
    called = command(job, 3.0, tmp_path)  # type: ignore[arg-type]
    settings = {called[i + 1]: called[i + 2] for i, word in enumerate(called) if word == "--mca"}
    assert called[called.index("--host") + 1] == "h1:1,h2:1"
    assert (settings["btl_tcp_disable_family"], settings["btl_tcp_port_min_v6"]) == ("4", "10000")
    assert settings["orte_tmpdir_base"] == str(tmp_path)
    assert settings["coll_libnbc_iallreduce_algorithm"] == "1"
    assert called[-2:] == ["8", "3.0"]


def test_what_the_program_tells_is_read() -> None:
    told = Reduces.parse("10 20 0\n30 50 2\n")
    assert (told.began_ns.tolist(), told.ended_ns.tolist(), told.wrong) == ([10, 30], [20, 50], 2)
    assert len(Reduces.parse("").began_ns) == 0
    for garbage in ("x y z", "1 2", "1 2 3\n4 5"):
        with pytest.raises(LabError, match="the all-reduces told"):
            Reduces.parse(garbage)


def test_a_stall_is_the_longest_wait_that_touches_the_time_asked_for() -> None:
    at_ns = np.arange(0, 100, 4) * MS
    octets = np.minimum(np.arange(25), 10) + np.maximum(np.arange(25) - 20, 0)
    received = Received(at_ns, octets)
    assert received.stall_ns(50 * MS, 60 * MS) == 44 * MS
    assert received.stall_ns(0, 30 * MS) == 4 * MS
    assert received.stall_ns(0, 41 * MS) == 44 * MS
    assert received.mean_bps(0, 40 * MS) == pytest.approx(10 * 8 / 0.04)
    assert Received(at_ns, np.full(25, 7)).stall_ns(0, 1) == 96 * MS


def test_a_cut_hits_who_sends_or_acknowledges_over_it() -> None:
    setting = failover.make_setting(LabSpec(hosts_per_leaf=1, leaves=3, spines=2, by_headers=True), 0.5)
    assert setting.pairs == (("h1", "h2"), ("h2", "h3"), ("h3", "h1"))
    assert setting.ports == (5201, 5203)
    topology = Topology(setting.spec)
    address = {host: nics[0].ipv4 for host, nics in topology.nics.items()}
    crossed = {
        (address["h1"], address["h2"]): "s1",
        (address["h2"], address["h1"]): "s2",
        (address["h2"], address["h3"]): "s1",
        (ip_address("192.0.2.1"), address["h3"]): "s1",
    }
    taken = failover.links_taken(topology, crossed)
    assert taken[address["h1"], address["h2"]] == {"l1>s1", "s1>l2", "l2>s2", "s2>l1"}
    assert taken[address["h2"], address["h3"]] == {"l2>s1", "s1>l3"}
    at_ns = np.arange(0, 4_000, 4) * MS
    steady, stalled = np.arange(1_000) * 1_000, np.arange(1_000) * 1_000
    stalled[500:600] = stalled[500]
    received = {
        Ends("h2", address["h2"], 5201, address["h1"], 40_000): Received(at_ns, stalled),
        Ends("h3", address["h3"], 5202, address["h2"], 40_000): Received(at_ns, steady),
    }
    run = failover.summarise_cut("l1-s2", taken, received, (2_000 * MS, 2_500 * MS), 3_500 * MS)
    assert (run["stalls_ns"], run["others_stalls_ns"], run["steady_ns"]) == ([400 * MS], [4 * MS], 4 * MS)
    more = {"resets": 0, "failed": 0, "retransmits": 3, "idle_share": 0.4}
    arm = failover.summarise_arm(Arm.REHASH, [run | more, run | more])
    assert (arm["connections_hit"], arm["stall_max_ns"], arm["retransmits"]) == (2, 400 * MS, 6)


def test_iperf3_is_called_for_each_pair_and_what_it_tells_is_read() -> None:
    setting = failover.make_setting(LabSpec(by_headers=True, rate_bps=30_000_000), 0.5)
    called = setting.client(2, ip_address("10.0.0.9"), 9.0)
    assert {"--json", "--client", "10.0.0.9", "5203", "15000000"} <= set(called)
    assert setting.server(2)[-1] == "5203"
    assert failover.retransmits(json.dumps({"end": {"sum_sent": {"retransmits": 4}}})) == 4
    for told in ('{"error": "connection reset"}', "{}", "nothing"):
        with pytest.raises(LabError, match="iperf3"):
            failover.retransmits(told)


def test_arms_tell_their_family() -> None:
    assert [arm.family for arm in (Arm.ECMP, Arm.REHASH, Arm.CWDP)] == ["ipv4", "ipv6", "ipv4"]


def test_only_cwdp_has_a_fleet_which_looks_at_the_ports_of_the_experiment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[dict[str, Any]] = []

    @contextmanager
    def fake_fleet(_lab: object, **settings: Any) -> Iterator[str]:
        asked.append(settings)
        yield "the fleet"

    monkeypatch.setattr(arms, "running_fleet", fake_fleet)
    lab: Any = SimpleNamespace(hosts=[])
    ports = contention.make_setting(SPEC).ports
    for arm in (Arm.ECMP, Arm.REHASH):
        with arms.prepared(lab, arm, ports, RARE_PULSES) as fleet:
            assert fleet is None
    assert not asked
    with arms.prepared(lab, Arm.CWDP, ports, RARE_PULSES, 500.0) as fleet:
        assert fleet == "the fleet"
    assert asked == [
        {
            "planner": True,
            "pulses": RARE_PULSES,
            "hold_down_max_ms": 500.0,
            "tcp_ports": ["10000-10199"],
        }
    ]


def test_addresses_of_tcp_frames() -> None:
    ethernet4, ethernet6 = bytes(12) + b"\x08\x00", bytes(12) + b"\x86\xdd"
    ipv4 = bytes(9) + b"\x06" + bytes(2) + bytes([10, 0, 0, 1]) + bytes([10, 0, 0, 2])
    assert tcp_between(ethernet4 + ipv4) == (ip_address("10.0.0.1"), ip_address("10.0.0.2"))
    src, dst = ip_address("fd00::1"), ip_address("fd00::2")
    ipv6 = bytes(6) + b"\x06\x40" + src.packed + dst.packed
    assert tcp_between(ethernet6 + ipv6) == (src, dst)
    assert tcp_between(ethernet4 + ipv4[:9] + b"\x11" + ipv4[10:]) is None
    probe = bytes(12) + abi.TCP_PROBE.to_bytes(4, "big") + bytes(4)
    assert tcp_between(ethernet4 + ipv4 + probe) is None
    assert tcp_between(ethernet6 + ipv6 + probe) is None
    data = bytes(12) + b"\x50\x18\x01\xf5" + bytes(4)
    assert tcp_between(ethernet4 + ipv4 + data) == (ip_address("10.0.0.1"), ip_address("10.0.0.2"))
    for cut in range(len(ethernet6 + ipv6)):
        assert tcp_between((ethernet6 + ipv6)[:cut]) is None
