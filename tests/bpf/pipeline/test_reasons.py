"""Every reason has a packet that is counted by it."""

import time
from collections.abc import Callable

import pytest
import roce
from machine import Machine, Run
from probes import KEY_ID, Probe, reflected, request, signed
from pulses import BACKUP, HOLD_DOWN_NS, PRIMARY, SECOND_NS, Paths
from scapy.layers.inet import UDP
from scapy.packet import Packet

from cwdp.dataplane import abi
from cwdp.dataplane.abi import Direction, Position, Reason, SlotState
from cwdp.dataplane.steering.steering import Steer

pytestmark = pytest.mark.kernel

T1 = 1_000_000_007
QP_BUSY, SOMEBODY = 1, 3
"""Tags: of a place that is being filled in, and of one that is taken."""


def with_sport(packet: Packet, sport: int) -> Packet:
    """The packet from another UDP source port than it was signed for."""
    packet[UDP].sport = sport
    return packet


def reply(dataplane: Machine, *, stay_ns: int = 1, state: SlotState = SlotState.SENT) -> Packet:
    """The reply to a request of a second ago, whose slot has come to that state."""
    t1 = time.monotonic_ns() - 10**9
    sent = dataplane.expect_reply(request(), t1)
    dataplane.slot(0)["tag"] = state
    return reflected(sent, t1, t1 + stay_ns)


def forged(packet: Packet) -> Packet:
    """The packet, signed by nobody."""
    packet[Probe].mac ^= 1
    return packet


def forget_keys(dataplane: Machine, packet: Packet) -> Packet:
    """The packet, once its key is no longer valid."""
    dataplane.maps.drop_key(KEY_ID)
    return packet


def in_full_table(dataplane: Machine, tag: int) -> Run:
    """A queue pair comes in where every place is taken by that tag."""
    dataplane.maps.qps[Direction.INGRESS]["tag"] = tag
    return dataplane.ingress(roce.data())


def steered(dataplane: Machine, packet: Packet, *, gso_size: int = 0) -> Run:
    """A packet of a steered queue pair that is known already."""
    dataplane.steer(roce.data(), Steer(PRIMARY))
    dataplane.leave(roce.data())
    return dataplane.leave(packet, gso_size=gso_size)


def without_last_word(packet: Packet) -> bytes:
    """The packet, cut short of its ICRC."""
    return bytes(packet)[:-4]


def at_full_horizon(dataplane: Machine) -> Run:
    """A packet of a slice whose next departure lies further away than a queue keeps times for."""
    default = dataplane.maps.slices[0]
    default["fair_q18"], default["departure_ns"] = 1, 2**62
    return dataplane.leave(roce.data())


def losing_primary(dataplane: Machine) -> Run:
    """A packet meets a silent primary path and an answering backup."""
    paths = Paths(dataplane)
    assert paths.port() == PRIMARY
    paths.silence_primary()
    return dataplane.leave(paths.packet)


def healing_primary(dataplane: Machine) -> Run:
    """The answer that ends the hold-down of a path."""
    paths = Paths(dataplane)
    paths.fail_primary()
    paths.ask(PRIMARY, BACKUP)
    paths.pass_time(HOLD_DOWN_NS + SECOND_NS)
    return paths.answer(paths.send(PRIMARY))


