"""Arbitrary bytes and mutated probes: a program never changes what it does not accept."""

import time

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from machine import TC_ACT_UNSPEC, XDP_DROP, XDP_PASS, XDP_TX, Machine, Run
from probes import Probe, reflected, request, request_mac, signed
from scapy.layers.l2 import Ether
from scapy.packet import Packet

from cwdp.dataplane.abi import ProbeKind, Reason, SlotState

pytestmark = pytest.mark.kernel

quick = settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
SEQ = 5
T1 = 1_000_000_007
SMALLEST_SKB, LARGEST = 54, 1500


def templates() -> st.SearchStrategy[Packet]:
    """Any request, before it is signed."""
    u16, u32 = st.integers(1, 0xFFFF), st.integers(0, 0xFFFFFFFF)
    return st.builds(
        request,
        st.sampled_from([4, 6]),
        st.sampled_from([0, 1, 2]),
        seq=u32,
        path=u32,
        pair_position=st.sampled_from([0, 1]),
        reply_port=u16,
    )


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    """A signed request or its reply with bytes changed, cut or added."""
    packet = signed(draw(templates()), T1)
    if draw(st.booleans()):
        packet = reflected(packet, T1, T1)
    frame = bytearray(bytes(packet))
    for _ in range(draw(st.integers(0, 3))):
        frame[draw(st.integers(0, len(frame) - 1))] = draw(st.integers(0, 255))
    kept = draw(st.one_of(st.just(len(frame)), st.integers(SMALLEST_SKB, len(frame))))
    return bytes(frame[:kept]) + draw(st.binary(max_size=8))


def check_ingress(packet: bytes, run: Run) -> None:
    """Passed on untouched, or a request with a sound signature, reflected."""
    assert sum(run.counted.values()) <= 1
    if run.verdict == XDP_TX:
        taken = Ether(packet)
        assert run.counted == {Reason.REQUEST_REFLECTED: 1}
        assert taken[Probe].kind == ProbeKind.REQUEST
        assert taken[Probe].mac == request_mac(taken)
        assert len(run.packet) == len(packet)
    else:
        assert run.verdict == XDP_PASS or Ether(packet)[Probe].kind == ProbeKind.REPLY
        assert run.packet == packet


@quick
@given(st.binary(min_size=SMALLEST_SKB, max_size=LARGEST))
def test_noise(dataplane: Machine, packet: bytes) -> None:
    run = dataplane.ingress(packet)
    assert (run.verdict, run.packet, run.counted) == (XDP_PASS, packet, {})
    run = dataplane.egress(packet)
    assert (run.verdict, run.packet) == (TC_ACT_UNSPEC, packet)
    assert run.counted == {Reason.PROBE_BAD_TEMPLATE: 1}


@quick
@given(mutated())
def test_mutated_probes_at_ingress(dataplane: Machine, packet: bytes) -> None:
    check_ingress(packet, dataplane.ingress(packet))
    assert not dataplane.maps.slots["tag"].any()


@quick
@given(mutated())
def test_mutated_probes_at_egress(dataplane: Machine, packet: bytes) -> None:
    """Stamping changes t1 and mac and nothing else."""
    run = dataplane.egress(packet)
    assert run.verdict == TC_ACT_UNSPEC
    if Reason.PROBE_SENT in run.counted:
        dataplane.maps.slots[:] = 0
        start = packet.index(b"CWDP")
        stamped = {*range(start + 24, start + 32), *range(start + 56, start + 64)}
        changed = {n for n, (old, new) in enumerate(zip(packet, run.packet, strict=True)) if old != new}
        assert changed <= stamped
    else:
        assert run.packet == packet


@quick
@given(templates(), st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1), st.integers(-(2**63), 2**63 - 1))
def test_replies_with_any_times(
    dataplane: Machine, template: Packet, t2: int, t3: int, offset_ns: int
) -> None:
    """A reply is a sample if and only if its times are possible; then it is taken exactly, modulo 2^64."""
    t1 = time.monotonic_ns() - 10**9
    sent = dataplane.expect_reply(template, t1)
    run = dataplane.ingress(reflected(sent, t2, t3, peer_offset=offset_ns, bound_ns=1))
    seq = template[Probe].seq
    slot = dataplane.slot(seq)
    stay = (t3 - t2) % 2**64
    if stay <= 10**9:
        assert run.verdict == XDP_DROP
        assert dataplane.state(seq) == (seq, SlotState.DONE)
        assert (int(slot["fwd_owd_ns"]) - (t2 + offset_ns - t1)) % 2**64 == 0
    elif stay > 60 * 10**9:
        assert run.counted == {Reason.REPLY_TIME_REVERSED: 1}
        assert dataplane.state(seq) == (seq, SlotState.SENT)
