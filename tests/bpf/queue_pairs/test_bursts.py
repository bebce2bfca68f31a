"""Bursts of queue pairs: what begins and ends them, and what they count."""

import time

import numpy as np
import pytest
import roce
from machine import TC_ACT_UNSPEC, XDP_PASS, Machine, Run
from numpy.typing import NDArray
from scapy.packet import Packet

from cwdp.dataplane.abi import Direction, Reason
from cwdp.dataplane.addresses import words_address
from cwdp.dataplane.bursts import BurstReader, jiffy_ns

pytestmark = pytest.mark.kernel

BOTH = pytest.mark.parametrize("direction", list(Direction), ids=["egress", "ingress"])
GAP_MS = 40.0
PAUSE_S = 0.12
BOUND_NS, AHEAD_NS = 77, 5 * 10**9


def reader(dataplane: Machine) -> BurstReader:
    """Bursts are followed from now on, on a timeline that is ahead of local time."""
    dataplane.maps.write_clock(
        ref_local_ns=time.monotonic_ns(), offset_ns=AHEAD_NS, drift=0, bound_ns=BOUND_NS, bound_drift=0
    )
    return BurstReader(dataplane.maps, GAP_MS)


def passes(dataplane: Machine, direction: Direction, *packets: Packet) -> list[Run]:
    egress = direction == Direction.EGRESS
    runs = [dataplane.leave(packet) if egress else dataplane.ingress(packet) for packet in packets]
    assert {run.verdict for run in runs} == {TC_ACT_UNSPEC if egress else XDP_PASS}
    return runs


def timeline_ns() -> int:
    return time.monotonic_ns() + AHEAD_NS


def under_way(dataplane: Machine) -> NDArray[np.void]:
    starts = dataplane.maps.burst_starts
    found: NDArray[np.void] = starts[starts["tag"] != 0]
    return found


@BOTH
@pytest.mark.parametrize("ip_version", [4, 6])
def test_a_packet_after_a_gap_ends_a_burst(dataplane: Machine, direction: Direction, ip_version: int) -> None:
    bursts = reader(dataplane)
    packets = [roce.data(psn=psn, ip_version=ip_version) for psn in range(5)]
    before_ns = timeline_ns()
    passes(dataplane, direction, packets[0])
    begun_ns = timeline_ns()
    passes(dataplane, direction, *packets[1:4])
    last_ns = timeline_ns()
    assert len(bursts.read()) == 0
    time.sleep(PAUSE_S)
    passes(dataplane, direction, packets[4])
    (row,) = bursts.read()
    source, destination = packets[0][1].src, packets[0][1].dst
    record = dataplane.maps.bursts[1]
    far = destination if direction == Direction.EGRESS else source
    assert str(words_address(record["key"]["addr"])) == far
    assert (int(row["qpn"]), int(row["direction"])) == (roce.QPN, direction)
    assert before_ns <= int(row["start_ns"]) <= begun_ns
    assert abs(int(row["end_ns"]) - last_ns) <= 2 * jiffy_ns()
    assert (int(row["packets"]), int(row["bound_ns"])) == (4, BOUND_NS)
    assert int(row["bytes"]) == sum(len(bytes(packet)) - roce.IP_AT for packet in packets[:4])
    assert len(under_way(dataplane)) == 1


@BOTH
def test_what_a_burst_counts(dataplane: Machine, direction: Direction) -> None:
    bursts = reader(dataplane)
    passes(dataplane, direction, roce.data(psn=1), roce.data(psn=2), roce.data(psn=2), roce.data(psn=3))
    passes(dataplane, direction, roce.acknowledge(0x60), roce.acknowledge(), roce.congestion_notification())
    time.sleep(PAUSE_S)
    passes(dataplane, direction, roce.acknowledge(0x60))
    passes(dataplane, direction, roce.data(psn=4))
    time.sleep(PAUSE_S)
    passes(dataplane, direction, roce.data(psn=5))
    rows = bursts.read()
    counted = [tuple(row[name] for name in ("packets", "resent", "naks")) for row in rows]
    assert counted == [(4, 1, 2), (1, 0, 0)]


