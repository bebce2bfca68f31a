"""Records of bursts turned into rows, and told."""

from ipaddress import ip_address
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import pytest

from cwdp.agent.queuepairs import MOST_BURSTS_PER_S, QueuePairs, traffic_reports
from cwdp.dataplane import abi
from cwdp.dataplane.abi import Direction
from cwdp.dataplane.addresses import address_words
from cwdp.dataplane.bursts import BurstReader, gap_jiffies, jiffy_ns, rows_of_bursts
from cwdp.shared.bursts import BurstReport
from cwdp.shared.bus import messages
from cwdp.shared.bus.packing import rows_of
from cwdp.shared.bus.records import BURST_ROW, shown_address

MS, SECOND_NS = 1_000_000, 1_000_000_000
LARGEST_MESSAGE = 1 << 20


def _maps() -> Any:
    maps = SimpleNamespace(
        closed=0,
        qps={direction: np.zeros(8, dtype=abi.QP) for direction in Direction},
        samples=np.zeros(abi.SAMPLES, dtype=abi.SAMPLE),
        bursts=np.zeros(abi.BURSTS, dtype=abi.BURST),
        control=np.zeros(1, dtype=abi.CONTROL),
        qp_places_made=lambda: 0,
    )

    def close() -> None:
        maps.closed += 1

    maps.close_bursts = close
    return maps


def _record(**fields: int) -> Any:
    record = np.zeros(1, dtype=abi.BURST)
    record["key"]["addr"], record["key"]["qpn"] = address_words(ip_address("10.0.0.2")), 5
    for name, value in fields.items():
        record[name] = value
    return record


def _end(maps: Any, count: int, **fields: int) -> None:
    for _ in range(count):
        maps.control["burst_head"] += 1
        number = int(maps.control["burst_head"][0])
        maps.bursts[number % abi.BURSTS] = _record(number=number, **{"bytes": number, **fields})[0]


@pytest.mark.parametrize(
    ("gap_ms", "hz", "jiffies"), [(10, 250, 3), (10, 1000, 10), (10, 100, 1), (1, 250, 1), (1000, 1000, 1000)]
)
def test_no_gap_that_is_shorter_is_found(gap_ms: float, hz: int, jiffies: int) -> None:
    length_ns = SECOND_NS // hz
    assert gap_jiffies(gap_ms, length_ns) == jiffies
    assert jiffies * length_ns >= gap_ms * MS > (jiffies - 1) * length_ns


def test_a_jiffy_is_as_long_as_kernels_have_it() -> None:
    assert 100 <= SECOND_NS / jiffy_ns() <= 1000


def test_the_end_is_so_many_jiffies_before_it_was_closed() -> None:
    record = _record(
        start_ns=10 * SECOND_NS,
        closed_ns=12 * SECOND_NS,
        idle_jiffies=25,
        packets=7,
        bytes=2**40,
        ce_marks=1,
        resent=2,
        naks=3,
        bound_ns=40,
        direction=Direction.INGRESS,
    )
    (row,) = rows_of_bursts(record, 4 * MS)
    assert (int(row["start_ns"]), int(row["end_ns"])) == (10 * SECOND_NS, 12 * SECOND_NS - 100 * MS)
    assert (shown_address(row["addr"].tobytes()), int(row["qpn"])) == ("10.0.0.2", 5)
    assert [int(row[name]) for name in ("packets", "bytes", "ce_marks", "resent", "naks", "bound_ns")] == [
        7,
        2**40,
        1,
        2,
        3,
        40,
    ]
    assert int(row["direction"]) == Direction.INGRESS


def test_none_ends_before_it_began() -> None:
    (row,) = rows_of_bursts(
        _record(start_ns=SECOND_NS, closed_ns=SECOND_NS + 15 * MS, idle_jiffies=4), 4 * MS
    )
    assert int(row["end_ns"]) == SECOND_NS


def test_those_of_an_unsynced_host_are_counted_and_left_out() -> None:
    maps = _maps()
    bursts = BurstReader(maps, 10.0)
    _end(maps, 2, bound_ns=abi.BOUND_UNSYNCED)
    _end(maps, 1)
    assert (len(bursts.read()), bursts.unsynced) == (1, 2)
    assert int(maps.control["burst_gap_jiffies"][0]) == gap_jiffies(10.0, jiffy_ns())


def test_quiet_queue_pairs_are_looked_for_before_each_report() -> None:
    maps = _maps()
    bursts = QueuePairs("nic0", maps, 10.0).bursts
    for part in range(9):
        assert list(bursts.reports(part * SECOND_NS // 4)) == []
    assert maps.closed == 9


def test_the_largest_are_told_within_a_second() -> None:
    maps = _maps()
    queue_pairs = QueuePairs("nic0", maps, 10.0)
    _end(maps, MOST_BURSTS_PER_S + 10)
    (told,) = queue_pairs.bursts.reports(0)
    rows = rows_of(told.rows, BURST_ROW)
    assert sorted(rows["bytes"].tolist()) == list(range(11, MOST_BURSTS_PER_S + 11))
    _end(maps, 1)
    assert list(queue_pairs.bursts.reports(SECOND_NS // 2)) == []
    assert queue_pairs.counters["bursts_unlisted"] == 11
    _end(maps, 1)
    (told,) = queue_pairs.bursts.reports(SECOND_NS)
    assert len(rows_of(told.rows, BURST_ROW)) == 1


def test_they_travel_in_messages_that_fit_the_bus() -> None:
    nics = []
    for number in range(4):
        maps = _maps()
        nics.append((QueuePairs(f"nic{number}", maps, 10.0), []))
        _end(maps, MOST_BURSTS_PER_S)
    told = [report for kind, report in traffic_reports("h", 0, nics) if kind == "burst"]
    assert all(len(messages.encode(report)) < LARGEST_MESSAGE for report in told)
    parts = [part for report in told if isinstance(report, BurstReport) for part in report.nics]
    assert [part.nic for part in parts] == [f"nic{number}" for number in range(4)]
    assert all(len(rows_of(part.rows, BURST_ROW)) == MOST_BURSTS_PER_S for part in parts)
    assert msgspec.msgpack.decode(messages.encode(told[0]), type=BurstReport) == told[0]
