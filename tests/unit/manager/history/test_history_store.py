"""The store: what goes in comes out, once, in order and in time; it is bounded, and survives being killed."""

import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cwdp.shared.aside import set_aside
from cwdp.shared.bus.messages import PathChange
from manager.history import queries
from manager.history import store as stores
from manager.history.queries import Wanted
from manager.history.records import (
    Element,
    EventRecord,
    FabricRecord,
    FindingRecord,
    LeaderRecord,
    Message,
    MoveRecord,
    OverrideRecord,
    Record,
    SubjectRecord,
    decoded,
    encoded,
)
from manager.history.store import Store

ALWAYS = Wanted(since_s=0.0, until_s=1e11, limit=10_000)
DAY_S = 86_400.0


def _event(time_s: float, host: str = "h1", kind: str = "link_down", detail: str = "<b>x</b>") -> EventRecord:
    return EventRecord(time_s=time_s, host=host, kind=kind, nic="nic0", detail=detail)


def _finding(
    time_s: float, number: int, *, end_s: float | None = None, confidence: float = 0.5
) -> FindingRecord:
    subject = SubjectRecord(kind="link", name="l1 - s1", links=[("l1", "s1"), ("s1", "l1")])
    return FindingRecord(
        time_s=time_s,
        number=number,
        kind="silent",
        subject=subject,
        also=[],
        confidence=confidence,
        loss=1.0,
        evidence=["all is lost"],
        start_s=time_s - 1,
        end_s=end_s,
    )


def _message(number: int, *records: Record, origin: str = "m") -> Message:
    return Message(origin=origin, number=number, records=list(records))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = Store(tmp_path)
    yield opened
    opened.close()


def _events(store: Store, wanted: Wanted = ALWAYS) -> list[dict[str, object]]:
    with queries.reading(store.path) as db:
        return queries.events(db, wanted)[0]


def test_events_by_time_kind_and_host_the_newest_in_order(store: Store) -> None:
    rng = random.Random(3)
    every = [
        _event(
            float(time_s),
            f"h{rng.randrange(4)}",
            rng.choice(["path_up", "path_down", "host_up"]),
            str(time_s),
        )
        for time_s in range(500)
    ]
    shuffled = rng.sample(every, len(every))
    for number, start in enumerate(range(0, 500, 50), 1):
        store.append(_message(number, *shuffled[start : start + 50]))
    for kinds in ((), ("path_up",), ("path_up", "host_up"), ("nothing",)):
        for host in ("", "h2", "nobody"):
            wanted = Wanted(since_s=100.0, until_s=400.0, host=host, kinds=kinds, limit=20)
            chosen = [
                each
                for each in every
                if 100 <= each.time_s <= 400 and host in ("", each.host) and (not kinds or each.kind in kinds)
            ]
            with queries.reading(store.path) as db:
                rows, more = queries.events(db, wanted)
            assert [row["detail"] for row in rows] == [each.detail for each in chosen[-20:]]
            assert more == (len(chosen) > 20)


def test_all_that_an_event_says_comes_back(store: Store) -> None:
    path = PathChange(
        time_ns=None,
        bound_ns=None,
        dst_addr="10.0.0.1",
        sport=50_000,
        lasted_ns=5,
        unanswered=9,
        queue_pairs=1,
        hold_down_ns=7,
    )
    event = EventRecord(
        time_s=5.5, host="h\n1", kind="path_down", nic=None, detail="'; DROP TABLE events", path=path
    )
    store.append(_message(1, event))
    (row,) = _events(store)
    assert (row["time_s"], row["host"], row["nic"], row["detail"]) == (5.5, "h\n1", None, event.detail)
    assert row["path"] == {
        "dst_addr": "10.0.0.1",
        "sport": 50_000,
        "lasted_ns": 5,
        "unanswered": 9,
        "queue_pairs": 1,
        "hold_down_ns": 7,
        "connections": 0,
        "protocol": 0,
        "time_ns": None,
        "bound_ns": None,
    }


def test_what_comes_again_is_known(store: Store) -> None:
    one, two = _message(1, _event(1.0)), _message(2, _event(2.0))
    store.append(one)
    assert store.take_in([decoded(encoded(one))], 5) == 0
    assert store.take_in([one, two, two], 7) == 1
    assert store.take_in([one, two], 7) == 0
    assert len(_events(store)) == 2
    assert store.take_in([_message(1, _event(3.0), origin="another")], 8) == 1


def test_the_position_in_the_stream_outlives_a_restart_and_not_the_stream(tmp_path: Path) -> None:
    first = Store(tmp_path)
    assert first.position("made today") == 0
    first.take_in([_message(1, _event(1.0), origin="b")], 41)
    first.take_in([], 42)
    first.append(_message(1, _event(2.0)))
    first.close()
    again = Store(tmp_path)
    assert again.position("made today") == 42
    assert again.position("made tomorrow") == 0
    assert [row[1] for row in again.unsent(10)] == ["m-1"]
    again.sent(again.unsent(10)[-1][0])
    assert again.unsent(10) == []
    again.close()


