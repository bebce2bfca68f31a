"""Detours: which way is chosen, what the packet looks like then, and that the far end makes it what it was."""

import errno
import itertools
import socket
from collections.abc import Iterator
from typing import Self

import numpy as np
import pytest
import roce
from detours import BACKUP, DETOUR, GATEWAY_MAC, MAC, OTHER_SOURCES, PRIMARY, WAYS, TwoNics, detoured
from machine import TC_ACT_UNSPEC, XDP_PASS, Machine
from probes import SOURCES
from scapy.contrib.roce import BTH
from scapy.layers.inet import UDP
from scapy.layers.l2 import Ether
from waiting import WAIT_S
from wire import Shape, Wire, pseudo_header_sum, received_form

from cwdp.dataplane import abi
from cwdp.dataplane.abi import Direction, EventKind, PathState, Reason

pytestmark = pytest.mark.kernel

TC_ACT_REDIRECT = 7
ETH_P_ALL = 0x0003
SOL_PACKET, PACKET_IGNORE_OUTGOING = 263, 23
META_BYTES, VLAN_BYTES = 4, 4
STATES = ("alive", "silent", "healing", "down", "never")
FAMILIES = pytest.mark.parametrize("ip_version", [4, 6], ids=["IPv4", "IPv6"])
CHECKSUMS = pytest.mark.parametrize("checksum", [False, True], ids=["no checksum", "checksum"])


@pytest.fixture
def nics(dataplane: Machine, ip_version: int) -> Iterator[TwoNics]:
    made = TwoNics(dataplane, ip_version)
    try:
        yield made
    finally:
        made.close()


@pytest.fixture
def ip_version() -> int:
    """Unless a test says otherwise."""
    return 4


def expected_way(states: dict[str, str]) -> str:
    """Which way must be taken, in so many words."""
    primary, backup = states["primary"], states["backup"]
    for way in WAYS:
        if states[way] == "alive":
            return way
    if primary in ("silent", "never"):
        return "primary"
    return "primary" if primary == "healing" and backup in ("silent", "never", "down") else "backup"


def test_every_combination_of_states(nics: TwoNics) -> None:
    for combination in itertools.product(STATES, repeat=len(WAYS)):
        states = dict(zip(WAYS, combination, strict=True))
        for way, state in states.items():
            nics.set(way, state)
        run = nics.dataplane.leave(nics.packet)
        assert run.packet == nics.expected(expected_way(states)), states


def test_what_is_left_for_a_detour_is_down(nics: TwoNics) -> None:
    """So that it must be healthy for a while; one event each."""
    nics.kill("primary", "backup")
    run = nics.dataplane.leave(nics.packet)
    assert run.counted == {
        Reason.PATH_WENT_DOWN: 2,
        Reason.DETOUR_TAKEN: 1,
        Reason.STEER_REWRITTEN: 1,
        Reason.QP_ADDED: 1,
    }
    assert run.verdict == TC_ACT_REDIRECT
    down = {way: nics.path(way)["state"] == PathState.DOWN for way in WAYS}
    assert down == dict.fromkeys(WAYS, False) | {"primary": True, "backup": True}
    kinds = nics.dataplane.maps.events["kind"][nics.dataplane.maps.events["number"] > 0]
    assert kinds.tolist() == [EventKind.PATH_DOWN] * 2


def test_what_is_left_for_the_other_nic_is_down(nics: TwoNics) -> None:
    nics.kill("primary", "backup", "detour")
    run = nics.dataplane.leave(nics.packet)
    assert run.counted[Reason.DETOUR_OTHER_NIC] == 1
    assert Reason.DETOUR_TAKEN not in run.counted
    assert [nics.path(way)["state"] == PathState.DOWN for way in WAYS] == [True, True, True, False, False]


