"""Walks with real packets over three routers: which of them a packet reaches, in which class, and where it does not fit.

h1 - r1 - r2 - r3 - h2, in namespaces of their own; each has the interfaces `left` and `right`.
"""

import asyncio
import ipaddress
import itertools
import os
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Any

import pytest

from cwdp.agent.links import Link, LinkTable
from cwdp.agent.walking import walker
from cwdp.agent.walking.walker import NO_TIME, Limits, Walks
from cwdp.shared.audit.facts import Walk, Walked
from tools.lab import Lab, faults
from tools.lab.network import drops, netns, shaping

pytestmark = [pytest.mark.lab, pytest.mark.timeout(120), pytest.mark.needs(drops.OBJECT)]

NODES = ("h1", "r1", "r2", "r3", "h2")
MTU, NARROW = 4_200, 1_500
DSCP, ECN = 26 << 2, 2
TOS = DSCP | ECN
PORT = 4791
QUICK = Limits(packets_per_s=1_000.0)
FAMILIES = pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6], ids=["ipv4", "ipv6"])
SYSCTLS = (
    "net.ipv4.ip_forward=1",
    "net.ipv6.conf.all.forwarding=1",
    "net.ipv6.conf.default.accept_dad=0",
    "net.ipv4.icmp_ratemask=0",
    "net.ipv4.icmp_msgs_per_sec=1000000",
    "net.ipv4.icmp_msgs_burst=1000000",
    "net.ipv6.icmp.ratemask=",
)


class Chain:
    """The namespaces, by the names of the nodes."""

    def __init__(self, stack: ExitStack) -> None:
        self.netns = {node: f"t{os.getpid()}walks-{node}" for node in NODES}
        for name in self.netns.values():
            netns.create(name, name)
            stack.callback(netns.remove, name)
        for node in NODES:
            for setting in SYSCTLS:
                self.run(node, f"sysctl -qw {setting}")
        for number, (left, right) in enumerate(itertools.pairwise(NODES)):
            self._join(number, left, right)
        for place, node in enumerate(NODES):
            self._route(place, node)

    def _join(self, number: int, left: str, right: str) -> None:
        peer = f"peer name left netns {self.netns[right]} mtu {MTU}"
        self.ip(left, f"link add right mtu {MTU} type veth {peer}")
        for node, ifname, end in ((left, "right", 1), (right, "left", 2)):
            self.ip(node, f"link set {ifname} up")
            self.ip(node, f"addr add 10.77.{number}.{end}/24 dev {ifname}")
            self.ip(node, f"addr add fd77:{number}::{end}/64 dev {ifname} nodad")

    def _route(self, place: int, node: str) -> None:
        if place > 1:
            self.ip(node, f"route add 10.77.0.0/24 via 10.77.{place - 1}.1")
            self.ip(node, f"route add fd77:0::/64 via fd77:{place - 1}::1")
        if place < len(NODES) - 2:
            self.ip(node, f"route add 10.77.3.0/24 via 10.77.{place}.2")
            self.ip(node, f"route add fd77:3::/64 via fd77:{place}::2")

    def ip(self, node: str, words: str) -> str:
        """Run `ip` in a node."""
        return self.run(node, f"ip {words}")

    def run(self, node: str, words: str) -> str:
        argv = ["nsenter", f"--net=/run/netns/{self.netns[node]}", *words.split()]
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        assert not done.returncode, (words, done.stderr)
        return done.stdout

    def set_mtu(self, left: int, mtu: int) -> None:
        """Of both ends of the link behind the node of this place."""
        self.ip(NODES[left], f"link set right mtu {mtu}")
        self.ip(NODES[left + 1], f"link set left mtu {mtu}")

    def attach(
        self, node: str, hook: shaping.Hook, *, mask: int = 0, value: int = 0, loss: float = 0
    ) -> None:
        """Have the lab's faulty cable be at the right interface of a node."""
        with netns.open_netlink(self.netns[node]) as ip, drops.loaded(loss, mask, value) as (program, _):
            index = ip.link_lookup(ifname="right")[0]
            shaping.attach_classifier(ip, index, hook, program, drops.OBJECT.name)

    def walks(self, orders: Sequence[Walk], limits: Limits = QUICK) -> tuple[list[Walked], Walks]:
        """What an agent on h1 makes of them."""
        agent = Walks(["right", "gone", "bare"], Addresses(), PORT, limits)
        with netns.netns_enter(self.netns["h1"]):
            return asyncio.run(agent.make(orders)), agent

    def walk(self, family: int, **changes: Any) -> Walked:
        [walked] = self.walks([order(family, **changes)])[0]
        assert walked.walk == order(family, **changes)
        return walked