def test_findings_as_they_were(store: Store) -> None:
    store.append(_message(1, LeaderRecord(time_s=1.0, name="a"), _finding(10.0, 1), _finding(12.0, 2)))
    store.append(_message(2, _finding(20.0, 1, confidence=0.9), _finding(30.0, 1, end_s=29.0)))

    def at(time_s: float) -> dict[int, float]:
        with queries.reading(store.path) as db:
            return {each.number: each.confidence for each in queries.findings(db, time_s, time_s)}

    assert at(9.0) == {}
    assert at(11.0) == {1: 0.5}
    assert at(13.0) == {1: 0.5, 2: 0.5}
    assert at(25.0) == {1: 0.9, 2: 0.5}
    assert at(29.5) == {2: 0.5}
    with queries.reading(store.path) as db:
        ends = {each.number: each.end_s for each in queries.findings(db, 0.0, 100.0)}
    assert ends == {1: 29.0, 2: None}


def test_findings_of_a_leader_that_is_no_more_are_over(store: Store) -> None:
    store.append(_message(1, LeaderRecord(time_s=1.0, name="a"), _finding(10.0, 1)))
    leads = _message(1, LeaderRecord(time_s=50.0, name="b"), _finding(51.0, 1), origin="other")
    late = _message(2, _finding(20.0, 2))
    store.take_in([leads, late], 9)
    with queries.reading(store.path) as db:
        assert [each.start_s for each in queries.findings(db, 60.0, 60.0)] == [50.0]
        assert len(queries.findings(db, 25.0, 25.0)) == 2


def test_the_fabric_as_it_was(store: Store) -> None:
    leaf = Element(what="switch", name="l1", data={"tier": 1})
    spine = Element(what="switch", name="s1", data={"tier": 2})
    store.append(_message(1, FabricRecord(time_s=10.0, present=[leaf, spine], gone=[])))
    moved = Element(what="switch", name="s1", data={"tier": 3})
    store.append(_message(2, FabricRecord(time_s=20.0, present=[leaf, moved], gone=[])))
    store.append(
        _message(3, FabricRecord(time_s=30.0, present=[], gone=[("switch", "l1"), ("seat", "never")]))
    )
    with queries.reading(store.path) as db:
        assert queries.fabric_since_s(db) == 10.0
        assert queries.fabric(db, 9.0) == {}
        assert queries.fabric(db, 15.0) == {"switch": {"l1": {"tier": 1}, "s1": {"tier": 2}}}
        assert queries.fabric(db, 25.0) == {"switch": {"l1": {"tier": 1}, "s1": {"tier": 3}}}
        assert queries.fabric(db, 35.0) == {"switch": {"s1": {"tier": 3}}}
    assert store.elements() == {("switch", "s1"): {"tier": 3}}


def test_moves_changes_and_queue_pairs(store: Store) -> None:
    move = MoveRecord(
        time_s=1.0, host="h", nic="n", dst_addr="::1", qpn=7, what="moved", sport=1, backup_sport=None
    )
    change = OverrideRecord(time_s=2.0, host="h", nic="n", what="steer", action="set", wanted={"qpn": 7})
    store.append(_message(1, move, change))
    store.add_queue_pairs(100.0, [("h", "n", b'{"bps":1}')], 50.0)
    store.add_queue_pairs(160.0, [("h", "n", b'{"bps":2}')], 50.0)
    with queries.reading(store.path) as db:
        assert [(row["qpn"], row["what"]) for row in queries.moves(db, ALWAYS)] == [(7, "moved")]
        assert [(row["wanted"], row["author"]) for row in queries.overrides(db, ALWAYS)] == [({"qpn": 7}, "")]
        assert [row["bps"] for row in queries.queue_pairs(db, ALWAYS)] == [2]


def test_what_is_too_old_goes_and_what_still_holds_stays(store: Store) -> None:
    now_s = 100 * DAY_S
    store.append(_message(1, *(_event(day * DAY_S) for day in range(100)), _finding(DAY_S, 1)))
    leaf = Element(what="switch", name="l1", data={})
    store.append(_message(2, FabricRecord(time_s=DAY_S, present=[leaf], gone=[])))
    assert not store.retain(now_s - 90 * DAY_S, 1 << 40)
    assert [row["time_s"] for row in _events(store)] == [day * DAY_S for day in range(10, 100)]
    with queries.reading(store.path) as db:
        assert len(queries.findings(db, now_s, now_s)) == 1
        assert queries.fabric(db, now_s) == {"switch": {"l1": {}}}


