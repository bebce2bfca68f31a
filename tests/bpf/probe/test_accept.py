"""XDP at the initiator: the reply to a probe under way is a sample, once; all others are counted and go no further."""

import itertools
import time

import pytest
from machine import XDP_DROP, XDP_PASS, Machine
from probes import KEY_ID, Probe, reflected, request, signed
from scapy.layers.inet import UDP
from scapy.packet import Packet

from cwdp.dataplane import abi
from cwdp.dataplane.abi import BOUND_UNSYNCED, Reason, SlotState

pytestmark = pytest.mark.kernel

SEQ = 0x0001_2345
ROUND_TRIP_NS = 10_000_000_000
"""So long ago did our requests leave: nothing that happens within a test comes near to it."""

ACCEPTED = {Reason.REPLY_ACCEPTED: 1}


def sent_long_ago(dataplane: Machine, template: Packet) -> tuple[Packet, int]:
    """A request under way, and when it left."""
    t1 = time.monotonic_ns() - ROUND_TRIP_NS
    return dataplane.expect_reply(template, t1), t1


@pytest.mark.parametrize(("version", "vlans"), list(itertools.product((4, 6), (0, 1, 2))))
def test_keeps_the_four_timestamps(dataplane: Machine, version: int, vlans: int) -> None:
    sent, t1 = sent_long_ago(dataplane, request(version, vlans, seq=SEQ))
    t2, t3 = 5_000_000_000_000, 5_000_000_000_900
    before = time.monotonic_ns()
    run = dataplane.ingress(reflected(sent, t2, t3))
    after = time.monotonic_ns()
    assert (run.verdict, run.counted) == (XDP_DROP, ACCEPTED)
    assert dataplane.state(SEQ) == (SEQ, SlotState.DONE)
    slot = dataplane.slot(SEQ)
    assert (slot["t1"], slot["t2"], slot["t3"]) == (t1, t2, t3)
    assert before <= slot["t4"] <= after
    assert slot["bound_ns"] == BOUND_UNSYNCED


@pytest.mark.parametrize("own_offset_ns", [0, -3, 1_700_000_000_000_000_000, -2_000_000_000])
@pytest.mark.parametrize("peer_offset_ns", [0, 12_345, -(10**17), 10**17])
@pytest.mark.parametrize("years", [0, 1, 50])
def test_owd(dataplane: Machine, own_offset_ns: int, peer_offset_ns: int, years: int) -> None:
    """Both delays, whatever the clocks: the peer may be years away on its own clock."""
    now = time.monotonic_ns()
    dataplane.maps.write_clock(
        ref_local_ns=now, offset_ns=own_offset_ns, drift=0.0, bound_ns=19.0, bound_drift=0.0
    )
    sent, t1 = sent_long_ago(dataplane, request(seq=SEQ))
    t2 = t1 + years * 31_557_600 * 10**9 + 4_000
    t3 = t2 + 1_000
    reply = reflected(sent, t2, t3, peer_offset=peer_offset_ns, bound_ns=30)
    assert dataplane.ingress(reply).counted == ACCEPTED
    slot = dataplane.slot(SEQ)
    assert slot["fwd_owd_ns"] == t2 + peer_offset_ns - (t1 + own_offset_ns)
    assert slot["rev_owd_ns"] == int(slot["t4"]) + own_offset_ns - (t3 + peer_offset_ns)
    assert slot["bound_ns"] == 49


@pytest.mark.parametrize(
    ("own", "peer", "together"),
    [
        (10, 20, 31),
        (2**32 - 3, 0, 2**32 - 2),
        (2**31, 2**31, BOUND_UNSYNCED),
        (5, BOUND_UNSYNCED, BOUND_UNSYNCED),
    ],
)
def test_bounds_saturate(dataplane: Machine, own: int, peer: int, together: int) -> None:
    dataplane.maps.write_clock(
        ref_local_ns=time.monotonic_ns(), offset_ns=0, drift=0.0, bound_ns=own + 0.6, bound_drift=0.0
    )
    sent, t1 = sent_long_ago(dataplane, request(seq=SEQ))
    dataplane.ingress(reflected(sent, t1 + 1, t1 + 2, bound_ns=peer))
    assert dataplane.slot(SEQ)["bound_ns"] == together


@pytest.mark.parametrize(
    ("description", "state", "seq_in_slot", "reason"),
    [
        ("nothing was sent", None, SEQ, Reason.REPLY_UNEXPECTED),
        ("the slot is a later round's", SlotState.SENT, SEQ + abi.SLOTS, Reason.REPLY_UNEXPECTED),
        ("given up for lost", SlotState.FREE, SEQ, Reason.REPLY_LATE),
        ("being filled by another CPU", SlotState.FILLING, SEQ, Reason.REPLY_DUPLICATE),
        ("answered already", SlotState.DONE, SEQ, Reason.REPLY_DUPLICATE),
    ],
)
def test_refuses_by_the_slot(
    dataplane: Machine, description: str, state: SlotState | None, seq_in_slot: int, reason: Reason
) -> None:
    sent, t1 = sent_long_ago(dataplane, request(seq=SEQ))
    slot = dataplane.slot(SEQ)
    slot["tag"] = 0 if state is None else seq_in_slot << 32 | state
    before = slot.copy()
    assert_refused(dataplane, reflected(sent, t1 + 5, t1 + 6), reason)
    assert slot == before