def test_a_nic_is_given_up_later_than_a_path(nics: TwoNics) -> None:
    """Silent for twice dead_after: a detour is taken, the other NIC is not."""
    nics.kill("primary", "backup", "detour")
    for way in ("primary", "backup"):
        nics.path(way)["waiting_since_ns"] += np.uint64(80_000_000_000)
        nics.path(way)["last_answer_ns"] += np.uint64(80_000_000_000)
    assert nics.dataplane.leave(nics.packet).packet == nics.expected("primary")
    nics.set("detour", "alive")
    assert nics.dataplane.leave(nics.packet).packet == nics.expected("detour")


@FAMILIES
@CHECKSUMS
@pytest.mark.parametrize("vlans", [0, 1, 2])
def test_a_detour_of_every_opcode(nics: TwoNics, vlans: int, checksum: bool, ip_version: int) -> None:
    """Behind tags the link addresses stay as they are."""
    nics.kill("primary", "backup")
    far = OTHER_SOURCES[ip_version][1]
    for name in roce.OPCODES:
        packet = roce.data(name, 30, checksum=checksum, vlans=vlans, ip_version=ip_version)
        run = nics.dataplane.leave(packet)
        assert run.verdict == (TC_ACT_UNSPEC if vlans else TC_ACT_REDIRECT)
        assert run.counted[Reason.DETOUR_TAKEN] == 1
        assert run.packet == detoured(roce.steered(packet, DETOUR), far), name


@FAMILIES
@CHECKSUMS
def test_the_sum_that_a_nic_left_stays_right(nics: TwoNics, checksum: bool, ip_version: int) -> None:
    """Of all bytes of the packet (CHECKSUM_COMPLETE)."""
    nics.kill("primary", "backup")
    for payload in range(40):
        packet = roce.data(payload=payload, sport=DETOUR, checksum=checksum, ip_version=ip_version)
        try:
            run = nics.dataplane.leave(packet, summed=True)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            pytest.skip("this kernel makes no such packets for tests: Linux 6.16 does")
        assert run.packet == detoured(bytes(packet), OTHER_SOURCES[ip_version][1])


@FAMILIES
def test_a_checksum_left_to_the_device(nics: TwoNics, ip_version: int) -> None:
    """What stands in its place is the sum of the pseudo-header, with the new address."""
    nics.kill("primary", "backup")
    udp_at = roce.UDP_AT[ip_version] + VLAN_BYTES
    wire = Wire(nics.dataplane)
    for payload in (0, 1, 100, 1_000):
        packet = roce.data(payload=payload, sport=DETOUR, vlans=1, ip_version=ip_version)
        expected = Ether(detoured(bytes(packet), OTHER_SOURCES[ip_version][1]))
        icrc = bytes(expected)[-roce.ICRC_BYTES :]
        packet[UDP].chksum, expected[UDP].chksum = pseudo_header_sum(packet), pseudo_header_sum(expected)
        got = wire.carry(bytes(packet), Shape(checksum_at=udp_at))
        assert got == received_form(bytes(expected)[: -roce.ICRC_BYTES] + icrc)
    wire.close()


@FAMILIES
@CHECKSUMS
def test_the_far_end_restores_it(nics: TwoNics, checksum: bool, ip_version: int) -> None:
    """Into roce1 as it came off the wire, out of roce0 as it was sent, with the ICRC that scapy expects."""
    nics.receive_as_partner()
    was = roce.data("RC_WRITE_ONLY", 61, checksum=checksum, ip_version=ip_version)
    before = nics.other.counters()
    with Taps(nics) as taps:
        taps.send(detoured(bytes(was), OTHER_SOURCES[ip_version][0]))
        got = taps.receive()
    assert got[6:] == bytes(was)[6:]
    assert Ether(got).dst == MAC
    assert Ether(got)[BTH].icrc == Ether(bytes(was))[BTH].icrc
    moved = {name: n - before[name] for name, n in nics.other.counters().items() if n != before[name]}
    assert moved == {"detour_restored": 1}
    assert nics.dataplane.qp(Direction.INGRESS)["packets"] == 1