def test_the_oldest_go_first_once_it_is_too_large(store: Store) -> None:
    for number in range(1, 31):
        store.append(
            _message(number, *(_event(float(1000 * number + i), detail="x" * 180) for i in range(2000)))
        )
    store.sent(1 << 40)
    full = store.size_bytes
    while store.retain(0.0, full // 2):
        pass
    assert store.size_bytes <= full // 2
    rows = _events(store, Wanted(since_s=0.0, until_s=1e11, limit=100_000))
    assert 10_000 <= len(rows) < 40_000
    assert rows[-1]["time_s"] == 1000.0 * 30 + 1999
    assert min(row["time_s"] for row in rows) > 5_000.0  # type: ignore[type-var]
    assert store.path.stat().st_size < 1.2 * full


def test_a_bus_that_is_gone_for_good_does_not_fill_the_database(store: Store) -> None:
    for number in range(1, 31):
        store.append(
            _message(number, *(_event(float(1000 * number + i), detail="x" * 180) for i in range(2000)))
        )
    full = store.size_bytes
    while store.retain(0.0, full // 2):
        pass
    assert store.size_bytes <= full // 2
    assert 0 < store.unsent_count == 30 - store.dropped
    assert [row[1] for row in store.unsent(100)][-1] == "m-30"
    assert len(_events(store)) > 0


@pytest.mark.parametrize("damage", ["garbage", "version", "header"])
def test_damage_at_the_start_is_told_from_other_trouble(tmp_path: Path, damage: str) -> None:
    Store(tmp_path).close()
    path = tmp_path / stores.FILE
    if damage == "version":
        with sqlite3.connect(path) as db:
            db.execute("PRAGMA user_version = 99")
        db.close()
    else:
        content = bytearray(path.read_bytes())
        content[: 16 if damage == "header" else 4096] = os.urandom(16 if damage == "header" else 4096)
        path.write_bytes(content)
    with pytest.raises(sqlite3.DatabaseError) as raised:
        Store(tmp_path)
    assert stores.is_corrupt(raised.value)
    aside = set_aside(tmp_path / stores.FILE, stores.ENDINGS)
    assert aside.exists()
    Store(tmp_path).close()


def test_a_full_database_is_no_damage(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.run(lambda db: db.execute("SELECT 1"))
    store._db.execute("PRAGMA max_page_count = 40")
    with pytest.raises(sqlite3.OperationalError, match="full") as raised:
        store.append(_message(1, *(_event(float(i), detail="x" * 200) for i in range(5_000))))
    assert not stores.is_corrupt(raised.value)
    assert _events(store) == []
    store._db.execute("PRAGMA max_page_count = 100000")
    store.append(_message(1, _event(1.0)))
    assert len(_events(store)) == 1
    store.close()


WRITERS = """
import os, sys
from pathlib import Path
import numpy as np
from manager.history.coding import LINK_FIELDS
from manager.history.measured import Measured
from manager.history.records import EventRecord, Message
from manager.history.rings import Ring
from manager.history.store import Store

def write(directory, origin):
    store = Store(Path(directory))
    links = Measured(Ring(Path(directory), "links", store.generation), "links", LINK_FIELDS, store)
    names = tuple((f"l{i}", "s") for i in range(100))
    values = {field.name: np.full(100, 0.5) for field in LINK_FIELDS}
    for number in range(1, 1_000_000):
        events = [
            EventRecord(time_s=float(number), host=origin, kind="k", nic=None, detail=str(i)) for i in range(20)
        ]
        store.append(Message(origin=origin, number=number, records=events))
        links.add(names, values, 1.8e9 + 10.0 * number, 1 << 30)
        os.write(1, f"{number}\\n".encode())

for line in sys.stdin:
    pid = os.fork()
    if pid == 0:
        os.write(1, f"{os.getpid()}\\n".encode())
        write(*line.split())
    os.waitpid(pid, 0)
    os.write(1, b"killed\\n")
"""
"""For each line a process that says who it is and what it has written, each time in one write."""

KILLS = 200


def test_a_writer_that_is_killed_200_times_loses_nothing_that_it_had_written(tmp_path: Path) -> None:
    rng = random.Random(7)
    written: dict[str, int] = {}
    with subprocess.Popen(
        [sys.executable, "-c", WRITERS],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[4],
    ) as writers:
        assert writers.stdin is not None
        assert writers.stdout is not None
        for kill in range(KILLS):
            origin = f"run{kill}"
            writers.stdin.write(f"{tmp_path} {origin}\n")
            writers.stdin.flush()
            pid = int(writers.stdout.readline())
            wanted = rng.randrange(1, 6)
            written[origin] = 0
            for line in writers.stdout:
                written[origin] = int(line)
                if written[origin] >= wanted:
                    break
            time.sleep(rng.random() * 0.003)
            os.kill(pid, signal.SIGKILL)
            for line in writers.stdout:
                if line == "killed\n":
                    break
                written[origin] = int(line)
    assert all(count > 0 for count in written.values())
    store = Store(tmp_path)
    store.check()
    for origin, number in written.items():
        rows = _events(store, Wanted(since_s=0.0, until_s=1e11, host=origin, limit=10_000))
        batches = len(rows) // 20
        assert len(rows) == 20 * batches
        assert batches in (number, number + 1)
    assert not list(tmp_path.glob("*.corrupt-*"))
    store.close()