def assert_refused(dataplane: Machine, reply: Packet, reason: Reason, verdict: int = XDP_DROP) -> None:
    """No sample, counted, and dropped: the stack would answer that nobody listens."""
    run = dataplane.ingress(reply)
    assert (run.verdict, run.packet, run.counted) == (verdict, bytes(reply), {reason: 1})


@pytest.mark.parametrize(
    ("description", "stay_ns"),
    [
        ("left before it arrived", -1),
        ("left an age before it arrived", -(2**62)),
        ("stayed longer than the round trip", 2 * ROUND_TRIP_NS),
        ("stayed for an age", 2**63 - 1),
    ],
)
def test_refuses_impossible_times(dataplane: Machine, description: str, stay_ns: int) -> None:
    sent, t1 = sent_long_ago(dataplane, request(seq=SEQ))
    t2 = t1 + 2**62
    assert_refused(dataplane, reflected(sent, t2, t2 + stay_ns), Reason.REPLY_TIME_REVERSED)
    assert dataplane.state(SEQ) == (SEQ, SlotState.SENT)


def test_refuses_a_reply_before_its_request(dataplane: Machine) -> None:
    future = time.monotonic_ns() + ROUND_TRIP_NS
    sent = dataplane.expect_reply(request(seq=SEQ), future)
    assert_refused(dataplane, reflected(sent, future, future), Reason.REPLY_TIME_REVERSED)


@pytest.mark.parametrize("stay_ns", [0, 1, ROUND_TRIP_NS])
def test_accepts_any_possible_stay(dataplane: Machine, stay_ns: int) -> None:
    sent, t1 = sent_long_ago(dataplane, request(seq=SEQ))
    assert dataplane.ingress(reflected(sent, t1, t1 + stay_ns)).counted == ACCEPTED


def test_a_bad_reply_does_not_shut_the_door_on_the_good_one(dataplane: Machine) -> None:
    sent, t1 = sent_long_ago(dataplane, request(seq=SEQ))
    forged = reflected(sent, t1 + 5, t1 + 6, key=bytes(16))
    assert_refused(dataplane, forged, Reason.REPLY_BAD_MAC)
    assert dataplane.ingress(reflected(sent, t1 + 5, t1 + 6)).counted == ACCEPTED


def test_a_reply_to_another_request_of_the_same_number(dataplane: Machine) -> None:
    """A replay from before the agent started again, or from another host, carries another request's mac."""
    _, t1 = sent_long_ago(dataplane, request(seq=SEQ))
    replayed = reflected(signed(request(seq=SEQ), t1 - 1), t1 + 5, t1 + 6)
    assert_refused(dataplane, replayed, Reason.REPLY_BAD_MAC)


def test_a_replay_changes_nothing(dataplane: Machine) -> None:
    sent, t1 = sent_long_ago(dataplane, request(seq=SEQ))
    reply = reflected(sent, t1 + 5, t1 + 6)
    dataplane.ingress(reply)
    sample = dataplane.slot(SEQ).copy()
    assert_refused(dataplane, reply, Reason.REPLY_DUPLICATE)
    assert dataplane.slot(SEQ) == sample


def test_a_reply_from_another_port_took_another_path(dataplane: Machine) -> None:
    sent, t1 = sent_long_ago(dataplane, request(seq=SEQ))
    reply = reflected(sent, t1 + 5, t1 + 6)
    reply[UDP].sport += 1
    assert_refused(dataplane, reply, Reason.REPLY_BAD_PORT)


def test_replies_in_any_order(dataplane: Machine) -> None:
    waiting = [sent_long_ago(dataplane, request(seq=seq)) for seq in range(8)]
    for sent, t1 in reversed(waiting):
        assert dataplane.ingress(reflected(sent, t1 + 5, t1 + 6)).counted == ACCEPTED
    assert all(dataplane.state(seq) == (seq, SlotState.DONE) for seq in range(8))


def test_the_key_of_a_reply(dataplane: Machine) -> None:
    other = bytes(range(100, 116))
    dataplane.maps.set_key(KEY_ID, other)
    sent, t1 = sent_long_ago(dataplane, request(seq=SEQ))
    assert_refused(dataplane, reflected(sent, t1 + 5, t1 + 6), Reason.REPLY_BAD_MAC)
    dataplane.maps.drop_key(KEY_ID)
    foreign = reflected(sent, t1 + 5, t1 + 6)
    assert_refused(dataplane, foreign, Reason.REPLY_UNKNOWN_KEY, XDP_PASS)


@pytest.mark.parametrize("version", [4, 6])
def test_the_whole_way(dataplane: Machine, version: int) -> None:
    """Sent, reflected and accepted by the programs themselves."""
    sent = dataplane.egress(request(version, seq=SEQ)).dissected
    reply = dataplane.ingress(sent).dissected
    assert dataplane.ingress(reply).counted == ACCEPTED
    slot = dataplane.slot(SEQ)
    times = [int(slot[name]) for name in ("t1", "t2", "t3", "t4")]
    assert times == sorted(times)
    assert times[1:3] == [reply[Probe].t2, reply[Probe].t3]
