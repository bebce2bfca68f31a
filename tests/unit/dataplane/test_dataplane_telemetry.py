"""Tables of queue pairs and rings of stamps, read into rows."""

import time
from ipaddress import ip_address
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import pytest
from numpy.typing import NDArray

from cwdp.agent.queuepairs import MOST_LISTED, ROWS_PER_QP_REPORT, QueuePairs
from cwdp.dataplane import abi
from cwdp.dataplane.abi import Direction, Nak
from cwdp.dataplane.addresses import address_words
from cwdp.dataplane.telemetry import QpReader, SampleReader
from cwdp.shared.bus import records
from cwdp.shared.bus.packing import rows_of
from cwdp.shared.bus.records import QP_ROW, SAMPLE_ROW, qp_as_json, qp_keys

LARGEST_MESSAGE, GAP_MS = 1 << 20, 10.0


def _maps(places: int = 64) -> Any:
    maps = SimpleNamespace(
        made=0,
        qps={direction: np.zeros(places, dtype=abi.QP) for direction in Direction},
        samples=np.zeros(abi.SAMPLES, dtype=abi.SAMPLE),
        bursts=np.zeros(abi.BURSTS, dtype=abi.BURST),
        close_bursts=lambda: None,
        control=np.zeros(1, dtype=abi.CONTROL),
    )
    maps.qp_places_made = lambda: maps.made
    return maps


def _put(
    maps: Any,
    place: int,
    *,
    qpn: int = 5,
    tag: int = 100,
    direction: Direction = Direction.EGRESS,
    **fields: Any,
) -> None:
    record = maps.qps[direction][place]
    maps.made += int(record["tag"] != tag > 1)
    record["tag"], record["key"]["qpn"] = tag, qpn
    record["key"]["addr"] = address_words(ip_address("10.0.0.2"))
    record["last_seen_ns"] = time.monotonic_ns()
    for name, value in fields.items():
        record[name] = value


def _read(reader: QpReader) -> dict[int, int]:
    """Packets moved, by QPN."""
    rows, moved = reader.read()
    return dict(zip(rows["qpn"].tolist(), moved.tolist(), strict=True))


def test_the_names_are_those_of_the_dataplane() -> None:
    assert tuple(kind.name.lower() for kind in Nak) == records.NAK_KINDS
    assert tuple(direction.name.lower() for direction in Direction) == records.DIRECTIONS
    assert (records.EGRESS, records.INGRESS) == (Direction.EGRESS, Direction.INGRESS)


def test_a_queue_pair_as_json() -> None:
    maps = _maps()
    _put(
        maps,
        3,
        packets=7,
        bytes=7000,
        naks=[1, 2, 0, 0, 0, 3],
        used_sport=50_000,
        cnps=4,
        direction=Direction.INGRESS,
    )
    (row,), _ = QpReader(maps).read()
    shown = qp_as_json(row)
    assert (shown["direction"], shown["peer_addr"], shown["qpn"], shown["sport"]) == (
        "ingress",
        "10.0.0.2",
        5,
        50_000,
    )
    assert (shown["packets"], shown["bytes"], shown["cnps"]) == (7, 7000, 4)
    assert shown["naks"] == {"rnr": 1, "psn_sequence": 2, "other": 3} | dict.fromkeys(
        ("invalid_request", "remote_access", "remote_operation"), 0
    )
    assert 0 <= int(row["age_ns"]) < 10**9


def test_free_places_and_those_being_filled_are_no_queue_pairs() -> None:
    maps = _maps()
    _put(maps, 0, tag=0, packets=9)
    _put(maps, 1, tag=1, packets=9)
    assert _read(QpReader(maps)) == {}


def test_only_what_moved_is_read_again() -> None:
    maps = _maps()
    _put(maps, 0, qpn=5, tag=100, packets=10)
    _put(maps, 1, qpn=6, tag=101, packets=20)
    reader = QpReader(maps)
    assert _read(reader) == {5: 10, 6: 20}
    assert _read(reader) == {}
    _put(maps, 1, qpn=6, tag=101, packets=25)
    assert _read(reader) == {6: 5}


def test_a_place_given_to_another_begins_anew() -> None:
    maps = _maps()
    _put(maps, 0, qpn=5, tag=100, packets=10)
    reader = QpReader(maps)
    reader.read()
    _put(maps, 0, qpn=9, tag=109, packets=3)
    assert _read(reader) == {9: 3}
    _put(maps, 0, qpn=9, tag=109, packets=1)
    assert _read(reader) == {9: 1}


def test_one_that_is_let_go_and_comes_back_is_counted_from_its_return() -> None:
    maps = _maps()
    _put(maps, 0, qpn=5, tag=100, packets=10)
    _put(maps, 1, qpn=6, tag=101, packets=20)
    reader = QpReader(maps)
    reader.read()
    maps.qps[Direction.EGRESS][0] = np.zeros((), abi.QP)
    _put(maps, 2, qpn=7, tag=102, packets=1)
    assert _read(reader) == {7: 1}
    _put(maps, 0, qpn=5, tag=100, packets=30)
    assert _read(reader) == {5: 30}


def test_the_table_is_searched_only_when_places_were_made() -> None:
    maps = _maps()
    _put(maps, 0, qpn=5, tag=100, packets=10)
    reader = QpReader(maps)
    reader.read()
    _put(maps, 1, qpn=6, tag=101, packets=20)
    maps.made -= 1
    assert _read(reader) == {}
    maps.made += 1
    assert _read(reader) == {6: 20}


