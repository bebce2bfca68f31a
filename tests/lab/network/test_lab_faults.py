"""Cut, silence, loss, slowness, MTU and class do what they say, and healing leaves no trace."""

import itertools
import json
import math
import re
import socket
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import numpy as np
import pytest
from lab_traffic import SINK_PORT, drain, hop, send_many, udp_socket

from cwdp.errors import ConfigError, LabError
from tools.lab import Lab, faults, netns_enter, status
from tools.lab.network import drops, inbound
from tools.lab.traffic.frames import Address, header_pool

pytestmark = [
    pytest.mark.lab,
    pytest.mark.needs(drops.OBJECT, inbound.OBJECT),
]

SOL_PACKET, PACKET_QDISC_BYPASS = 263, 20
TOS = 26 << 2 | 2
FLOW_PORTS = range(53000, 53030)


@pytest.fixture
def lab(default_lab: Lab) -> Iterator[Lab]:
    """The default lab, healed after the test."""
    yield default_lab
    for link in status.collect(default_lab.name)["links"]:
        if any(values["state"] != "up" for values in link["directions"].values()):
            faults.heal(default_lab.name, link["name"], convergence_s=0)


def link_status(lab: Lab, name: str) -> dict[str, Any]:
    return next(link for link in status.collect(lab.name)["links"] if link["name"] == name)


def spines_used(lab: Lab, source: str, target: str, family: int = socket.AF_INET) -> set[str | None]:
    """Return the spines that answer for flows between two hosts, None for those without an answer."""
    v6 = family == socket.AF_INET6
    routers = {str(lab.topology.router_addresses(spine)[v6]): spine for spine in lab.topology.spines}
    answers = (hop(lab.host(source), lab.host(target), family, port, 2) for port in FLOW_PORTS)
    return {routers[answer] if answer else None for answer in answers}


def delivered(lab: Lab, source: str, target: str) -> float:
    """Return the share of flows from one host to another that arrive."""
    with ExitStack() as stack:
        receiver = udp_socket(stack, lab.host(target), socket.AF_INET, SINK_PORT)
        for port in FLOW_PORTS:
            sender = udp_socket(stack, lab.host(source), socket.AF_INET, port)
            sender.sendto(b"flow", (str(lab.host(target).nics[0].ipv4), SINK_PORT))
        return len(drain(receiver)) / len(FLOW_PORTS)


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
def test_after_a_cut_both_leaves_avoid_the_spine(lab: Lab, family: int) -> None:
    faults.cut(lab.name, "l1-s2")
    assert not link_status(lab, "l1-s2")["carrier"]
    assert spines_used(lab, "h1", "h5", family) == {"s1", "s3", "s4"}
    assert spines_used(lab, "h5", "h1", family) == {"s1", "s3", "s4"}
    faults.heal(lab.name, "l1-s2")
    assert link_status(lab, "l1-s2")["carrier"]
    assert spines_used(lab, "h1", "h5", family) == {"s1", "s2", "s3", "s4"}
    assert spines_used(lab, "h5", "h1", family) == {"s1", "s2", "s3", "s4"}


def test_until_routing_converges_only_the_far_leaf_loses(lab: Lab) -> None:
    with ThreadPoolExecutor(1) as executor:
        cutting = executor.submit(faults.cut, lab.name, "l1-s2", 5.0)
        while operstate(lab, "l1", "s2") == "UP":
            assert not cutting.done()
            time.sleep(0.02)
        near, far = delivered(lab, "h1", "h5"), delivered(lab, "h5", "h1")
        assert not cutting.done()
        cutting.result()
    assert near == 1
    assert 0.4 < far < 1
    assert delivered(lab, "h5", "h1") == 1


def operstate(lab: Lab, node: str, port: str) -> str:
    """The state of a port, which follows its carrier when routes are told of it."""
    command = ["nsenter", f"--net=/run/netns/{lab.netns(node)}", "ip", "-j", "link", "show", port]
    return str(json.loads(subprocess.run(command, check=True, capture_output=True).stdout)[0]["operstate"])


