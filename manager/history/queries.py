"""Questions to the store, each on a connection of its own that only reads, so that any thread may ask."""

import contextlib
import sqlite3
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from heapq import merge
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec

from manager.history.records import FindingRecord

BUSY_S = 2.0

Json = dict[str, Any]
Elements = dict[str, dict[str, Json]]


CHANGES = (
    *("steer_set", "steer_withdrawn", "slice_set", "slice_withdrawn"),
    *(
        "qp_moved",
        "qp_rerouted",
        "qp_backed_up",
        "qp_released",
        "qp_migrated",
        "qp_not_migrated",
        "ib_spread",
    ),
    *("host_invited", "host_joined", "host_revoked", "keys_rotating", "keys_rotated"),
    *("access_granted", "access_revoked", "audit_started"),
)
"""The kinds of events that are changes by a person or by the planner; together they are asked for as `change`."""


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """Which rows: of a span of time, seconds since 1970, both ends included; `host` of any where empty; the newest."""

    since_s: float
    until_s: float
    host: str = ""
    kinds: tuple[str, ...] = ()
    limit: int = 1_000


@contextlib.contextmanager
def reading(path: Path) -> Iterator[sqlite3.Connection]:
    """A connection that cannot write.

    Raises:
        sqlite3.Error: there is no such database, or it cannot be read.
    """
    db = sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True, timeout=BUSY_S)
    try:
        yield db
    finally:
        db.close()


def events(db: sqlite3.Connection, wanted: Wanted) -> tuple[list[Json], bool]:
    """What happened, the oldest first, and whether there was more before that."""
    found = (_newest_events(db, wanted, kind) for kind in dict.fromkeys(wanted.kinds) or [None])
    newest = list(islice(merge(*found, key=lambda row: (-row[0], -row[1])), wanted.limit + 1))
    rows = [
        {
            "time_s": time_s,
            "host": host,
            "kind": kind,
            "nic": nic,
            "detail": detail,
            "path": _decoded(path),
            "why": why,
            "moves": _decoded(moves),
        }
        for time_s, _, kind, host, nic, detail, path, why, moves in newest[: wanted.limit]
    ]
    return rows[::-1], len(newest) > wanted.limit


def _newest_events(db: sqlite3.Connection, wanted: Wanted, kind: str | None) -> sqlite3.Cursor:
    where, arguments = ["time_s BETWEEN ? AND ?"], [wanted.since_s, wanted.until_s]
    values: list[object] = [*arguments]
    if wanted.host:
        where.append("host = ?")
        values.append(wanted.host)
    if kind is not None:
        where.append("kind = ?")
        values.append(kind)
    return db.execute(
        "SELECT time_s, id, kind, host, nic, detail, path, why, moves FROM events"  # noqa: S608 - the conditions are ours
        f" WHERE {' AND '.join(where)} ORDER BY time_s DESC, id DESC LIMIT ?",
        (*values, wanted.limit + 1),
    )


def moves(db: sqlite3.Connection, wanted: Wanted) -> list[Json]:
    """What the planner wanted of queue pairs, the newest, oldest first."""
    ways = ("switches", "before_switches")
    ports = ("sport", "backup_sport", "before_sport", "before_backup_sport")
    columns = ("time_s", "host", "nic", "dst_addr", "qpn", "what", "why", *ports, *ways)
    rows = (dict(zip(columns, row, strict=True)) for row in _newest(db, "moves", columns, wanted))
    return [row | {way: _decoded(row[way]) or [] for way in ways} for row in rows]


def overrides(db: sqlite3.Connection, wanted: Wanted) -> list[Json]:
    """What operators changed, the newest, oldest first."""
    columns = ("time_s", "host", "nic", "what", "action", "author", "why", "wanted", "before")
    rows = _newest(db, "overrides", columns, wanted)
    return [
        dict(zip(columns, row, strict=True)) | {"wanted": _decoded(row[-2]), "before": _decoded(row[-1])}
        for row in rows
    ]


def queue_pairs(db: sqlite3.Connection, wanted: Wanted) -> list[Json]:
    """The queue pairs that were kept, the newest, oldest first."""
    columns = ("time_s", "host", "nic", "data")
    rows = _newest(db, "queue_pairs", columns, wanted)
    return [
        {"time_s": time_s, "host": host, "nic": nic, **msgspec.json.decode(data)}
        for time_s, host, nic, data in rows
    ]


def _decoded(data: bytes | None) -> Any:
    """What is kept as JSON; None for nothing."""
    return None if data is None else msgspec.json.decode(data)


def _newest(
    db: sqlite3.Connection, table: str, columns: Sequence[str], wanted: Wanted
) -> list[tuple[Any, ...]]:
    where = "time_s BETWEEN ? AND ?" + (" AND host = ?" if wanted.host else "")
    values = [wanted.since_s, wanted.until_s, *([wanted.host] if wanted.host else [])]
    found = db.execute(
        f"SELECT {', '.join(columns)} FROM {table} WHERE {where} ORDER BY time_s DESC, id DESC LIMIT ?",  # noqa: S608
        (*values, wanted.limit),
    )
    return found.fetchall()[::-1]


def findings(db: sqlite3.Connection, since_s: float, until_s: float) -> list[FindingRecord]:
    """The findings that held at some time of a span, each as it was last within it, with its end if that is known."""
    rows = db.execute(
        "SELECT origin, number, from_s, to_s, data FROM findings"
        " WHERE (to_s > ? OR to_s IS NULL) AND from_s <= ? ORDER BY from_s, id",
        (since_s, until_s),
    )
    latest: dict[tuple[str, int], FindingRecord] = {}
    for origin, number, _, to_s, data in rows:
        record = msgspec.json.decode(data, type=FindingRecord)
        latest[origin, number] = msgspec.structs.replace(record, end_s=to_s)
    return list(latest.values())


def fabric(db: sqlite3.Connection, time_s: float) -> Elements:
    """The parts of the fabric that were known at a time: data by name, by kind."""
    rows = db.execute(
        "SELECT what, name, data FROM elements WHERE (to_s > ? OR to_s IS NULL) AND from_s <= ? ORDER BY name",
        (time_s, time_s),
    )
    found: Elements = defaultdict(dict)
    for what, name, data in rows:
        found[what][name] = msgspec.json.decode(data)
    return found


def fabric_since_s(db: sqlite3.Connection) -> float | None:
    """Since when the fabric is known; None for not at all."""
    (since_s,) = db.execute("SELECT min(from_s) FROM elements").fetchone()
    return None if since_s is None else float(since_s)


def events_since_s(db: sqlite3.Connection) -> float | None:
    """Since when events are kept; None for not at all."""
    (since_s,) = db.execute("SELECT min(time_s) FROM events").fetchone()
    return None if since_s is None else float(since_s)
