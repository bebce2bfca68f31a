"""The fabric carries packets as the design says: jumbo frames, both families, ECMP, answering hops."""

import itertools
import json
import socket
import subprocess
import sys
from contextlib import ExitStack
from typing import Any

import pytest
from lab_traffic import SINK_PORT, address, drain, hop, send_many, udp_socket

from tools.lab import Lab, LabSpec, lifecycle, status

pytestmark = pytest.mark.lab

FAMILIES = [socket.AF_INET, socket.AF_INET6]
JUMBO_BYTES = 8900
QUIET_REFUSALS = 50


@pytest.mark.parametrize("family", FAMILIES)
def test_all_pairs_exchange_jumbo_packets(default_lab: Lab, family: int) -> None:
    headers = 28 if family == socket.AF_INET else 48
    with ExitStack() as stack:
        sockets = {host.name: udp_socket(stack, host, family, SINK_PORT) for host in default_lab.hosts}
        for source, target in itertools.permutations(default_lab.hosts, 2):
            payload = f"{source.name}>{target.name}".encode().ljust(JUMBO_BYTES - headers, b"\0")
            sockets[source.name].sendto(payload, (address(target.nics[0], family), SINK_PORT))
            sockets[target.name].settimeout(1)
            assert sockets[target.name].recv(65536) == payload


@pytest.mark.parametrize("family", FAMILIES)
def test_every_hop_answers_by_its_own_address_and_ports_reach_all_spines(
    default_lab: Lab, family: int
) -> None:
    source, target = default_lab.host("h1"), default_lab.host("h6")
    v6 = family == socket.AF_INET6
    routers = {str(default_lab.topology.router_addresses(s)[v6]): s for s in default_lab.topology.switches}
    spines = set()
    for port in range(50000, 50040):
        path = [routers[hop(source, target, family, port, hops) or ""] for hops in (1, 2, 3)]
        assert (path[0], path[2]) == ("l1", "l2")
        spines.add(path[1])
    assert spines == set(default_lab.topology.spines)
    assert hop(source, target, family, 50000, 4) == address(target.nics[0], family)


def test_a_flow_stays_on_its_path(default_lab: Lab) -> None:
    source, target = default_lab.host("h2"), default_lab.host("h7")
    assert len({hop(source, target, socket.AF_INET, 51000, 2) for _ in range(10)}) == 1


@pytest.mark.parametrize("family", FAMILIES)
def test_time_exceeded_is_not_rate_limited(default_lab: Lab, family: int) -> None:
    source, target = default_lab.host("h1"), default_lab.host("h5")
    assert all(hop(source, target, family, 52000, 2) for _ in range(150))


def test_the_management_network_joins_all_hosts(default_lab: Lab) -> None:
    for host in default_lab.hosts:
        subprocess.run(
            [
                "nsenter",
                f"--net=/run/netns/{default_lab.mgmt_netns}",
                "ping",
                "-c1",
                "-W1",
                str(host.mgmt_address),
            ],
            check=True,
            capture_output=True,
        )


def test_ports_below_a_leaf_have_the_program_that_xdp_tx_needs(default_lab: Lab) -> None:
    command = ["nsenter", f"--net=/run/netns/{default_lab.netns('l1')}", "ip", "link", "show", "h1"]
    assert "prog/xdp" in subprocess.run(command, check=True, capture_output=True, text=True).stdout


def test_queues_are_bounded_and_count_what_they_drop(default_lab: Lab) -> None:
    source, target = default_lab.host("h3"), default_lab.host("h8")
    before = queue_drops(default_lab, "h3>l1")
    with ExitStack() as stack:
        receiver = udp_socket(stack, target, socket.AF_INET, SINK_PORT)
        sender = udp_socket(stack, source, socket.AF_INET, 0)
        for _ in range(100):
            sender.sendto(bytes(8900), (str(target.nics[0].ipv4), SINK_PORT))
        arrived = len(drain(receiver))
    queued = default_lab.spec.queue_bytes // (8900 + 42)
    assert queued <= arrived < 100
    assert queue_drops(default_lab, "h3>l1") - before == 100 - arrived


def test_a_load_holds_its_share_on_every_link(default_lab: Lab) -> None:
    """Where the machine stands still again and again, less than was offered is sent, and that goes over every link."""
    result, carried = load_without_a_pause(default_lab, 0.8, 4.0)
    sent_share = result["sent_bytes"] / result["seconds"] * 8 / result["offered_bps"]
    assert sent_share < 1.02
    assert sent_share > 0.98 or result["refused_frames"] > QUIET_REFUSALS
    shares = {d: sent * 8 / result["seconds"] / default_lab.spec.rate_bps for d, sent in carried.items()}
    assert sum(shares.values()) / len(shares) == pytest.approx(0.8 * sent_share, abs=0.02)
    assert min(shares.values()) > 0.74 * sent_share**2
    assert max(shares.values()) < 0.86


def load_without_a_pause(lab: Lab, share: float, seconds: float) -> tuple[dict[str, Any], dict[str, int]]:
    """Fill the fabric; what was sent, and the bytes that each direction carried.

    A pause of the machine wakes the load late, with more at once than a queue takes: then it is tried again.
    """
    argv = [sys.executable, "-m", "tools.lab.traffic.load", "--name", lab.name]
    argv += ["--load", str(share), "--seconds", str(seconds)]
    for _ in range(3):
        before = sent_bytes(lab)
        loading = lab.popen("mgmt", argv, stdout=subprocess.PIPE, text=True)
        result = json.loads(loading.communicate()[0])
        after = sent_bytes(lab)
        if result["refused_frames"] <= QUIET_REFUSALS:
            break
    return result, {d: after[d] - before[d] for d in after}


@pytest.mark.parametrize("family", FAMILIES)
def test_each_nic_of_a_host_uses_its_own_leaf(spare_name: str, family: int) -> None:
    lifecycle.up(LabSpec(name=spare_name, spines=1, hosts_per_leaf=1, nics=2))
    lab = Lab.open(spare_name)
    source, target = lab.hosts
    for nic in (0, 1):
        before = sent_bytes(lab)
        with ExitStack() as stack:
            receiver = udp_socket(stack, target, family, SINK_PORT, nic=0)
            sender = udp_socket(stack, source, family, 0, nic=nic)
            for _ in range(20):
                sender.sendto(bytes(1000), (address(target.nics[0], family), SINK_PORT))
            assert len(drain(receiver)) == 20
        own, other = f"h1>{source.nics[nic].leaf}", f"h1>{source.nics[1 - nic].leaf}"
        after = sent_bytes(lab)
        assert after[own] - before[own] > 20_000
        assert after[other] - before[other] < 2_000


def test_hosts_on_one_leaf_meet_there(default_lab: Lab) -> None:
    before = sent_bytes(default_lab)
    assert len(send_many(default_lab.host("h1"), default_lab.host("h2"), 20)) == 20
    after = sent_bytes(default_lab)
    assert all(after[d] - before[d] < 1_000 for d in after if d.startswith("l1>s"))


def sent_bytes(lab: Lab) -> dict[str, int]:
    links = status.collect(lab.name)["links"]
    return {
        d: end["tx_bytes"] for link in links for d, end in zip(link["directions"], link["ends"], strict=True)
    }


def queue_drops(lab: Lab, direction: str) -> int:
    links = status.collect(lab.name)["links"]
    drops = {d: end["queue_drops"] for k in links for d, end in zip(k["directions"], k["ends"], strict=True)}
    return int(drops[direction])