@FAMILIES
def test_what_leaves_by_the_other_nic_has_its_next_hop(nics: TwoNics, ip_version: int) -> None:
    for ways, way in ((3, "other"), (4, "other_detour")):
        nics.kill(*WAYS[:ways])
        with Taps(nics, near="roce0", far="far1") as taps:
            taps.send(bytes(nics.packet))
            got = taps.receive()
        assert got[12:] == nics.expected(way)[12:]
        assert Ether(got).dst == GATEWAY_MAC
        assert not (nics.other.qps[Direction.EGRESS]["tag"] > 1).any()


@FAMILIES
@pytest.mark.parametrize("vlans", [1, 2])
def test_tagged_packets_keep_to_their_nic(nics: TwoNics, vlans: int, ip_version: int) -> None:
    nics.kill(*WAYS[:3])
    packet = roce.data(ip_version=ip_version, vlans=vlans)
    run = nics.dataplane.leave(packet)
    assert (run.verdict, run.packet) == (TC_ACT_UNSPEC, bytes(packet))
    assert run.counted[Reason.DETOUR_REFUSED] == 1


def test_what_is_not_in_order_takes_no_detour(nics: TwoNics) -> None:
    nics.kill("primary", "backup")
    short = bytes(nics.packet)[:-4]
    run = nics.dataplane.leave(short)
    assert (run.verdict, run.packet) == (TC_ACT_UNSPEC, short)
    assert run.counted[Reason.STEER_BAD_LENGTH] == run.counted[Reason.DETOUR_REFUSED] == 1


def test_marked_for_a_nic_that_stands_in_for_none(dataplane: Machine) -> None:
    packet = detoured(bytes(roce.data()), SOURCES[4][1])
    run = dataplane.ingress(packet)
    assert (run.verdict, run.packet, run.counted) == (XDP_PASS, packet, {Reason.DETOUR_UNKNOWN: 1})


def test_marked_for_a_nic_that_stands_in(nics: TwoNics) -> None:
    """Announced to tc, and not counted as one of this NIC's queue pairs."""
    packet = detoured(bytes(roce.data()), SOURCES[4][1])
    run = nics.dataplane.ingress(packet)
    assert (run.verdict, run.counted) == (XDP_PASS, {})
    assert run.packet[META_BYTES:] == packet
    assert not (nics.dataplane.maps.qps[Direction.INGRESS]["tag"] > 1).any()


def test_only_an_ipv4_partner(nics: TwoNics) -> None:
    """IPv6 for it passes as it came, counted."""
    nics.receive_as_partner()
    packet = detoured(bytes(roce.data(ip_version=6)), OTHER_SOURCES[6][0])
    before = nics.other.counters()["detour_unknown"]
    with Taps(nics, out="roce1") as taps:
        taps.send(packet)
        assert taps.receive() == packet
    assert nics.other.counters()["detour_unknown"] == before + 1


def test_detours_of_a_path_are_counted(nics: TwoNics) -> None:
    paths, others = nics.dataplane.maps.paths, nics.other.paths
    assert (paths["detours"].sum(), others["detours"].sum()) == (1, 2)
    nics.detours.reconcile({})
    assert (paths["detours"].sum(), others["detours"].sum()) == (0, 0)
    assert (paths["users"] > 0).sum() == 2
    assert nics.dataplane.leave(nics.packet).dissected["UDP"].sport in (PRIMARY, BACKUP)


class Taps:
    """Frames in at one end, and out at another."""

    def __init__(self, nics: TwoNics, near: str = "far1", far: str = "roce0", out: str | None = None) -> None:
        self._nics, self._near, self._far = nics, near, out or far

    def __enter__(self) -> Self:
        with self._nics.dataplane.namespace.entered():
            self._in = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
            self._in.bind((self._near, 0))
            self._out = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
            self._out.bind((self._far, ETH_P_ALL))
            self._out.setsockopt(SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)
            self._out.settimeout(WAIT_S)
        return self

    def __exit__(self, *_: object) -> None:
        self._in.close()
        self._out.close()

    def send(self, frame: bytes) -> None:
        self._in.send(frame)

    def receive(self) -> bytes:
        """The next RoCEv2 frame."""
        while True:
            frame = self._out.recv(10_000)
            if abi.ROCE_PORT.to_bytes(2, "big") in frame[36:66]:
                return frame