def test_a_leaf_cut_from_all_spines_is_unreachable_and_comes_back(lab: Lab) -> None:
    for spine in lab.topology.spines:
        faults.cut(lab.name, f"l1-{spine}", convergence_s=0)
    assert delivered(lab, "h5", "h1") == 0
    for spine in lab.topology.spines:
        faults.heal(lab.name, f"l1-{spine}", convergence_s=0)
    assert delivered(lab, "h5", "h1") == 1


def test_a_host_sees_its_carrier_go_and_come(lab: Lab) -> None:
    faults.cut(lab.name, "h1-l1")
    command = ["nsenter", f"--net=/run/netns/{lab.netns('h1')}", "ip", "link", "show", "nic0"]
    shown = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert "NO-CARRIER" in shown
    assert ",UP" in shown
    faults.heal(lab.name, "h1-l1")
    assert delivered(lab, "h5", "h1") == 1


def test_silence_one_way_leaves_the_carrier_and_the_other_way(lab: Lab) -> None:
    faults.drop(lab.name, "h1-l1", 1.0, "h1>l1")
    assert link_status(lab, "h1-l1")["carrier"]
    assert send_many(lab.host("h1"), lab.host("h2"), 20) == []
    assert len(send_many(lab.host("h2"), lab.host("h1"), 20)) == 20
    assert link_status(lab, "h1-l1")["directions"]["h1>l1"]["lost_packets"] >= 20


def test_silence_does_not_change_routes(lab: Lab) -> None:
    faults.drop(lab.name, "l1-s3", 1.0)
    assert spines_used(lab, "h1", "h5") == {"s1", "s2", "s4", None}
    assert 0.4 < delivered(lab, "h5", "h1") < 1


@pytest.mark.parametrize("direction", ["h1>l1", "l1>h1"])
def test_loss_drops_its_share_and_counts_it(lab: Lab, direction: str) -> None:
    share, count = 0.2, 4000
    faults.drop(lab.name, "h1-l1", share, direction)
    pair = ("h1", "h2") if direction == "h1>l1" else ("h2", "h1")
    arrived = len(send_many(lab.host(pair[0]), lab.host(pair[1]), count))
    assert abs(count - arrived - share * count) < 5 * math.sqrt(count * share * (1 - share))
    lost = link_status(lab, "h1-l1")["directions"][direction]["lost_packets"]
    assert count - arrived <= lost <= count - arrived + 5  # the kernel's own packets (MLD) are dropped too


@pytest.mark.parametrize(("rate_bps", "direction"), [(20_000_000, "h1>l1"), (40_000_000, "l1>h2")])
def test_a_slow_link_takes_its_time(lab: Lab, rate_bps: int, direction: str) -> None:
    frames, frame_bytes = 25, 8942
    link = "h1-l1" if direction == "h1>l1" else "h2-l1"
    faults.slow(lab.name, link, rate_bps, direction)
    # A pause of the machine makes a try longer, and nothing makes one shorter.
    shortest_s = min(seconds_to_cross(lab, frames) for _ in range(5))
    assert shortest_s == pytest.approx((frames - 1) * frame_bytes * 8 / rate_bps, rel=0.15)


def seconds_to_cross(lab: Lab, frames: int) -> float:
    """How long jumbo frames that are sent at once take from h1 to h2."""
    with ExitStack() as stack:
        receiver = udp_socket(stack, lab.host("h2"), socket.AF_INET, SINK_PORT)
        sender = udp_socket(stack, lab.host("h1"), socket.AF_INET, 0)
        start = time.perf_counter()
        for _ in range(frames):
            sender.sendto(bytes(8900), (str(lab.host("h2").nics[0].ipv4), SINK_PORT))
        receiver.settimeout(5)
        for _ in range(frames):
            receiver.recv(65536)
        return time.perf_counter() - start


def test_what_passes_by_a_slow_hosts_own_queue_is_held_too(lab: Lab) -> None:
    frames, frame_bytes, rate_bps = 25, 8942, 20_000_000
    faults.slow(lab.name, "h1-l1", rate_bps, "h1>l1")
    shortest_s = min(seconds_to_cross_by_no_queue(lab, frames, frame_bytes) for _ in range(5))
    assert shortest_s == pytest.approx((frames - 1) * frame_bytes * 8 / rate_bps, rel=0.15)