@BOTH
def test_ce_marks(dataplane: Machine, direction: Direction) -> None:
    bursts = reader(dataplane)
    marked = roce.data(psn=1)
    marked[1].tos = 0x03
    del marked[1].chksum
    passes(dataplane, direction, marked, roce.data(psn=2))
    time.sleep(PAUSE_S)
    dataplane.maps.close_bursts()
    (row,) = bursts.read()
    assert (int(row["packets"]), int(row["ce_marks"])) == (2, 1)


@BOTH
@pytest.mark.parametrize(
    "packet",
    [roce.acknowledge(), roce.acknowledge(0x60), roce.congestion_notification()],
    ids=["ACK", "NAK", "CNP"],
)
def test_what_is_no_data_begins_and_lengthens_none(
    dataplane: Machine, direction: Direction, packet: Packet
) -> None:
    bursts = reader(dataplane)
    passes(dataplane, direction, packet)
    assert len(under_way(dataplane)) == 0
    passes(dataplane, direction, roce.data(psn=1))
    ended_ns = timeline_ns()
    time.sleep(PAUSE_S)
    passes(dataplane, direction, packet)
    dataplane.maps.close_bursts()
    (row,) = bursts.read()
    assert abs(int(row["end_ns"]) - ended_ns) <= 2 * jiffy_ns()
    assert int(row["packets"]) == 1


@BOTH
def test_one_that_sends_no_more_is_closed_once(dataplane: Machine, direction: Direction) -> None:
    bursts = reader(dataplane)
    passes(dataplane, direction, roce.data(psn=1))
    dataplane.maps.close_bursts()
    assert len(bursts.read()) == 0
    time.sleep(PAUSE_S)
    for _ in range(2):
        dataplane.maps.close_bursts()
    assert len(bursts.read()) == 1
    assert len(under_way(dataplane)) == 0
    passes(dataplane, direction, roce.data(psn=2))
    assert (len(bursts.read()), len(under_way(dataplane))) == (0, 1)


def test_directions_and_queue_pairs_are_apart(dataplane: Machine) -> None:
    bursts = reader(dataplane)
    for direction in Direction:
        passes(dataplane, direction, *(roce.data(psn=psn, dqpn=qpn) for qpn in (5, 6) for psn in range(qpn)))
    time.sleep(PAUSE_S)
    dataplane.maps.close_bursts()
    found = {(int(row["direction"]), int(row["qpn"])): int(row["packets"]) for row in bursts.read()}
    assert found == {(direction, qpn): qpn for direction in Direction for qpn in (5, 6)}


def test_none_are_followed_before_somebody_asks(dataplane: Machine) -> None:
    passes(dataplane, Direction.EGRESS, roce.data(psn=1))
    time.sleep(PAUSE_S)
    passes(dataplane, Direction.EGRESS, roce.data(psn=2))
    dataplane.maps.close_bursts()
    assert int(dataplane.maps.control["burst_head"][0]) == 0
    assert len(under_way(dataplane)) == 0


def test_of_an_unsynced_host_they_are_counted_and_left_out(dataplane: Machine) -> None:
    bursts = BurstReader(dataplane.maps, GAP_MS)
    passes(dataplane, Direction.EGRESS, roce.data())
    time.sleep(PAUSE_S)
    dataplane.maps.close_bursts()
    assert (len(bursts.read()), bursts.unsynced, bursts.lost) == (0, 1, 0)


def test_the_place_of_another_with_a_burst_under_way(dataplane: Machine) -> None:
    """The burst of who was there is not told; that of who came is."""
    bursts = reader(dataplane)
    passes(dataplane, Direction.EGRESS, roce.data(psn=1))
    under_way_starts = dataplane.maps.burst_starts
    under_way_starts["tag"][under_way_starts["tag"] != 0] += 2
    time.sleep(PAUSE_S)
    (run,) = passes(dataplane, Direction.EGRESS, roce.data(psn=2))
    assert run.counted == {Reason.BURST_EVICTED: 1}
    time.sleep(PAUSE_S)
    dataplane.maps.close_bursts()
    assert [int(row["packets"]) for row in bursts.read()] == [1]
