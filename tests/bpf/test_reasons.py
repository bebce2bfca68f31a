"""Every reason has a packet that is counted by it, and by nothing else."""

import time
from collections.abc import Callable

import pytest
from machine import Machine, Run
from probes import KEY_ID, Probe, reflected, request, signed
from scapy.layers.inet import UDP
from scapy.packet import Packet

from cwdp.dataplane.abi import Reason, SlotState

pytestmark = pytest.mark.kernel

T1 = 1_000_000_007


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


WAYS: dict[Reason, Callable[[Machine], Run]] = {
    Reason.PROBE_SENT: lambda d: d.egress(request()),
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
}


@pytest.mark.parametrize("reason", list(Reason))
def test_reason(dataplane: Machine, reason: Reason) -> None:
    assert WAYS[reason](dataplane).counted == {reason: 1}
