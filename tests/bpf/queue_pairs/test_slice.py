"""Which slice a queue pair is in, and what its packets are given: a class, or a time to leave."""

import threading
import time
from dataclasses import dataclass

import pytest
import roce
from machine import Machine
from probes import SOURCES, request
from scapy.layers.inet import IP
from scapy.layers.inet6 import IPv6

from cwdp.dataplane import abi
from cwdp.dataplane.abi import Direction, Reason
from cwdp.shared.slices import Job, JobQueuePair, Match, Share
from cwdp.slices import jobs, shares
from cwdp.slices.edt import pace_q18
from cwdp.slices.htb import QP_CLASSES, class_id

pytestmark = pytest.mark.kernel

SLICE, OTHER_SLICE = 7, 9
DST = {version: destination for version, (_, destination) in SOURCES.items()}
OTHER_DST = {4: "10.9.9.9", 6: "fd00:9::9"}
DSCP = 26
JOB = "train-7"
RATE_BPS = 8_000_000
"""A byte a microsecond."""

US = 1_000
HORIZON_NS = 8_000_000_000


def share(*matches: Match, name: str = "one") -> Share:
    return Share(name, RATE_BPS, RATE_BPS, 0, 0, matches)


def publish(dataplane: Machine, wanted: dict[int, Share]) -> None:
    """Put rules in force, and classes that tell the slices apart."""
    table = dataplane.maps.slice_table
    table["lists"]["rules"][0, 1] = shares.rules(wanted)
    table["active"] = 1
    for number in wanted:
        dataplane.maps.slices["class_id"][number] = class_id(number)
    dataplane.maps.next_generation()


def pace(dataplane: Machine, rate_bps: int = RATE_BPS, qp_bps: int = 0) -> None:
    """Give all packets times, at the rate of a slice."""
    publish(dataplane, {SLICE: share(Match(dst="0.0.0.0/0"), Match(dst="fc00::/7"))})
    record = dataplane.maps.slices[SLICE]
    record["class_id"], record["fair_q18"] = 0, pace_q18(rate_bps)
    record["qp_pace_q18"] = pace_q18(qp_bps) if qp_bps else 0


def have_waiting(dataplane: Machine) -> int:
    """Have a slice so full that the next packet waits for long; until when, by CLOCK_MONOTONIC in ns."""
    start_ns = time.monotonic_ns() + HORIZON_NS // 2
    dataplane.maps.slices["departure_ns"][SLICE] = start_ns
    return start_ns


@dataclass(frozen=True)
class Row:
    description: str
    match: Match
    ip_version: int
    matches: bool


def _rows(version: int) -> list[Row]:
    bits = {4: 32, 6: 128}[version]
    wide = {4: "10.0.0.0/8", 6: "fd00::/16"}[version]
    cases = {
        "its address": (Match(dst=DST[version]), True),
        "another address": (Match(dst=OTHER_DST[version]), False),
        "a prefix": (Match(dst=wide), True),
        "a prefix of one": (Match(dst=f"{DST[version]}/{bits}"), True),
        "the other family": (Match(dst={4: "fd00::/8", 6: "0.0.0.0/0"}[version]), False),
        "its number": (Match(qpn=roce.QPN), True),
        "another number": (Match(qpn=roce.QPN ^ 1), False),
        "its DSCP": (Match(dscp=DSCP), True),
        "another DSCP": (Match(dscp=DSCP ^ 1), False),
        "DSCP 0": (Match(dscp=0), False),
        "its job": (Match(job=JOB), True),
        "another job": (Match(job="train-8"), False),
        "all of it": (Match(dst=wide, qpn=roce.QPN, dscp=DSCP, job=JOB), True),
        "all but the number": (Match(dst=wide, qpn=1, dscp=DSCP, job=JOB), False),
        "all but the job": (Match(dst=wide, qpn=roce.QPN, dscp=DSCP, job="other"), False),
    }
    return [Row(f"IPv{version}, {what}", match, version, fits) for what, (match, fits) in cases.items()]


@pytest.mark.parametrize("row", [*_rows(4), *_rows(6)], ids=lambda row: row.description)
def test_match(dataplane: Machine, row: Row) -> None:
    job = Job(JOB, (JobQueuePair(DST[row.ip_version], roce.QPN),))
    jobs.replace(dataplane.maps.jobs_fd, [job], managed=False)
    publish(dataplane, {SLICE: share(row.match)})
    run = dataplane.leave(roce.data(ip_version=row.ip_version))
    assert run.priority == (class_id(SLICE) if row.matches else 0)
    assert dataplane.qp(Direction.EGRESS)["slice"] == (SLICE if row.matches else 0)
    jobs.replace(dataplane.maps.jobs_fd, [], managed=False)