def seconds_to_cross_by_no_queue(lab: Lab, frames: int, frame_bytes: int) -> float:
    """How long frames take from h1 to h2 that leave as what XDP reflects does, by no queueing discipline of h1."""
    h1, h2 = (lab.host(name) for name in ("h1", "h2"))
    (nic,) = h1.nics
    gateway = lab.topology.link("h1-l1").b.mac
    ends = Address(nic.mac, nic.ipv4), [Address(gateway, h2.nics[0].ipv4)]
    header = header_pool(*ends, frame_bytes, 1, np.random.default_rng(1), port=SINK_PORT)[0].tobytes()
    with ExitStack() as stack:
        receiver = udp_socket(stack, h2, socket.AF_INET, SINK_PORT)
        with netns_enter(h1.netns):
            sender = stack.enter_context(socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0))
        sender.setsockopt(SOL_PACKET, PACKET_QDISC_BYPASS, 1)
        sender.bind((nic.name, 0))
        start = time.perf_counter()
        for _ in range(frames):
            sender.send(header + bytes(frame_bytes - len(header)))
        receiver.settimeout(5)
        for _ in range(frames):
            receiver.recv(65536)
        return time.perf_counter() - start


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
@pytest.mark.parametrize("direction", ["l1>s2", "s2>l1"])
def test_what_crosses_a_link_is_of_another_class(lab: Lab, family: int, direction: str) -> None:
    for spine in ("s1", "s3", "s4"):
        faults.cut(lab.name, f"l1-{spine}", convergence_s=0)
    before = {pair: tos_that_come(lab, *pair, family) for pair in (("h1", "h5"), ("h5", "h1"))}
    assert before == {pair: {TOS} for pair in before}
    faults.remark(lab.name, "l1-s2", dscp=0, direction=direction)
    changed = ("h1", "h5") if direction == "l1>s2" else ("h5", "h1")
    assert {pair: tos_that_come(lab, *pair, family) for pair in before} == before | {changed: {TOS & 3}}
    faults.remark(lab.name, "l1-s2", dscp=None, ecn=3, direction=direction)
    assert tos_that_come(lab, *changed, family) == {TOS | 3}
    faults.drop(lab.name, "l1-s2", 1.0, direction)
    assert tos_that_come(lab, *changed, family) == set()
    faults.drop(lab.name, "l1-s2", 0.0, direction)
    assert tos_that_come(lab, *changed, family) == {TOS | 3}


def tos_that_come(lab: Lab, source: str, target: str, family: int) -> set[int]:
    """TOS or traffic class of packets that have TOS where they are sent."""
    is_v4 = family == socket.AF_INET
    level, sent, told, asked = (0, 1, 1, 13) if is_v4 else (41, 67, 67, 66)  # IP_TOS, IP_RECVTOS; IPV6_TCLASS
    with ExitStack() as stack:
        receiver = udp_socket(stack, lab.host(target), family, SINK_PORT)
        receiver.setsockopt(level, asked, 1)
        receiver.settimeout(0.3)
        sender = udp_socket(stack, lab.host(source), family, 0)
        sender.setsockopt(level, sent, TOS)
        nic = lab.host(target).nics[0]
        for _ in range(5):
            sender.sendto(b"class", (str(nic.ipv4 if is_v4 else nic.ipv6), SINK_PORT))
        found = set()
        while True:
            try:
                _, ancillary, _, _ = receiver.recvmsg(64, 64)
            except TimeoutError:
                return found
            found |= {data[0] for at, kind, data in ancillary if (at, kind) == (level, told)}


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
def test_a_narrow_link_takes_small_packets_only(lab: Lab, family: int) -> None:
    for spine in ("s1", "s3", "s4"):
        faults.cut(lab.name, f"l1-{spine}", convergence_s=0)
    assert goes_through(lab, family, 4_000)
    faults.narrow(lab.name, "l1-s2", 1_500)
    assert not goes_through(lab, family, 1_501)
    assert goes_through(lab, family, 1_500)
    faults.narrow(lab.name, "l1-s2", lab.spec.mtu)
    assert goes_through(lab, family, 4_000)


