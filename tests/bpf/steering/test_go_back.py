"""Going back: what is remembered of acknowledgements, and what becomes of those that the agent sends.

They are NAKs in a peer's place, and ACKs that a queue pair has sent before.
"""

import struct
from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import ip_address

import pytest
import roce
from machine import SKB_CONTEXT_BYTES, SKB_MARK_OFFSET, SKB_PRIORITY_OFFSET, TC_ACT_UNSPEC, Machine, Run
from probes import network
from pulses import BACKUP, PRIMARY, Paths, events
from scapy.contrib.roce import AETH, BTH
from scapy.layers.l2 import Ether
from scapy.packet import Packet

from cwdp.agent.goback.packets import acknowledgement, nak
from cwdp.dataplane import abi
from cwdp.dataplane.abi import Direction, PathState, Reason

pytestmark = pytest.mark.kernel

TC_ACT_SHOT, TC_ACT_REDIRECT = 2, 7
LQPN = 0x31
ACK_AETH = 0x05000007
KNOWN, BY_NAK, LAST = 1 << 31, 1 << 30, 0xFFFFFF
OURS, NEXT_HOP = "02:00:00:00:00:01", "02:00:00:00:00:02"
PSN_SEQUENCE_ERROR, RNR, REMOTE_ACCESS, RESERVED = 0x60, 0x20, 0x62, 0x40
BOTH_FAMILIES = pytest.mark.parametrize("ip_version", [4, 6])


@dataclass(frozen=True)
class Row:
    description: str
    packets: list[Packet]
    acked: int | None


ROWS = [
    Row("nothing but requests", [roce.data(psn=5), roce.data("RC_READ_REQUEST", psn=6)], None),
    Row("acknowledged", [roce.acknowledge(psn=5), roce.acknowledge(0x1F, psn=9)], 9),
    Row("the last word counts", [roce.acknowledge(psn=9), roce.acknowledge(psn=5)], 5),
    Row("a NAK speaks of all before it", [roce.acknowledge(PSN_SEQUENCE_ERROR, psn=7)], BY_NAK | 6),
    Row("a NAK after the wrap", [roce.acknowledge(PSN_SEQUENCE_ERROR, psn=0)], BY_NAK | LAST),
    Row("more after a NAK", [roce.acknowledge(PSN_SEQUENCE_ERROR, psn=7), roce.acknowledge(psn=9)], 9),
    Row(
        "a read goes on after a NAK",
        [roce.acknowledge(PSN_SEQUENCE_ERROR, psn=7), roce.data("RC_READ_RESPONSE_MIDDLE", psn=7)],
        7,
    ),
    Row("not ready", [roce.acknowledge(RNR | 3, psn=7)], 6),
    Row("an error", [roce.acknowledge(psn=5), roce.acknowledge(REMOTE_ACCESS, psn=9)], 5),
    Row("no known syndrome", [roce.acknowledge(psn=5), roce.acknowledge(RESERVED, psn=9)], 5),
    Row("a congestion notification", [roce.acknowledge(psn=5), roce.congestion_notification()], 5),
    Row("a whole read", [roce.data("RC_READ_RESPONSE_ONLY", psn=8)], 8),
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.description)
def test_the_last_acknowledged(dataplane: Machine, row: Row) -> None:
    for packet in row.packets:
        dataplane.ingress(packet)
    acked = int(dataplane.qp(Direction.INGRESS)["acked_psn"])
    assert acked == (0 if row.acked is None else KNOWN | row.acked)


@pytest.mark.parametrize(
    ("arrived", "acked"), [((5, 6, 7), 7), ((5, 7), 5), ((5, 6, 9, 7), 7), ((LAST, 0), 0)], ids=str
)
def test_responses_count_up_to_a_gap(dataplane: Machine, arrived: tuple[int, ...], acked: int) -> None:
    first, *rest = arrived
    dataplane.ingress(roce.data("RC_READ_RESPONSE_FIRST", psn=first))
    for psn in rest:
        dataplane.ingress(roce.data("RC_READ_RESPONSE_MIDDLE", psn=psn))
    assert dataplane.qp(Direction.INGRESS)["acked_psn"] == KNOWN | acked


def test_what_leaves_says_nothing_of_what_is_acknowledged_here(dataplane: Machine) -> None:
    dataplane.leave(roce.acknowledge(psn=5))
    assert dataplane.qp(Direction.EGRESS)["acked_psn"] == 0