@pytest.mark.parametrize("dscp", [0, 1, 26, 46, 63])
@pytest.mark.parametrize("ip_version", [4, 6])
def test_every_bit_of_the_dscp(dataplane: Machine, ip_version: int, dscp: int) -> None:
    publish(dataplane, {SLICE: share(Match(dscp=dscp))})
    packet = roce.data(ip_version=ip_version)
    field, value = (packet[IP], "tos") if ip_version == 4 else (packet[IPv6], "tc")
    setattr(field, value, dscp << 2 | 3)
    assert dataplane.leave(packet).priority == class_id(SLICE)


@pytest.mark.parametrize("order", [(SLICE, OTHER_SLICE), (OTHER_SLICE, SLICE)])
def test_the_first_match_wins(dataplane: Machine, order: tuple[int, int]) -> None:
    publish(dataplane, {number: share(Match(qpn=roce.QPN)) for number in order})
    assert dataplane.leave(roce.data()).priority == class_id(order[0])


def test_the_last_of_all_rules(dataplane: Machine) -> None:
    misses = [Match(qpn=n) for n in range(abi.SLICE_RULES - 1)]
    publish(dataplane, {OTHER_SLICE: share(*misses), SLICE: share(Match(qpn=roce.QPN))})
    assert dataplane.leave(roce.data()).priority == class_id(SLICE)


def test_a_change_is_taken_up_by_the_next_packet(dataplane: Machine) -> None:
    publish(dataplane, {SLICE: share(Match(qpn=roce.QPN))})
    dataplane.leave(roce.data())
    publish(dataplane, {OTHER_SLICE: share(Match(qpn=roce.QPN))})
    assert dataplane.leave(roce.data()).priority == class_id(OTHER_SLICE)
    publish(dataplane, {})
    run = dataplane.leave(roce.data())
    assert (run.priority, run.counted) == (0, {})


def test_queue_pairs_with_a_rate_of_their_own_have_a_class_each(dataplane: Machine) -> None:
    publish(dataplane, {SLICE: share(Match(dst="0.0.0.0/0"))})
    dataplane.maps.slices["leaves"][SLICE] = QP_CLASSES
    first = [dataplane.leave(roce.data(dqpn=n)).priority for n in range(QP_CLASSES)]
    assert sorted(first) == [class_id(SLICE) + 1 + n for n in range(QP_CLASSES)]
    dataplane.maps.next_generation()
    assert [dataplane.leave(roce.data(dqpn=n)).priority for n in range(QP_CLASSES)] == first


def test_only_roce_is_sliced(dataplane: Machine) -> None:
    publish(dataplane, {SLICE: share(Match(dst="0.0.0.0/0"))})
    other = bytes(roce.data()).replace(abi.ROCE_PORT.to_bytes(2, "big"), b"\x12\x34")
    run = dataplane.leave(other)
    assert (run.priority, run.departure_ns, run.packet) == (0, 0, other)


def test_probes_have_a_class_of_their_own(dataplane: Machine) -> None:
    publish(dataplane, {SLICE: share(Match(dst="0.0.0.0/0"))})
    assert dataplane.egress(request()).priority == 0
    dataplane.maps.slice_table["probe_class"] = 0x12340003
    run = dataplane.egress(request())
    assert (run.priority, run.counted) == (0x12340003, {Reason.PROBE_SENT: 1})
    assert dataplane.egress(request(), mark=0).priority == 0


def test_an_idle_slice_sends_at_once(dataplane: Machine) -> None:
    pace(dataplane)
    assert dataplane.leave(roce.data()).departure_ns == 0
    dataplane.maps.slices["departure_ns"][SLICE] = 1
    dataplane.maps.qps[Direction.EGRESS]["departure_ns"] = 0
    before = time.monotonic_ns()
    assert dataplane.leave(roce.data()).departure_ns == 0
    assert dataplane.maps.slices["departure_ns"][SLICE] >= before + len(roce.data()) * US


