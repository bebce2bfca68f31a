"""Queue pairs over a lab: everything arrives, losses are made good, and the counts of both ends agree."""

import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from ipaddress import ip_address
from typing import Any

import pytest
from scapy.contrib.roce import BTH
from scapy.layers.inet import IP, UDP
from scapy.packet import Raw

from cwdp.errors import LabError
from tools.lab import Lab, faults, netns_enter, status
from tools.roce.flows import Endpoint, Flow, verbs_flow
from tools.roce.generator import Generator
from tools.roce.patterns import PATTERNS, plan_flows
from tools.roce.process import PROGRAM

pytestmark = [
    pytest.mark.lab,
    pytest.mark.needs(PROGRAM),
]

TIMEOUT_S = 60.0
PATIENT_NS = 1_000_000_000
"""A pause of the machine is no loss: packets are sent again only where they are long overdue."""

TOTAL_BYTES = 500_001
PSNS = 2**24
WRITE_ONLY = 0x0A


@pytest.fixture
def lab(default_lab: Lab) -> Iterator[Lab]:
    """The default lab, healed after the test."""
    yield default_lab
    for link in status.collect(default_lab.name)["links"]:
        if any(values["state"] != "up" for values in link["directions"].values()):
            faults.heal(default_lab.name, link["name"], convergence_s=0)


def run(lab: Lab, flows: list[Flow], seconds: float | None = None) -> dict[str, Any]:
    with Generator(flows, lab.popen, lab.run_dir) as generator:
        generator.start(seconds)
        return generator.result(TIMEOUT_S)


def flow_between(lab: Lab, source: str, target: str, *, ipv6: bool = False, **settings: Any) -> Flow:
    ends = (lab.host(source), lab.host(target))
    endpoints = (Endpoint(end.name, end.nics[0].ipv6 if ipv6 else end.nics[0].ipv4) for end in ends)
    settings.setdefault("timeout_ns", PATIENT_NS)
    return verbs_flow(1, *endpoints, 0x11, 0x12, **settings)


def lost_packets(lab: Lab, link: str, direction: str) -> int:
    found = next(entry for entry in status.collect(lab.name)["links"] if entry["name"] == link)
    lost: int = found["directions"][direction]["lost_packets"]
    return lost


def assert_counts_agree(flow: dict[str, Any]) -> None:
    """Of a flow that came to its end on a fabric that loses nothing on the way back."""
    assert not flow["failed"]
    assert flow["acked_bytes"] == flow["delivered_bytes"]
    assert flow["messages"] == flow["delivered_messages"] == flow["completion"]["count"]
    assert flow["naks_sent"] == flow["naks_received"]
    assert flow["gaps"] == len(flow["gap_events"])
    # What was overtaken can arrive before the responder has come to say that it is missing.
    assert flow["gaps"] - flow["gaps_overtaken"] <= flow["naks_sent"] <= flow["gaps"]
    assert flow["acks_sent"] == flow["acks_received"]
    assert flow["cnps_sent"] == flow["cnps_received"]
    arrived = flow["delivered_packets"] + flow["duplicates"] + flow["out_of_sequence"]
    assert sum(count["packets"] for count in flow["sports"]) == arrived
    assert sum(count["packets"] for count in flow["ack_sports"]) == flow["acks_sent"] + flow["naks_sent"]
    assert flow["sent_packets"] == flow["delivered_packets"] + flow["retransmitted_packets"]
    assert flow["goodput_bps"] > 0


def assert_hosts_saw_nothing_strange(result: dict[str, Any]) -> None:
    for host in result["hosts"]:
        for counter in ("malformed", "unknown_qp", "unknown_opcode", "icrc_errors", "checksum_errors"):
            assert host[counter] == 0, (host["host"], counter)


@pytest.mark.parametrize("ipv6", [False, True], ids=["ipv4", "ipv6"])
@pytest.mark.parametrize("pattern", PATTERNS)
def test_every_pattern_delivers_everything(lab: Lab, pattern: str, ipv6: bool) -> None:
    flows = plan_flows(
        lab, pattern, ipv6=ipv6, message_bytes=70_003, total_bytes=TOTAL_BYTES, timeout_ns=PATIENT_NS
    )
    result = run(lab, flows)
    assert len(result["flows"]) == len(flows)
    for flow in result["flows"]:
        assert flow["delivered_bytes"] == TOTAL_BYTES
        assert_counts_agree(flow)
        assert [count["port"] for count in flow["sports"]] == [flow["sport"]]
    assert_hosts_saw_nothing_strange(result)


@pytest.mark.parametrize("mtu", [256, 1024, 4096])
@pytest.mark.parametrize("message_bytes", [1, 3000])
def test_lengths_checksums_and_the_wrap_of_the_psn(lab: Lab, mtu: int, message_bytes: int) -> None:
    flow = flow_between(
        lab,
        "h1",
        "h5",
        ipv6=mtu == 1024,
        mtu=mtu,
        message_bytes=message_bytes,
        total_bytes=200 * message_bytes + 1,
        first_psn=PSNS - 100,
        udp_checksum=True,
    )
    result = run(lab, [flow])
    assert result["flows"][0]["delivered_bytes"] == 200 * message_bytes + 1
    assert_counts_agree(result["flows"][0])
    assert_hosts_saw_nothing_strange(result)