@pytest.mark.parametrize(
    "later",
    [
        roce.data("RC_READ_RESPONSE_ONLY", psn=9),
        roce.acknowledge(PSN_SEQUENCE_ERROR, psn=9),
        roce.acknowledge(RNR | 3, psn=9),
        roce.acknowledge(RESERVED, psn=9),
    ],
    ids=["a read", "a NAK", "not ready", "no known syndrome"],
)
def test_the_last_ack_sent(dataplane: Machine, later: Packet) -> None:
    """Of a READ an ACK was never sent: who asked for it would take it for done without its data."""
    for packet in (roce.acknowledge(psn=5), roce.acknowledge(0x1F, psn=8), later):
        dataplane.leave(packet)
    assert dataplane.qp(Direction.EGRESS)["ack_sent"] == (0x1F << 24 | 1) << 32 | KNOWN | 8


def test_requests_hide_no_ack(dataplane: Machine) -> None:
    for packet in (roce.acknowledge(psn=5), roce.data(psn=77)):
        dataplane.leave(packet)
    assert dataplane.qp(Direction.EGRESS)["ack_sent"] == 1 << 32 | KNOWN | 5


def by_agent(ip_version: int = 4, psn: int = 9, **fields: int) -> bytes:
    """A NAK as it reaches tc egress."""
    here, there = network(ip_version).src, network(ip_version).dst
    return framed(nak(ip_address(there), ip_address(here), LQPN, psn), ip_version, **fields)


def again(ip_version: int = 4, psn: int = 9) -> bytes:
    """An ACK that the agent says again, as it reaches tc egress."""
    here, there = network(ip_version).src, network(ip_version).dst
    packet = acknowledgement(ip_address(here), ip_address(there), roce.QPN, ACK_AETH, psn)
    return framed(packet, ip_version)


def framed(packet: bytes, ip_version: int, **fields: int) -> bytes:
    """With the checksum that the kernel fills in."""
    link = Ether(src=OURS, dst=NEXT_HOP, type=0x0800 if ip_version == 4 else 0x86DD)
    frame = Ether(bytes(link) + packet)
    if ip_version == 4:
        frame["IP"].chksum = None
    for name, value in fields.items():
        frame[AETH if name == "syndrome" else BTH].setfieldval(name, value)
    return bytes(frame)


def inject(dataplane: Machine, frame: bytes, rqpn: int = roce.QPN) -> Run:
    """A packet of the agent's, from a socket of that priority."""
    context = bytearray(SKB_CONTEXT_BYTES)
    struct.pack_into("=I", context, SKB_MARK_OFFSET, abi.MARK)
    struct.pack_into("=I", context, SKB_PRIORITY_OFFSET, rqpn)
    return dataplane.leave_as(frame, context)


@BOTH_FAMILIES
def test_it_is_what_the_peer_would_send(ip_version: int) -> None:
    packet = Ether(by_agent(ip_version, psn=LAST))
    anew = packet.copy()
    anew[BTH].icrc = None
    assert bytes(anew) == bytes(packet)
    there, here = network(ip_version).dst, network(ip_version).src
    assert (packet.payload.src, packet.payload.dst) == (there, here)
    assert (packet[BTH].opcode, packet[BTH].dqpn, packet[BTH].psn) == (0x11, LQPN, LAST)
    assert packet[AETH].syndrome == PSN_SEQUENCE_ERROR


@BOTH_FAMILIES
def test_it_is_given_to_this_host_after_a_switch(dataplane: Machine, ip_version: int) -> None:
    Paths(dataplane, roce.data(ip_version=ip_version)).fail_primary()
    frame = by_agent(ip_version)
    given = inject(dataplane, frame)
    assert (given.verdict, given.counted) == (TC_ACT_REDIRECT, {Reason.GO_BACK_GIVEN: 1})
    expected = Ether(frame)
    expected.dst = OURS
    assert given.packet == bytes(expected)


def test_it_finds_a_dead_path_by_itself(dataplane: Machine) -> None:
    """A queue pair that waits sends nothing by which the dataplane would notice."""
    paths = Paths(dataplane)
    assert paths.port() == PRIMARY
    paths.silence_primary()
    assert paths.state(PRIMARY) == PathState.UP
    given = inject(dataplane, by_agent())
    assert given.verdict == TC_ACT_REDIRECT
    assert given.counted == {Reason.GO_BACK_GIVEN: 1, Reason.PATH_WENT_DOWN: 1}
    assert paths.state(PRIMARY) == PathState.DOWN
    assert len(events(dataplane)) == 1
    assert paths.port() == BACKUP