WAYS: dict[Reason, Callable[[Machine], Run]] = {
    Reason.PROBE_SENT: lambda d: d.egress(request()),
    Reason.PROBE_NOT_OURS: lambda d: d.leave(request(), mark=abi.MARK),
    Reason.PROBE_BAD_TEMPLATE: lambda d: d.egress(request(version=2)),
    Reason.PROBE_NO_KEY: lambda d: d.egress(request(key_id=KEY_ID + 1)),
    Reason.REQUEST_REFLECTED: lambda d: d.ingress(signed(request(), T1)),
    Reason.REQUEST_UNKNOWN_KEY: lambda d: d.ingress(forget_keys(d, signed(request(), T1))),
    Reason.REQUEST_BAD_MAC: lambda d: d.ingress(request()),
    Reason.REQUEST_BAD_PORT: lambda d: d.ingress(with_sport(signed(request(), T1), 1)),
    Reason.REPLY_ACCEPTED: lambda d: d.ingress(reply(d)),
    Reason.REPLY_UNKNOWN_KEY: lambda d: d.ingress(forget_keys(d, reply(d))),
    Reason.REPLY_BAD_MAC: lambda d: d.ingress(forged(reply(d))),
    Reason.REPLY_BAD_PORT: lambda d: d.ingress(with_sport(reply(d), 1)),
    Reason.REPLY_UNEXPECTED: lambda d: d.ingress(request(kind=2, seq=1)),
    Reason.REPLY_LATE: lambda d: d.ingress(reply(d, state=SlotState.FREE)),
    Reason.REPLY_DUPLICATE: lambda d: d.ingress(reply(d, state=SlotState.DONE)),
    Reason.REPLY_TIME_REVERSED: lambda d: d.ingress(reply(d, stay_ns=-1)),
    Reason.BAD_LENGTH: lambda d: d.ingress(bytes(request())[:-1]),
    Reason.BAD_VERSION: lambda d: d.ingress(request(version=2)),
    Reason.BAD_KIND: lambda d: d.ingress(request(kind=3)),
    Reason.PULSE_BAD_PATH: lambda d: d.egress(request(pair_position=Position.PULSE, path=0)),
    Reason.QP_ADDED: lambda d: d.ingress(roce.data()),
    Reason.QP_EVICTED: lambda d: in_full_table(d, SOMEBODY),
    Reason.QP_UNTRACKED: lambda d: in_full_table(d, QP_BUSY),
    Reason.STEER_REWRITTEN: lambda d: steered(d, roce.data()),
    Reason.STEER_BAD_LENGTH: lambda d: steered(d, without_last_word(roce.data())),
    Reason.STEER_GSO: lambda d: steered(d, roce.data(), gso_size=40),
    Reason.PACE_CLAMPED: at_full_horizon,
    Reason.PATH_WENT_DOWN: losing_primary,
    Reason.PATH_CAME_UP: healing_primary,
}
BESIDE = {
    Reason.PACE_CLAMPED: Reason.QP_ADDED,
    Reason.PATH_WENT_DOWN: Reason.STEER_REWRITTEN,
    Reason.PATH_CAME_UP: Reason.REPLY_ACCEPTED,
}
"""What else is counted of the same packet."""

UNASKED = {Reason.PATH_DOUBTED}
"""See test_unasked.py."""

NOT_TRIED = {Reason.STEER_NO_MEMORY}
"""Only where the kernel has no page left."""

OF_GOING_BACK = {reason for reason in Reason if reason.name.startswith("GO_BACK_")}
"""See test_go_back.py."""

OF_TWO_NICS = {reason for reason in Reason if reason.name.startswith("DETOUR_")}
"""See test_detour.py."""


OF_TCP = {reason for reason in Reason if reason.name.startswith("TCP_")}
"""See test_tcp_segments.py."""

OF_BURSTS = {Reason.BURST_EVICTED}
"""See test_bursts.py."""


@pytest.mark.parametrize("reason", sorted(WAYS))
def test_reason(dataplane: Machine, reason: Reason) -> None:
    counted = {reason: 1}
    if reason in BESIDE:
        counted[BESIDE[reason]] = 1
    assert WAYS[reason](dataplane).counted == counted


def test_no_reason_is_forgotten() -> None:
    elsewhere = UNASKED | OF_TWO_NICS | OF_GOING_BACK | OF_TCP | OF_BURSTS
    assert set(Reason) == WAYS.keys() | NOT_TRIED | elsewhere