def test_loss_is_made_good_and_every_lost_packet_is_accounted_for(lab: Lab) -> None:
    faults.drop(lab.name, "h5-l2", 0.01, "l2>h5")
    flow = flow_between(lab, "h1", "h5", window=32, total_bytes=4_000_000)
    result = run(lab, [flow])
    found = result["flows"][0]
    assert found["delivered_bytes"] == 4_000_000
    assert_counts_agree(found)
    arrived = found["delivered_packets"] + found["duplicates"] + found["out_of_sequence"]
    lost = lost_packets(lab, "h5-l2", "l2>h5")
    assert lost > 0
    assert found["sent_packets"] - arrived == lost
    assert result["start_ns"] < found["first_lost_ns"] <= found["last_lost_ns"]
    assert_hosts_saw_nothing_strange(result)


def test_lost_acknowledgements_cost_no_data(lab: Lab) -> None:
    faults.drop(lab.name, "h1-l1", 0.3, "l1>h1")
    flow = flow_between(lab, "h1", "h5", window=16, ack_every=4, total_bytes=1_000_000, timeout_ns=30_000_000)
    found = run(lab, [flow])["flows"][0]
    assert found["delivered_bytes"] == found["acked_bytes"] == 1_000_000
    assert found["acks_received"] < found["acks_sent"]
    assert found["gaps"] == 0


def test_a_queue_pair_fails_when_nothing_comes_back(lab: Lab) -> None:
    flow = flow_between(lab, "h1", "h5", window=16, timeout_ns=20_000_000, retries=3)
    with Generator([flow], lab.popen, lab.run_dir) as generator:
        generator.start()
        time.sleep(0.3)
        cut_ns = time.monotonic_ns()
        faults.drop(lab.name, "h5-l2", 1.0)
        result = generator.result(TIMEOUT_S)
    found = result["flows"][0]
    assert found["failed"]
    assert found["delivered_bytes"] > 0
    assert found["last_lost_ns"] > cut_ns
    first_try_and_retries = found["go_back_events"][-4:]
    assert len({event["psn"] for event in first_try_and_retries}) == 1
    assert {event["cause"] for event in first_try_and_retries[1:]} == {"timeout"}


