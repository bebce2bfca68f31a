"""What is kept of changes: who, why, before and after; and what managers of before kept and tell without these."""

import sqlite3
from contextlib import closing
from pathlib import Path

import msgspec

from manager.history import queries
from manager.history.queries import Wanted
from manager.history.records import EventRecord, Message, MoveRecord, OverrideRecord, decoded, encoded
from manager.history.store import FILE, Store
from manager.hosts.happening import Move, Moves

ALWAYS = Wanted(since_s=0.0, until_s=1e11)

OLD = """
CREATE TABLE meta (name TEXT PRIMARY KEY, value) WITHOUT ROWID;
INSERT INTO meta VALUES ('generation', x'000102030405060708090a0b0c0d0e0f');
CREATE TABLE events (
    id INTEGER PRIMARY KEY, time_s REAL NOT NULL, kind TEXT NOT NULL, host TEXT NOT NULL, nic TEXT,
    detail TEXT NOT NULL, path BLOB);
INSERT INTO events (time_s, kind, host, nic, detail) VALUES (1.0, 'qp_moved', 'h1', NULL, '1 queue pair of h1');
CREATE TABLE moves (
    id INTEGER PRIMARY KEY, time_s REAL NOT NULL, host TEXT NOT NULL, nic TEXT NOT NULL, dst_addr TEXT NOT NULL,
    qpn INTEGER NOT NULL, what TEXT NOT NULL, sport INTEGER, backup_sport INTEGER);
INSERT INTO moves VALUES (1, 1.0, 'h1', 'n', '10.0.0.1', 7, 'moved', 50000, NULL);
CREATE TABLE overrides (
    id INTEGER PRIMARY KEY, time_s REAL NOT NULL, host TEXT NOT NULL, nic TEXT NOT NULL, what TEXT NOT NULL,
    action TEXT NOT NULL, author TEXT NOT NULL, wanted BLOB NOT NULL);
INSERT INTO overrides VALUES (1, 1.0, 'h1', 'n', 'steer', 'set', 'alice', '{"qpn":7}');
PRAGMA user_version = 1;
"""
"""What a database held before changes had a why, as far as it is asked for here."""


def test_a_database_made_before_changes_had_a_why_opens_with_all_that_it_holds(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / FILE)) as db:
        db.executescript(OLD)
    for _ in range(2):
        Store(tmp_path).close()
        with queries.reading(tmp_path / FILE) as db:
            ((event,), _), (move,), (change,) = (
                queries.events(db, ALWAYS),
                queries.moves(db, ALWAYS),
                queries.overrides(db, ALWAYS),
            )
        assert (event["detail"], event["why"], event["moves"]) == ("1 queue pair of h1", None, None)
        assert (move["sport"], move["before_sport"], move["why"], move["switches"]) == (
            50_000,
            None,
            None,
            [],
        )
        assert (change["author"], change["why"], change["before"]) == ("alice", None, None)


def test_a_manager_of_before_writes_to_a_database_of_now(tmp_path: Path) -> None:
    Store(tmp_path).close()
    with closing(sqlite3.connect(tmp_path / FILE)) as db, db:
        db.execute(
            "INSERT INTO events (time_s, kind, host, nic, detail, path) VALUES (1, 'x', 'h', NULL, '', NULL)"
        )
        db.execute(
            "INSERT INTO moves (time_s, host, nic, dst_addr, qpn, what, sport, backup_sport)"
            " VALUES (1, 'h', 'n', '::1', 7, 'moved', 1, NULL)"
        )
    Store(tmp_path).close()
    with queries.reading(tmp_path / FILE) as db:
        assert [row["kind"] for row in queries.events(db, ALWAYS)[0]] == ["x"]
        assert [row["before_switches"] for row in queries.moves(db, ALWAYS)] == [[]]


def test_records_of_a_manager_of_before_are_taken_in() -> None:
    event = {"type": "event", "time_s": 1.0, "host": "h", "kind": "k", "nic": None, "detail": "d"}
    move = {
        "type": "move",
        "time_s": 1.0,
        "host": "h",
        "nic": "n",
        "dst_addr": "::1",
        "qpn": 7,
        "what": "moved",
        "sport": 1,
        "backup_sport": None,
    }
    change = {
        "type": "override",
        "time_s": 1.0,
        "host": "h",
        "nic": "n",
        "what": "steer",
        "action": "set",
        "wanted": {},
        "by": "alice",
    }
    told = decoded(msgspec.msgpack.encode({"origin": "m", "number": 1, "records": [event, move, change]}))
    assert told.records == [
        EventRecord(time_s=1.0, host="h", kind="k", nic=None, detail="d"),
        MoveRecord(
            time_s=1.0, host="h", nic="n", dst_addr="::1", qpn=7, what="moved", sport=1, backup_sport=None
        ),
        OverrideRecord(time_s=1.0, host="h", nic="n", what="steer", action="set", wanted={}, by="alice"),
    ]
    assert decoded(encoded(told)) == told


def test_a_change_keeps_why_before_and_after(tmp_path: Path) -> None:
    move = Move(
        host="h",
        nic="n",
        dst_addr="::1",
        qpn=7,
        what="moved",
        sport=2,
        backup_sport=3,
        switches=["l1", "s2"],
        before_sport=1,
        before_switches=["l1", "s1"],
        why="l1 > s1 was full",
    )
    event = EventRecord(
        time_s=1.0, host="h", kind="qp_moved", nic=None, detail="", moves=Moves(count=5, listed=[move])
    )
    by_hand = OverrideRecord(
        time_s=1.0,
        host="h",
        nic="n",
        what="steer",
        action="set",
        wanted={"sport": 2},
        before={"sport": 1},
        by="alice",
        why="to see",
    )
    record = MoveRecord(time_s=1.0, **msgspec.structs.asdict(move))
    with closing(Store(tmp_path)) as store:
        store.append(Message(origin="m", number=1, records=[event, record, by_hand]))
        with queries.reading(store.path) as db:
            (told,), _ = queries.events(db, ALWAYS)
            assert told["moves"] == {"count": 5, "listed": [msgspec.to_builtins(move)]}
            assert queries.moves(db, ALWAYS) == [msgspec.to_builtins(move) | {"time_s": 1.0}]
            (change,) = queries.overrides(db, ALWAYS)
            assert (change["why"], change["before"], change["wanted"]) == (
                "to see",
                {"sport": 1},
                {"sport": 2},
            )