def test_two_places_of_one_queue_pair_are_added_up_though_one_alone_moves() -> None:
    maps = _maps()
    _put(maps, 8, packets=10, naks=[1, 0, 0, 0, 0, 0], used_sport=50_001, last_seen_ns=1)
    _put(maps, 9, packets=5, naks=[2, 0, 0, 0, 0, 0], used_sport=50_002)
    reader = QpReader(maps)
    assert _read(reader) == {5: 15}
    _put(maps, 9, packets=6, naks=[2, 0, 0, 0, 0, 0], used_sport=50_002)
    (row,), moved = reader.read()
    assert (int(row["packets"]), int(row["naks"][0]), int(row["sport"]), moved.tolist()) == (
        16,
        3,
        50_002,
        [1],
    )


def test_the_two_directions_are_apart() -> None:
    maps = _maps()
    _put(maps, 0, packets=10)
    _put(maps, 0, packets=11, direction=Direction.INGRESS)
    rows, _ = QpReader(maps).read()
    assert rows["direction"].tolist() == [0, 1]
    assert len(set(qp_keys(rows).tolist())) == 2


def _full(places: int) -> Any:
    maps = _maps(places)
    for table in maps.qps.values():
        table["tag"] = np.arange(places) + 2
        table["key"]["qpn"] = np.arange(places)
        table["packets"] = np.arange(places) + 1
    return maps


def test_the_busiest_are_listed_in_messages_that_fit_the_bus() -> None:
    maps = _full(3 * MOST_LISTED)
    queue_pairs = QueuePairs("nic0", maps, GAP_MS)
    reports = list(queue_pairs.reports(77, []))
    assert [len(rows_of(report.rows, QP_ROW)) for report in reports] == [ROWS_PER_QP_REPORT] * 2
    assert [report.unlisted for report in reports] == [5 * MOST_LISTED, 0]
    listed = np.concatenate([rows_of(report.rows, QP_ROW) for report in reports])
    assert int(listed["packets"].min()) > 3 * MOST_LISTED - MOST_LISTED // 2 - 1
    assert all(len(msgspec.msgpack.encode(report)) < LARGEST_MESSAGE for report in reports)
    assert list(queue_pairs.reports(78, [])) == []


def test_a_nic_of_which_nothing_moves_says_so_every_second() -> None:
    queue_pairs = QueuePairs("nic0", _maps(), GAP_MS)
    for second in range(3):
        told = [list(queue_pairs.reports(10**9 * second + part, [])) for part in range(0, 10**9, 250_000_000)]
        assert [len(reports) for reports in told] == [1, 0, 0, 0]
        assert (told[0][0].rows, told[0][0].unlisted) == (b"", 0)


def _stamp(maps: Any, count: int, bound_ns: int = 40) -> None:
    for _ in range(count):
        maps.control["sample_head"] += 1
        number = int(maps.control["sample_head"][0])
        record = maps.samples[number % abi.SAMPLES]
        record["local_ns"], record["offset_ns"], record["bound_ns"] = 10**12 + number, -1000, bound_ns
        record["psn"], record["key"]["qpn"], record["sport"] = 10 << 24 | number, 5, 50_000
        record["key"]["addr"] = address_words(ip_address("fd00::2"))
        record["direction"] = Direction.INGRESS
        record["number"] = number


def test_stamps_are_put_on_the_timeline() -> None:
    maps = _maps()
    reader = SampleReader(maps)
    _stamp(maps, 3)
    rows = reader.read()
    assert rows["time_ns"].tolist() == [10**12 - 999, 10**12 - 998, 10**12 - 997]
    assert rows["psn"].tolist() == [10 << 24 | n for n in (1, 2, 3)]
    assert records.shown_address(rows["addr"][0].tobytes()) == "fd00::2"
    assert (set(rows["qpn"]), set(rows["sport"]), set(rows["direction"])) == ({5}, {50_000}, {1})


def test_stamps_of_an_unsynced_host_are_counted_and_left_out() -> None:
    maps = _maps()
    queue_pairs = QueuePairs("nic0", maps, GAP_MS)
    _stamp(maps, 2, bound_ns=abi.BOUND_UNSYNCED)
    _stamp(maps, 1)
    (report,) = queue_pairs.samples()
    assert len(rows_of(report.rows, SAMPLE_ROW)) == 1
    assert queue_pairs.counters["samples_unsynced"] == 2


def test_many_stamps_travel_in_messages_that_fit_the_bus() -> None:
    maps = _maps()
    queue_pairs = QueuePairs("nic0", maps, GAP_MS)
    maps.control["sample_head"] = abi.SAMPLES
    numbers = np.arange(1, abi.SAMPLES + 1)
    maps.samples["number"][numbers % abi.SAMPLES] = numbers
    sent: list[NDArray[np.void]] = []
    for report in queue_pairs.samples():
        assert len(msgspec.msgpack.encode(report)) < LARGEST_MESSAGE
        sent.append(rows_of(report.rows, SAMPLE_ROW))
    assert sum(map(len, sent)) == abi.SAMPLES


@pytest.mark.parametrize("text", ["10.0.0.2", "fd00::2"])
def test_addresses_there_and_back(text: str) -> None:
    assert records.shown_address(records.packed_address(text)) == text