class Addresses(LinkTable):
    """What h1 has, and an interface without addresses."""

    def __init__(self) -> None:
        self.known = {
            "right": Link(2, "right", "", True, ["10.77.0.1", "fd77:0::1"]),
            "bare": Link(3, "bare", "", True, []),
        }

    def get(self, ifname: str) -> Link | None:
        return self.known.get(ifname)


def order(family: int, **changes: Any) -> Walk:
    values = {
        "nic": "right",
        "dst_addr": address(family, 4),
        "sport": 50_000,
        "size_bytes": MTU,
        "tos": TOS,
        "hops": 4,
    }
    return Walk(**values | changes)


def address(family: int, place: int) -> str:
    """By which a node answers h1: that of its left interface."""
    text = f"10.77.{place - 1}.2" if family == socket.AF_INET else f"fd77:{place - 1}::2"
    return str(ipaddress.ip_address(text))


def told(walked: Walked) -> list[tuple[str, str, int, int]]:
    assert not walked.trouble
    return [(hop.answer, hop.responder, hop.tos, hop.mtu_bytes) for hop in walked.hops]


def expired(family: int, place: int, tos: int = TOS) -> tuple[str, str, int, int]:
    return "expired", address(family, place), tos, 0


NOBODY = ("none", "", -1, 0)


@pytest.fixture(scope="module")
def shared() -> Iterator[Chain]:
    with ExitStack() as stack:
        yield Chain(stack)


@pytest.fixture
def chain(shared: Chain) -> Iterator[Chain]:
    """The chain, as new after the test."""
    yield shared
    for place in range(len(NODES) - 1):
        shared.set_mtu(place, MTU)
        with netns.open_netlink(shared.netns[NODES[place]]) as ip:
            shaping.detach_classifiers(ip, ip.link_lookup(ifname="right")[0])


@FAMILIES
@pytest.mark.parametrize("size_bytes", [128, 1_499, MTU])
def test_a_sound_path_takes_it_to_its_end_as_it_was(chain: Chain, family: int, size_bytes: int) -> None:
    for tos in (TOS, 0, 255):
        walked = chain.walk(family, size_bytes=size_bytes, tos=tos)
        assert told(walked) == [
            *(expired(family, place, tos) for place in (1, 2, 3)),
            ("unreachable", address(family, 4), tos, 0),
        ]


@FAMILIES
@pytest.mark.parametrize("place", [1, 2, 3])
def test_the_link_is_found_on_which_it_does_not_fit(chain: Chain, family: int, place: int) -> None:
    chain.set_mtu(place, NARROW)
    for _ in range(2):  # nobody remembers what fits: the second is sent as the first
        assert told(chain.walk(family)) == [
            *(expired(family, near) for near in range(1, place + 1)),
            ("too_big", address(family, place), TOS, NARROW),
        ]
    assert "mtu" not in chain.ip("h1", f"route get {address(family, 4)}")
    assert told(chain.walk(family, size_bytes=NARROW))[-1][0] == "unreachable"


@FAMILIES
def test_what_the_host_believes_of_the_path_changes_nothing(chain: Chain, family: int) -> None:
    to, via = ("10.77.3.0/24", "10.77.0.2") if family == socket.AF_INET else ("fd77:3::/64", "fd77:0::2")
    chain.ip("h1", f"route change {to} via {via} mtu {NARROW}")
    try:
        assert [hop.answer for hop in chain.walk(family).hops] == ["expired"] * 3 + ["unreachable"]
    finally:
        chain.ip("h1", f"route change {to} via {via}")


