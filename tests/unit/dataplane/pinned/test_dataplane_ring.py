"""Reading a ring by numbers: in order, once, without what is half written, and with what was missed counted."""

from types import SimpleNamespace

import numpy as np
import pytest

from cwdp.agent.liveness.failover import PathEvents
from cwdp.dataplane import abi
from cwdp.dataplane.abi import Direction, EventKind, SteerFlag
from cwdp.dataplane.addresses import address_words
from cwdp.dataplane.pinned.ring import Ring
from cwdp.dataplane.steering.steering import parse_address

SIZE = 8


class _Writer:
    """Writes as the dataplane does."""

    def __init__(self, head: int = 0) -> None:
        self.records = np.zeros(SIZE, dtype=abi.EVENT)
        self.head = np.array([head], dtype=np.uint64)

    def begin(self) -> int:
        self.head += np.uint64(1)
        number = int(self.head[0])
        self.records[number % SIZE]["number"] = 0
        return number

    def finish(self, number: int) -> None:
        self.records[number % SIZE]["path"] = number
        self.records[number % SIZE]["number"] = number

    def write(self, count: int) -> None:
        for _ in range(count):
            self.finish(self.begin())


def _taken(ring: Ring) -> list[int]:
    return ring.take()["path"].tolist()


@pytest.mark.parametrize("head", [0, 5, 1000])
def test_each_record_is_taken_once_and_in_order(head: int) -> None:
    writer = _Writer(head)
    ring = Ring(writer.records, writer.head)
    assert _taken(ring) == []
    for count in (3, 1, SIZE, 0, 7):
        before = int(writer.head[0])
        writer.write(count)
        assert _taken(ring) == list(range(before + 1, before + count + 1))
    assert ring.lost == 0


def test_what_was_there_before_is_not_taken() -> None:
    writer = _Writer()
    writer.write(5)
    ring = Ring(writer.records, writer.head)
    writer.write(1)
    assert _taken(ring) == [6]


def test_what_was_written_over_is_counted() -> None:
    writer = _Writer()
    ring = Ring(writer.records, writer.head)
    writer.write(3 * SIZE + 2)
    assert _taken(ring) == list(range(2 * SIZE + 3, 3 * SIZE + 3))
    assert ring.lost == 2 * SIZE + 2


def test_a_record_that_is_being_written_is_waited_for() -> None:
    writer = _Writer()
    ring = Ring(writer.records, writer.head)
    writer.write(2)
    slow = writer.begin()
    writer.write(1)
    assert _taken(ring) == [1, 2]
    writer.finish(slow)
    assert _taken(ring) == [3, 4]
    assert ring.lost == 0


def test_a_record_that_is_never_finished_is_passed_by_the_ring() -> None:
    writer = _Writer()
    ring = Ring(writer.records, writer.head)
    writer.begin()
    writer.write(SIZE)
    assert _taken(ring) == list(range(2, SIZE + 2))
    assert ring.lost == 1


def _maps() -> SimpleNamespace:
    paths = np.zeros(abi.PATHS, dtype=abi.PATH)
    paths[3]["dst"], paths[3]["sport"] = address_words(parse_address("10.0.0.2")), 50_000
    qps = np.zeros(16, dtype=abi.QP)
    qps["tag"][:5] = [2, 3, 4, 0, 1]
    qps["path"][:5] = 3
    qps["flags"][:5] = [SteerFlag.ON | SteerFlag.BACKUP] * 2 + [SteerFlag.ON] * 3
    return SimpleNamespace(
        paths=paths,
        qps={Direction.EGRESS: qps},
        events=np.zeros(abi.EVENTS, dtype=abi.EVENT),
        control=np.zeros(1, dtype=abi.CONTROL),
        tcp_conns=np.zeros(abi.TCP_CONNS, dtype=abi.TCP_CONN),
    )


def _happen(maps: SimpleNamespace, kind: EventKind, bound_ns: int) -> None:
    maps.control["event_head"] += 1
    number = int(maps.control["event_head"][0])
    record = maps.events[number]
    record["local_ns"], record["offset_ns"], record["bound_ns"] = 10**12, -(10**11), bound_ns
    record["kind"], record["path"] = kind, 3
    record["lasted_ns"], record["hold_ns"], record["unanswered"] = 12_000_000, 500_000_000, 6
    record["number"] = number


def test_a_path_that_went_down_is_told_with_its_cause_on_the_timeline() -> None:
    maps = _maps()
    events = PathEvents(maps)  # type: ignore[arg-type]
    _happen(maps, EventKind.PATH_DOWN, 40)
    (event,) = events.take("a", "nic0")
    assert (event.kind, event.nic, event.local_ns) == ("path_down", "nic0", 10**12)
    assert event.detail == (
        "to 10.0.0.2 from port 50000: silent for 12.0 ms, 6 pulses unanswered; "
        "2 queue pairs take their backup for 0.5 s or longer"
    )
    assert event.path is not None
    assert (event.path.time_ns, event.path.bound_ns) == (9 * 10**11, 40)
    assert (event.path.dst_addr, event.path.sport, event.path.queue_pairs) == ("10.0.0.2", 50_000, 2)
    assert events.take("a", "nic0") == []


def test_a_host_that_is_not_synced_claims_no_time() -> None:
    maps = _maps()
    events = PathEvents(maps)  # type: ignore[arg-type]
    _happen(maps, EventKind.PATH_UP, abi.BOUND_UNSYNCED)
    (event,) = events.take("a", "nic0")
    assert event.kind == "path_up"
    assert event.path is not None
    assert (event.path.time_ns, event.path.bound_ns) == (None, None)
    assert event.detail == "to 10.0.0.2 from port 50000: healthy for 0.0 s; 2 queue pairs take it again"