def goes_through(lab: Lab, family: int, size_bytes: int) -> bool:
    """Whether an IP packet of a size that is not to be divided gets from h1 to h5."""
    with ExitStack() as stack:
        receiver = udp_socket(stack, lab.host("h5"), family, SINK_PORT)
        sender = udp_socket(stack, lab.host("h1"), family, 0)
        sender.setsockopt(*((0, 10) if family == socket.AF_INET else (41, 23)), 3)  # IP_MTU_DISCOVER: probe
        headers = 28 if family == socket.AF_INET else 48
        nic = lab.host("h5").nics[0]
        to = str(nic.ipv4 if family == socket.AF_INET else nic.ipv6)
        sender.sendto(bytes(size_bytes - headers), (to, SINK_PORT))
        came = len(drain(receiver)) == 1
    for version in ("-4", "-6"):  # nobody is to remember what did not fit
        argv = ["nsenter", f"--net=/run/netns/{lab.netns('h1')}", "ip", version, "route", "flush", "cache"]
        subprocess.run(argv, check=True)
    return came


def test_an_mtu_that_cannot_be_is_refused(lab: Lab) -> None:
    for mtu in (1_279, lab.spec.mtu + 1):
        with pytest.raises(ConfigError, match="is no MTU of a link of this lab"):
            faults.narrow(lab.name, "l1-s2", mtu)
    with pytest.raises(ConfigError, match="h1-l1 is a host's link"):
        faults.narrow(lab.name, "h1-l1", 1_500)
    assert link_status(lab, "l1-s2")["directions"]["l1>s2"]["state"] == "up"


def test_healing_leaves_no_trace(lab: Lab) -> None:
    before = snapshot(lab)
    faults.cut(lab.name, "l1-s2")
    faults.drop(lab.name, "l1-s2", 0.5)
    faults.slow(lab.name, "l1-s2", 10_000_000)
    faults.narrow(lab.name, "l1-s2", 1_500)
    faults.remark(lab.name, "l1-s2", dscp=0, direction="l1>s2")
    faults.cut(lab.name, "h1-l1")
    faults.slow(lab.name, "h2-l1", 10_000_000)
    faults.drop(lab.name, "h2-l1", 1.0, "l1>h2")
    states = {link["name"]: link["directions"] for link in status.collect(lab.name)["links"]}
    assert states["l1-s2"]["l1>s2"]["state"] == "cut+loss+rate+mtu+tos"
    assert states["l1-s2"]["s2>l1"]["state"] == "cut+loss+rate+mtu"
    assert states["h1-l1"]["l1>h1"]["state"] == "cut"
    assert states["h2-l1"]["l1>h2"]["state"] == "silent+rate"
    assert snapshot(lab) != before
    for name in ("l1-s2", "h1-l1", "h2-l1"):
        faults.heal(lab.name, name)
    assert snapshot(lab) == before


def test_healing_a_sound_link_changes_nothing(lab: Lab) -> None:
    before = snapshot(lab)
    faults.heal(lab.name, "l2-s4")
    assert snapshot(lab) == before


def test_wrong_names_and_directions_are_refused(lab: Lab) -> None:
    with pytest.raises(LabError, match="no link 'h1-l2'"):
        faults.cut(lab.name, "h1-l2")
    with pytest.raises(ConfigError, match="'h2>l1' is not a direction of the link h1-l1"):
        faults.drop(lab.name, "h1-l1", 1.0, "h2>l1")
    with pytest.raises(LabError, match="the lab 'nosuch' is not up"):
        faults.cut("nosuch", "h1-l1")


def snapshot(lab: Lab) -> dict[tuple[str, str], list[str]]:
    """Return what `ip` and `tc` tell of every switch and of two hosts, but neighbours learned, in any order of lines."""
    asked = ("route", "neigh show nud permanent", "addr", "rule")
    commands = [f"ip {f} {c}" for f in ("-4", "-6") for c in asked] + ["tc qdisc", "ip -o link"]
    nodes = [*lab.topology.switches, "h1", "h2"]
    return {
        (node, command): _lines(lab, node, command) for node, command in itertools.product(nodes, commands)
    }


def _lines(lab: Lab, node: str, command: str) -> list[str]:
    argv = ["nsenter", f"--net=/run/netns/{lab.netns(node)}", *command.split()]
    shown = subprocess.run(argv, check=True, capture_output=True, text=True).stdout
    return sorted(
        re.sub(r"xdp id \d+", "xdp", line) for line in shown.splitlines()
    )  # a new one is as the old