@pytest.mark.parametrize("silent", [False, True], ids=["healthy", "silent for too short a time"])
@pytest.mark.parametrize("said", [by_agent, again], ids=["NAK", "ACK"])
def test_it_is_dropped_while_the_path_is_in_use(
    dataplane: Machine, said: Callable[[], bytes], silent: bool
) -> None:
    paths = Paths(dataplane)
    assert paths.port() == PRIMARY
    paths.ask(PRIMARY, BACKUP)
    if silent:
        paths.ask(BACKUP)
    dropped = inject(dataplane, said())
    assert (dropped.verdict, dropped.counted) == (TC_ACT_SHOT, {Reason.GO_BACK_NOT_SWITCHED: 1})
    assert paths.state(PRIMARY) == PathState.UP


@pytest.mark.parametrize("rqpn", [roce.QPN + 1, 0, LQPN])
def test_it_is_dropped_for_a_queue_pair_that_nobody_steers(dataplane: Machine, rqpn: int) -> None:
    Paths(dataplane).fail_primary()
    dropped = inject(dataplane, by_agent(), rqpn)
    assert (dropped.verdict, dropped.counted) == (TC_ACT_SHOT, {Reason.GO_BACK_NOT_STEERED: 1})


def test_it_makes_no_record(dataplane: Machine) -> None:
    inject(dataplane, by_agent())
    for table in dataplane.maps.qps.values():
        assert not table["tag"].any()


@pytest.mark.parametrize(
    "fields", [{"syndrome": 0x20}, {"syndrome": 0x62}, {"opcode": 0x10}, {"opcode": 0x04}], ids=str
)
def test_nothing_else_is_given_to_this_host(dataplane: Machine, fields: dict[str, int]) -> None:
    Paths(dataplane).fail_primary()
    frame = by_agent(4, **fields)
    left = inject(dataplane, frame)
    assert (left.verdict, left.packet) == (TC_ACT_UNSPEC, frame)
    assert left.counted == {Reason.PROBE_BAD_TEMPLATE: 1}


def test_without_the_mark_it_is_any_packet(dataplane: Machine) -> None:
    Paths(dataplane).fail_primary()
    frame = by_agent()
    assert dataplane.leave(frame).verdict == TC_ACT_UNSPEC


@BOTH_FAMILIES
def test_an_ack_is_what_the_queue_pair_would_send(ip_version: int) -> None:
    packet = Ether(again(ip_version, psn=LAST))
    anew = packet.copy()
    anew[BTH].icrc = None
    assert bytes(anew) == bytes(packet)
    here, there = network(ip_version).src, network(ip_version).dst
    assert (packet.payload.src, packet.payload.dst) == (here, there)
    assert (packet[BTH].opcode, packet[BTH].dqpn, packet[BTH].psn) == (0x11, roce.QPN, LAST)
    assert (packet[AETH].syndrome, packet[AETH].msn) == (0x05, 7)


@BOTH_FAMILIES
def test_an_ack_takes_the_backup_after_a_switch(dataplane: Machine, ip_version: int) -> None:
    """As a packet of the queue pair, with the ICRC of the backup's source port."""
    Paths(dataplane, roce.data(ip_version=ip_version)).fail_primary()
    left = inject(dataplane, again(ip_version))
    assert left.verdict == TC_ACT_UNSPEC
    assert left.counted == {Reason.GO_BACK_GIVEN: 1, Reason.STEER_REWRITTEN: 1}
    expected = Ether(again(ip_version))
    expected["UDP"].sport = BACKUP
    expected[BTH].icrc = None
    assert left.packet == bytes(expected)
    assert dataplane.qp(Direction.EGRESS)["ack_sent"] == ACK_AETH << 32 | KNOWN | 9


def test_an_ack_finds_a_dead_path_by_itself(dataplane: Machine) -> None:
    """Who only receives sends nothing else by which the dataplane would notice."""
    paths = Paths(dataplane)
    assert paths.port() == PRIMARY
    paths.silence_primary()
    left = inject(dataplane, again())
    assert left.dissected["UDP"].sport == BACKUP
    assert paths.state(PRIMARY) == PathState.DOWN


def test_an_ack_is_dropped_for_a_queue_pair_that_nobody_steers(dataplane: Machine) -> None:
    dropped = inject(dataplane, again())
    assert (dropped.verdict, dropped.counted) == (TC_ACT_SHOT, {Reason.GO_BACK_NOT_STEERED: 1})
    for table in dataplane.maps.qps.values():
        assert not table["tag"].any()
