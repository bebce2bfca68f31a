"""XDP over packets whose headers lie in fragments, in part or wholly: what becomes of them does not depend on it."""

import errno
import time

import pytest
import roce
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from machine import XDP_DROP, XDP_PASS, XDP_TX, Machine, Run
from probes import Probe, link, network, rebuilt, reflected, request, signed
from scapy.layers.inet import TCP
from scapy.layers.l2 import ARP
from scapy.packet import Packet, Raw

from cwdp.dataplane import abi
from cwdp.dataplane.abi import Direction, Reason, SlotState

pytestmark = pytest.mark.kernel

T1 = 1_000_000_007
SEQ = 9
FAMILIES = pytest.mark.parametrize("ip_version", [4, 6], ids=["IPv4", "IPv6"])
VLANS = pytest.mark.parametrize("vlans", [0, 1, 2])
quick = settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])


def scattered(dataplane: Machine, packet: Packet | bytes, linear: int) -> Run:
    """What becomes of a packet with so many bytes in its linear part."""
    try:
        return dataplane.ingress(packet, linear)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        pytest.skip("this kernel makes no such packets for tests: Linux 6.18 does")


@FAMILIES
@VLANS
def test_data_is_counted(dataplane: Machine, vlans: int, ip_version: int) -> None:
    packet = roce.data(payload=200, ip_version=ip_version, vlans=vlans)
    lengths = range(131)
    for linear in lengths:
        run = scattered(dataplane, packet, linear)
        assert (run.verdict, run.packet) == (XDP_PASS, bytes(packet)), linear
    assert dataplane.qp(Direction.INGRESS)["packets"] == len(lengths)


@pytest.mark.parametrize("payload", [3_000, 9_000, 30_000])
def test_jumbo_frames_with_nothing_in_the_linear_part(dataplane: Machine, payload: int) -> None:
    packet = roce.plain(payload)
    run = scattered(dataplane, packet, 0)
    assert (run.verdict, run.packet) == (XDP_PASS, packet)
    assert dataplane.qp(Direction.INGRESS)["bytes"] == len(packet) - roce.IP_AT


def test_the_syndrome_of_an_acknowledgement(dataplane: Machine) -> None:
    for linear in range(len(bytes(roce.acknowledge())) + 1):
        scattered(dataplane, roce.acknowledge(0x60), linear)
        assert dataplane.qp(Direction.INGRESS)["naks"].sum() == linear + 1


@FAMILIES
@VLANS
def test_requests_are_reflected(dataplane: Machine, vlans: int, ip_version: int) -> None:
    sent = signed(request(ip_version, vlans), T1)
    for linear in range(len(bytes(sent)) + 1):
        run = scattered(dataplane, sent, linear)
        assert (run.verdict, run.counted) == (XDP_TX, {Reason.REQUEST_REFLECTED: 1}), linear
        probe = run.dissected[Probe]
        assert run.packet == bytes(reflected(sent, probe.t2, probe.t3)), linear


@FAMILIES
@VLANS
def test_replies_are_accepted(dataplane: Machine, vlans: int, ip_version: int) -> None:
    t1 = time.monotonic_ns() - 10**9
    sent = dataplane.expect_reply(request(ip_version, vlans, seq=SEQ), t1)
    reply = reflected(sent, t1 + 5, t1 + 6)
    for linear in range(len(bytes(reply)) + 1):
        dataplane.slot(SEQ)["tag"] = SEQ << 32 | SlotState.SENT
        run = scattered(dataplane, reply, linear)
        assert (run.verdict, run.counted) == (XDP_DROP, {Reason.REPLY_ACCEPTED: 1}), linear
        assert dataplane.slot(SEQ)["t3"] == t1 + 6


def test_a_bad_signature(dataplane: Machine) -> None:
    forged = signed(request(), T1, bytes(16))
    for linear in range(len(bytes(forged)) + 1):
        run = scattered(dataplane, forged, linear)
        assert (run.verdict, run.packet) == (XDP_PASS, bytes(forged))
        assert run.counted == {Reason.REQUEST_BAD_MAC: 1}


def test_what_is_marked_for_another_nic(dataplane: Machine) -> None:
    """There is none."""
    packet = bytearray(bytes(roce.data()))
    packet[roce.UDP_AT[4] + 12] |= 1
    for linear in range(len(packet) + 1):
        run = scattered(dataplane, bytes(packet), linear)
        assert (run.verdict, run.counted) == (XDP_PASS, {Reason.DETOUR_UNKNOWN: 1}), linear


@pytest.mark.parametrize(
    "packet",
    [
        rebuilt(link() / ARP() / Raw(bytes(30))),
        rebuilt(link() / network() / TCP(dport=abi.ROCE_PORT) / Raw(bytes(100))),
        rebuilt(link(2) / network(6) / TCP(dport=abi.ROCE_PORT) / Raw(bytes(100))),
    ],
    ids=["ARP", "TCP", "TCP over IPv6 behind tags"],
)
def test_what_is_not_ours(dataplane: Machine, packet: Packet) -> None:
    for linear in range(len(bytes(packet)) + 1):
        run = scattered(dataplane, packet, linear)
        assert (run.verdict, run.packet, run.counted) == (XDP_PASS, bytes(packet), {})


@quick
@given(packet=st.binary(min_size=14, max_size=300), data=st.data())
def test_noise(dataplane: Machine, packet: bytes, data: st.DataObject) -> None:
    run = scattered(dataplane, packet, data.draw(st.integers(0, len(packet))))
    assert (run.verdict, run.packet, run.counted) == (XDP_PASS, packet, {})


@quick
@given(data=st.data())
def test_a_probe_cut_anywhere(dataplane: Machine, data: st.DataObject) -> None:
    """As if it lay in one piece."""
    whole = bytes(signed(request(data.draw(st.sampled_from([4, 6]))), T1))
    packet = whole[: data.draw(st.integers(14, len(whole) - 1))]
    dataplane.ingress(packet)
    expected = dataplane.ingress(packet)
    run = scattered(dataplane, packet, data.draw(st.integers(0, len(packet))))
    assert (run.verdict, run.packet, run.counted) == (XDP_PASS, packet, expected.counted)