def test_an_outage_is_measured_from_delivery_to_delivery(lab: Lab) -> None:
    # A pause of the machine is shorter than the timeout, and so than the outage.
    flow = flow_between(lab, "h1", "h5", rate_bps=20_000_000, window=256, timeout_ns=500_000_000)
    with Generator([flow], lab.popen, lab.run_dir, snapshot_s=0.05) as generator:
        generator.start()
        time.sleep(0.5)
        before_ns = time.monotonic_ns()
        faults.drop(lab.name, "h5-l2", 1.0)
        cut_ns = time.monotonic_ns()
        time.sleep(1.0)
        healing_ns = time.monotonic_ns()
        faults.heal(lab.name, "h5-l2")
        time.sleep(0.5)
        generator.finish()
        result = generator.result(TIMEOUT_S)
    found = result["flows"][0]
    assert found["outage_ns"] >= healing_ns - cut_ns
    assert found["outage_start_ns"] < cut_ns
    assert found["outage_start_ns"] + found["outage_ns"] > healing_ns
    # An acknowledgement stands for 16 packets, which take 27 ms.
    assert before_ns - 50_000_000 < found["first_lost_ns"] <= found["last_lost_ns"]
    assert found["delivered_bytes"] == found["acked_bytes"]
    times = [row["at_ns"] for row in result["timeline"]]
    assert times == sorted(times)
    delivered = [row["delivered_bytes"][1] for row in result["timeline"] if row["host"] == "h5"]
    assert delivered == sorted(delivered)
    assert 0 < delivered[len(delivered) // 2] < found["delivered_bytes"]


@pytest.mark.parametrize("ipv6", [False, True], ids=["ipv4", "ipv6"])
def test_congestion_marks_are_answered_with_notifications(lab: Lab, ipv6: bool) -> None:
    found = run(lab, [flow_between(lab, "h1", "h5", ipv6=ipv6, ecn=3, total_bytes=TOTAL_BYTES)])["flows"][0]
    assert_counts_agree(found)
    assert found["ce_marks"] == found["delivered_packets"]
    assert 0 < found["cnps_sent"] <= found["ce_marks"]


def test_a_rate_is_kept(lab: Lab) -> None:
    rate_bps = 20_000_000
    found = run(lab, [flow_between(lab, "h1", "h5", rate_bps=rate_bps)], seconds=1.0)["flows"][0]
    wire_bps = found["goodput_bps"] * (4096 + 20 + 8 + 12 + 4 + 14) / 4096
    # Never above, but for the packets made good after a late wake-up; below only as far as the machine is busy.
    assert 0.5 * rate_bps < wire_bps < 1.02 * rate_bps


def write_packet(lab: Lab, psn: int, sport: int) -> bytes:
    """A WRITE ONLY of h1's queue pair to h5's, made by scapy."""
    source, target = (str(lab.host(name).nics[0].ipv4) for name in ("h1", "h5"))
    reth = bytes(12) + (64).to_bytes(4, "big")
    packet = IP(src=source, dst=target, flags="DF", id=0) / UDP(sport=sport, dport=4791, chksum=0)
    return bytes(packet / BTH(opcode=WRITE_ONLY, dqpn=0x12, psn=psn) / Raw(reth + bytes(64)))


def test_packets_of_others_are_judged_by_their_icrc(lab: Lab) -> None:
    """A valid duplicate from another source port is seen as such; with a broken ICRC it is only counted."""
    flow = flow_between(lab, "h1", "h5", message_bytes=4096, rate_bps=5_000_000)
    good = write_packet(lab, psn=0, sport=60001)
    broken = good[:-1] + bytes([good[-1] ^ 1])
    foreign = write_packet(lab, psn=0, sport=60002).replace(b"\x00\x00\x12", b"\x00\x00\x13", 1)
    with Generator([flow], lab.popen, lab.run_dir) as generator:
        generator.start()
        time.sleep(0.2)
        with netns_enter(lab.host("h1").netns):
            raw = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
        with raw:
            for packet in (good, broken, broken, foreign):
                raw.sendto(packet, (str(flow.target.address), 0))
        time.sleep(0.1)
        generator.finish()
        result = generator.result(TIMEOUT_S)
    found = result["flows"][0]
    target = next(host for host in result["hosts"] if host["host"] == "h5")
    assert {count["port"]: count["packets"] for count in found["sports"]}[60001] == 1
    assert found["duplicates"] == 1
    assert target["icrc_errors"] == 2
    assert target["unknown_qp"] == 1
    assert found["delivered_bytes"] == found["acked_bytes"]


def test_the_source_port_chooses_the_spine(lab: Lab) -> None:
    """Of queue pairs on many ports some cross each spine; on one port all cross the same one."""
    ends = [Endpoint(name, lab.host(name).nics[0].ipv4) for name in ("h1", "h5")]

    def spines_used(ports: list[int]) -> int:
        before = spine_packets(lab)
        flows = [
            Flow(
                id=number,
                source=ends[0],
                target=ends[1],
                qpn=2 + 2 * number,
                remote_qpn=3 + 2 * number,
                sport=port,
                ack_sport=port,
                window=4,
                message_bytes=40_000,
                total_bytes=40_000,
            )
            for number, port in enumerate(ports)
        ]
        run(lab, flows)
        after = spine_packets(lab)
        return sum(after[spine] - before[spine] >= 10 for spine in after)

    assert spines_used([50_000] * 16) == 1
    assert spines_used(list(range(50_000, 50_032))) == len(lab.topology.spines)


def spine_packets(lab: Lab) -> dict[str, int]:
    """Packets that h1's leaf has sent to each spine."""
    namespace = f"--net=/run/netns/{lab.netns('l1')}"
    done = subprocess.run(["nsenter", namespace, "ip", "-j", "-s", "link"], capture_output=True, check=True)
    sent = {link["ifname"]: link["stats64"]["tx"]["packets"] for link in json.loads(done.stdout)}
    return {spine: sent[spine] for spine in lab.topology.spines}


def test_a_host_without_the_address_says_so(lab: Lab) -> None:
    wrong = Endpoint("h1", ip_address("192.0.2.1"))
    flow = verbs_flow(1, wrong, Endpoint("h5", lab.host("h5").nics[0].ipv4), 0x11, 0x12)
    with pytest.raises(LabError, match="generator on h1 ended") as refused:
        Generator([flow], lab.popen, lab.run_dir).__enter__()
    assert "bind to the local address" in refused.value.hint


def test_nothing_is_left_behind(lab: Lab) -> None:
    before = sorted(lab.run_dir.iterdir())
    with Generator(plan_flows(lab, "ring"), lab.popen, lab.run_dir) as generator:
        generator.start()
    assert sorted(lab.run_dir.iterdir()) == before


def test_the_command(lab: Lab) -> None:
    argv = [sys.executable, "-m", "cwdp", "lab", "traffic", "ring", "--name", lab.name, "--seconds", "0.5"]
    table = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=TIMEOUT_S)
    assert "h8 > h1" in table.stdout
    assert "0 ICRC errors" in table.stdout
    assert max(map(len, table.stdout.splitlines())) <= 80
    done = subprocess.run([*argv, "--json"], capture_output=True, text=True, check=True, timeout=TIMEOUT_S)
    result = json.loads(done.stdout)
    assert len(result["flows"]) == 8
    assert result["total"]["delivered_bytes"] == sum(flow["delivered_bytes"] for flow in result["flows"])


def test_a_time_and_an_amount_exclude_each_other(lab: Lab) -> None:
    argv = [sys.executable, "-m", "cwdp", "lab", "traffic", "ring", "--seconds", "1", "--bytes", "1"]
    done = subprocess.run(argv, check=False, capture_output=True, text=True, timeout=TIMEOUT_S)
    assert done.returncode == 2
    assert "exclude each other" in done.stderr