@pytest.mark.parametrize("payload", [0, 1024, 3000])
@pytest.mark.parametrize("ip_version", [4, 6])
def test_a_packet_waits_for_the_bytes_before_it(dataplane: Machine, ip_version: int, payload: int) -> None:
    pace(dataplane)
    start_ns = have_waiting(dataplane)
    packet = roce.data(payload=payload, ip_version=ip_version)
    times = [dataplane.leave(packet).departure_ns for _ in range(3)]
    assert times == [start_ns + n * len(packet) * US for n in range(3)]
    assert dataplane.maps.slices["bytes"][SLICE] == 3 * len(packet)


def test_the_queue_pairs_of_a_slice_share_its_rate(dataplane: Machine) -> None:
    pace(dataplane)
    start_ns = have_waiting(dataplane)
    packets = [roce.data(payload=1024, dqpn=n) for n in range(10)]
    times = [dataplane.leave(packet).departure_ns for packet in packets]
    assert times == [start_ns + n * len(packets[0]) * US for n in range(10)]


def test_a_queue_pair_has_a_rate_of_its_own(dataplane: Machine) -> None:
    pace(dataplane, qp_bps=RATE_BPS // 4)
    start_ns = have_waiting(dataplane)
    packets = [roce.data(payload=1024, dqpn=n) for n in (1, 2)]
    times = [[dataplane.leave(packet).departure_ns for packet in packets] for _ in range(3)]
    cost_ns = len(packets[0]) * US
    assert [first for first, _ in times] == [start_ns + n * 4 * cost_ns for n in range(3)]
    assert [second for _, second in times] == [start_ns + cost_ns + n * 4 * cost_ns for n in range(3)]


def test_a_packet_does_not_overtake_the_one_before_it(dataplane: Machine) -> None:
    """From a slice in which packets wait into one in which none does."""
    pace(dataplane)
    last_ns = have_waiting(dataplane)
    packet = roce.data(payload=1024)
    assert dataplane.leave(packet).departure_ns == last_ns
    dataplane.maps.slices["departure_ns"][SLICE] = 0
    dataplane.maps.next_generation()
    assert dataplane.leave(packet).departure_ns == last_ns


def test_two_cpus_at_once_share_a_rate(dataplane: Machine) -> None:
    """A little of it may be lost between them; but no packet of a queue pair leaves before the one ahead of it."""
    pace(dataplane, 400 * RATE_BPS)
    start_ns = have_waiting(dataplane)
    packets = [roce.data(payload=1024, dqpn=n) for n in (1, 2)]
    times, turns = [], 300_000
    other = threading.Thread(target=dataplane.repeat, args=(Direction.EGRESS, packets[1], turns))
    other.start()
    while other.is_alive():
        times.append(dataplane.leave(packets[0]).departure_ns)
    other.join()
    assert times == sorted(times)
    whole = (turns + len(times)) * len(packets[0])
    record = dataplane.maps.slices[SLICE]
    assert 0.9 * whole < int(record["bytes"]) <= whole
    assert 0.9 * whole * US < 400 * (int(record["departure_ns"]) - start_ns) <= 1.001 * whole * US


def test_a_lent_rate_holds_as_long_as_its_lease(dataplane: Machine) -> None:
    pace(dataplane)
    start_ns = have_waiting(dataplane)
    record, packet = dataplane.maps.slices[SLICE], roce.data(payload=1024)
    record["pace_q18"], record["lease_ns"] = pace_q18(2 * RATE_BPS), start_ns + HORIZON_NS
    half_ns = len(packet) * US // 2
    assert [dataplane.leave(packet).departure_ns for _ in range(2)] == [start_ns, start_ns + half_ns]
    record["lease_ns"] = 1
    times = [dataplane.leave(packet).departure_ns for _ in range(2)]
    assert times == [start_ns + 2 * half_ns, start_ns + 4 * half_ns]


@pytest.mark.parametrize("who", ["slice", "queue pair"])
def test_no_packet_waits_longer_than_fq_keeps_times(dataplane: Machine, who: str) -> None:
    pace(dataplane, qp_bps=RATE_BPS)
    dataplane.leave(roce.data())
    far_ns = time.monotonic_ns() + 100 * HORIZON_NS
    if who == "slice":
        dataplane.maps.slices["departure_ns"][SLICE] = far_ns
    else:
        dataplane.maps.qps[Direction.EGRESS]["departure_ns"] = far_ns
    before_ns = time.monotonic_ns()
    run = dataplane.leave(roce.data())
    assert before_ns + HORIZON_NS <= run.departure_ns <= time.monotonic_ns() + HORIZON_NS
    assert run.counted == {Reason.PACE_CLAMPED: 1}