@FAMILIES
@pytest.mark.parametrize("place", [1, 2, 3])
@pytest.mark.parametrize(("mask", "value"), [(0xFC, 0), (3, 0), (0xFC, 46 << 2), (0xFF, 1), (1, 1)])
def test_the_link_is_found_on_which_the_class_changes(
    chain: Chain, family: int, place: int, mask: int, value: int
) -> None:
    chain.attach(NODES[place], "egress", mask=mask, value=value)
    other = TOS & ~mask | value
    walked = chain.walk(family)
    came = [TOS if near <= place else other for near in (1, 2, 3, 4)]
    assert [hop.tos for hop in walked.hops] == came
    assert [hop.responder for hop in walked.hops] == [address(family, near) for near in (1, 2, 3, 4)]
    assert [hop.answer for hop in walked.hops] == ["expired"] * 3 + ["unreachable"]


@FAMILIES
def test_a_class_that_changes_where_it_does_not_fit_is_told_too(chain: Chain, family: int) -> None:
    chain.attach("r1", "egress", mask=0xFC)
    chain.set_mtu(2, NARROW)
    assert told(chain.walk(family)) == [
        expired(family, 1),
        expired(family, 2, ECN),
        ("too_big", address(family, 2), ECN, NARROW),
    ]


@FAMILIES
def test_a_switch_that_is_silent_hides_nobody_behind_it(chain: Chain, family: int) -> None:
    version, net = ("-4", "10.77.0.0/24") if family == socket.AF_INET else ("-6", "fd77:0::/64")
    rule = f"iif lo to {net} blackhole"
    chain.ip("r2", f"{version} rule add {rule}")
    try:
        begin_s = time.monotonic()
        assert told(chain.walk(family))[:3] == [expired(family, 1), NOBODY, expired(family, 3)]
        assert 0.85 < time.monotonic() - begin_s < 3
    finally:
        chain.ip("r2", f"{version} rule del {rule}")


@FAMILIES
def test_what_is_lost_is_asked_again(chain: Chain, family: int) -> None:
    chain.attach("r1", "egress", loss=0.3)
    walks = [order(family, sport=50_000 + number, hops=3) for number in range(20)]
    found = [told(walked) for walked in chain.walks(walks)[0]]
    assert all(hops[0] == expired(family, 1) for hops in found)
    answered = sum(hops[2] == expired(family, 3) for hops in found)
    assert answered >= 15  # each is lost by 0.3^3 = 2.7 %


@FAMILIES
def test_a_path_that_swallows_it_answers_up_to_there(chain: Chain, family: int) -> None:
    chain.attach("r2", "egress", loss=1.0)
    assert told(chain.walk(family)) == [expired(family, 1), expired(family, 2), NOBODY, NOBODY]


