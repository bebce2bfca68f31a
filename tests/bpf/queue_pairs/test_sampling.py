"""Data packets that are stamped: the same ones at both ends, as many as asked for, unaltered."""

import time

import numpy as np
import pytest
import roce
from machine import Machine
from numpy.typing import NDArray
from probes import SPORT
from scapy.packet import Packet

from cwdp.dataplane import abi
from cwdp.dataplane.abi import Direction
from cwdp.dataplane.addresses import words_address
from cwdp.dataplane.pinned import control
from cwdp.dataplane.steering.steering import Steer

pytestmark = pytest.mark.kernel

BOTH = pytest.mark.parametrize("direction", list(Direction), ids=["egress", "ingress"])
PORT = 60_001
SECOND_NS = 10**9
PSN_AT = roce.UDP_AT[4] + 8 + 9


def sample(dataplane: Machine, every: int) -> None:
    """Have one packet in so many stamped."""
    dataplane.maps.control["sample_below"] = control.sample_below(every)


def taken(dataplane: Machine, direction: Direction) -> NDArray[np.void]:
    """Samples of a direction in the order of their taking, dtype `abi.SAMPLE`."""
    records = dataplane.maps.samples
    chosen: NDArray[np.void] = records[(records["number"] > 0) & (records["direction"] == direction)]
    return np.sort(chosen, order="number")


def test_both_ends_take_the_same(dataplane: Machine) -> None:
    """Whatever path they took between them."""
    sample(dataplane, 4)
    for qpn in (17, roce.QPN):
        dataplane.steer(roce.data(dqpn=qpn), Steer(PORT))
        for psn in range(0xFFFF00, 0x1000100):
            left = dataplane.leave(roce.data(payload=0, dqpn=qpn, psn=psn & abi.QPN_MAX))
            dataplane.ingress(left.packet)
    sent, received = (taken(dataplane, direction) for direction in Direction)
    assert len(sent) > 0
    for name in ("psn", "sport"):
        assert (sent[name] == received[name]).all()
    assert (sent["key"]["qpn"] == received["key"]["qpn"]).all()
    assert (sent["sport"] == PORT).all()
    assert (sent["local_ns"] <= received["local_ns"]).all()


@BOTH
@pytest.mark.parametrize("every", [4, 16])
def test_the_share(dataplane: Machine, direction: Direction, every: int) -> None:
    """Within 5 % over 100,000 packets in a row: at 1 in 16 that is four standard deviations of chance."""
    sample(dataplane, every)
    frame = bytearray(roce.plain(0))
    total = 100_000
    for psn in range(total):
        frame[PSN_AT : PSN_AT + 3] = psn.to_bytes(3, "big")
        dataplane.repeat(direction, bytes(frame), 1)
    share = int(dataplane.maps.control["sample_head"][0]) / total
    assert share * every == pytest.approx(1, abs=0.05)


@BOTH
def test_none(dataplane: Machine, direction: Direction) -> None:
    sample(dataplane, 0)
    dataplane.repeat(direction, roce.data(), 1000)
    assert int(dataplane.maps.control["sample_head"][0]) == 0


@pytest.mark.parametrize(
    "packet",
    [roce.acknowledge(), roce.acknowledge(0x60), roce.congestion_notification()],
    ids=["ACK", "NAK", "CNP"],
)
def test_what_has_no_psn_of_its_own(dataplane: Machine, packet: Packet) -> None:
    sample(dataplane, 1)
    dataplane.leave(packet)
    dataplane.ingress(packet)
    assert int(dataplane.maps.control["sample_head"][0]) == 0


@BOTH
@pytest.mark.parametrize("ip_version", [4, 6])
def test_what_is_kept(dataplane: Machine, direction: Direction, ip_version: int) -> None:
    sample(dataplane, 1)
    before = time.monotonic_ns()
    dataplane.maps.write_clock(
        ref_local_ns=before, offset_ns=5 * SECOND_NS, drift=0, bound_ns=77, bound_drift=0
    )
    packet = roce.data("RC_WRITE_ONLY", ip_version=ip_version)
    run = dataplane.leave(packet) if direction == Direction.EGRESS else dataplane.ingress(packet)
    assert run.packet == bytes(packet)
    record = taken(dataplane, direction)[0]
    source, destination = packet[1].src, packet[1].dst
    far = destination if direction == Direction.EGRESS else source
    assert str(words_address(record["key"]["addr"])) == far
    assert int(record["key"]["qpn"]) == roce.QPN
    assert int(record["psn"]) == roce.opcode("RC_WRITE_ONLY") << 24 | roce.PSN
    assert int(record["sport"]) == SPORT
    assert before <= int(record["local_ns"]) <= time.monotonic_ns()
    assert (int(record["offset_ns"]), int(record["bound_ns"])) == (5 * SECOND_NS, 77)
    assert int(record["number"]) == 1


def test_an_unsynced_host_says_so(dataplane: Machine) -> None:
    sample(dataplane, 1)
    dataplane.ingress(roce.data())
    assert int(taken(dataplane, Direction.INGRESS)[0]["bound_ns"]) == abi.BOUND_UNSYNCED


def test_the_oldest_are_overwritten(dataplane: Machine) -> None:
    sample(dataplane, 1)
    total = abi.SAMPLES + 100
    dataplane.repeat(Direction.INGRESS, roce.data(), total)
    records = dataplane.maps.samples
    assert int(dataplane.maps.control["sample_head"][0]) == total
    assert (np.sort(records["number"]) == np.arange(total - abi.SAMPLES, total) + 1).all()
    assert (records["number"] % abi.SAMPLES == np.arange(abi.SAMPLES)).all()