@FAMILIES
def test_what_is_larger_than_the_interface_takes_is_told_and_not_sent(
    chain: Chain, family: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    walked, agent = chain.walks([order(family, size_bytes=MTU + 1), order(family, size_bytes=65_535)])
    assert [one.trouble for one in walked] == [f"larger than the interface's MTU, {MTU}"] * 2
    assert not any(one.hops for one in walked)
    assert agent.counters["walk_packets_sent"] == 0
    real, looks = walker.mtu_bytes, iter([1e9])  # it was larger when it was looked at
    monkeypatch.setattr(walker, "mtu_bytes", lambda *of: next(looks, None) or real(*of))
    assert chain.walk(family, size_bytes=MTU + 1).trouble == f"larger than the interface's MTU, {MTU}"


@FAMILIES
def test_no_more_packets_than_the_pace(chain: Chain, family: int) -> None:
    walks = [order(family, sport=50_000 + number) for number in range(100)]
    begin_s = time.monotonic()
    walked, agent = chain.walks(walks, Limits(packets_per_s=200.0))
    took_s = time.monotonic() - begin_s
    assert [one.walk for one in walked] == walks
    assert all([hop.answer for hop in one.hops] == ["expired"] * 3 + ["unreachable"] for one in walked)
    assert agent.counters == {"walks_made": 100, "walks_failed": 0, "walk_packets_sent": 400}
    assert took_s > 399 / 200 - 0.05


@FAMILIES
def test_what_is_not_done_in_time_is_told_so(chain: Chain, family: int) -> None:
    walks = [order(family, sport=50_000 + number) for number in range(60)]
    begin_s = time.monotonic()
    walked, agent = chain.walks(walks, Limits(all_s=0.5))
    assert time.monotonic() - begin_s < 1.5
    late = [one for one in walked if one.trouble]
    assert {one.trouble for one in late} == {NO_TIME}
    assert 0 < len(late) == agent.counters["walks_failed"]
    assert agent.counters["walk_packets_sent"] <= 101


@FAMILIES
def test_why_a_walk_cannot_be_made(chain: Chain, family: int) -> None:
    version = 4 if family == socket.AF_INET else 6
    reasons = {
        "lo is none of the agent's NICs": order(family, nic="lo"),
        "there is no interface gone": order(family, nic="gone"),
        f"bare has no IPv{version} address": order(family, nic="bare"),
        "'h2' is no address": order(family, dst_addr="h2"),
    }
    reasons["cannot be sent: Permission denied"] = order(family, dst_addr="10.77.0.255")
    for to in ("224.0.0.1", "::ffff:a4d:302", "127.0.0.1", "0.0.0.0", "ff02::1", "::1", "fe80::1%right"):
        reasons[f"{to} is no address of a host in the fabric"] = order(family, dst_addr=to)
    walked, agent = chain.walks([*reasons.values(), order(family)])
    assert [one.trouble for one in walked] == [*reasons, ""]
    assert agent.counters["walks_failed"] == len(reasons)


def test_where_no_route_leads_there(chain: Chain) -> None:
    """Of a socket that is bound to an interface, Linux takes an IPv4 address without a route for a neighbour's."""
    assert chain.walk(socket.AF_INET6, dst_addr="fd99::1").trouble == "cannot be sent: Network is unreachable"
    assert told(chain.walk(socket.AF_INET, dst_addr="10.99.0.1")) == [NOBODY] * 4


@FAMILIES
def test_in_a_lab_its_faults_are_found_on_their_links(default_lab: Lab, family: int) -> None:
    """Leaf, spine, leaf; what `cwdp lab cut` does to the links behind and before the spine."""
    routers = {
        str(default_lab.topology.router_addresses(name)[family == socket.AF_INET6]): name
        for name in default_lab.topology.switches
    }
    walk = order(
        family, nic="nic0", dst_addr=nic_address(default_lab, "h5", family), size_bytes=9_000, hops=3
    )
    sound = lab_walk(default_lab, walk)
    assert [(hop.answer, hop.tos) for hop in sound.hops] == [("expired", TOS)] * 3
    near, spine, far = (routers[hop.responder] for hop in sound.hops)
    try:
        faults.remark(default_lab.name, f"{near}-{spine}", dscp=0, direction=f"{near}>{spine}")
        faults.narrow(default_lab.name, f"{far}-{spine}", 4_000)
        found = lab_walk(default_lab, walk)
    finally:
        for link in (f"{near}-{spine}", f"{far}-{spine}"):
            faults.heal(default_lab.name, link, convergence_s=0)
    assert [(hop.answer, routers[hop.responder], hop.tos, hop.mtu_bytes) for hop in found.hops] == [
        ("expired", near, TOS, 0),
        ("expired", spine, ECN, 0),
        ("too_big", spine, ECN, 4_000),
    ]
    assert lab_walk(default_lab, walk) == sound


def nic_address(lab: Lab, host: str, family: int) -> str:
    nic = lab.host(host).nics[0]
    return str(nic.ipv4 if family == socket.AF_INET else nic.ipv6)


def lab_walk(lab: Lab, walk: Walk) -> Walked:
    links = Addresses()
    own = [nic_address(lab, "h1", family) for family in (socket.AF_INET, socket.AF_INET6)]
    links.known["nic0"] = Link(2, "nic0", "", True, own)
    with netns.netns_enter(lab.host("h1").netns):
        [walked] = asyncio.run(Walks(["nic0"], links, PORT, QUICK).make([walk]))
    return walked
