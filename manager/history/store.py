"""The store: the log of record as indexed tables in SQLite, written by one thread.

It is in write-ahead mode and each batch is one transaction, on the disk before the call returns: whatever ends the
manager, or the machine, the database is whole and lacks at most what was not written yet.
"""

import contextlib
import sqlite3
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from manager.history import schema
from manager.history.records import (
    EventRecord,
    FabricRecord,
    FindingRecord,
    LeaderRecord,
    Message,
    MoveRecord,
    OverrideRecord,
    encoded,
)

FILE = "history.sqlite"
MOST_UNSENT = 100_000
DELETED_AT_ONCE = 20_000
WAL_BYTES = 16 << 20
BUSY_S = 5.0
PAGES_FREED_AT_ONCE = 4_096
GENERATION_BYTES = 16

ENDINGS = ("", "-wal", "-shm")
"""Of the files that SQLite keeps beside the database, and its own."""

_T = TypeVar("_T")


def _json(value: object) -> bytes | None:
    """Of what is not a column of its own; None stays None."""
    return None if value is None else msgspec.json.encode(value)


def is_corrupt(error: Exception) -> bool:
    """Whether an error says that the database is none, or damaged."""
    if not isinstance(error, sqlite3.DatabaseError):
        return False
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    return code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_SCHEMA)


class DamagedError(sqlite3.DatabaseError):
    """A database of which a part is not what it should be."""

    sqlite_errorcode = sqlite3.SQLITE_CORRUPT


class WrongVersionError(sqlite3.DatabaseError):
    """A database that another version of cwdp has made."""

    sqlite_errorcode = sqlite3.SQLITE_SCHEMA


class Store:
    """The database below a directory; it is made unless it is there.

    Raises:
        sqlite3.Error: it cannot be opened, or any method cannot do what it is asked for; `is_corrupt` tells why.
        OSError: there can be no such directory.

    Attributes:
        generation: 16 bytes of this database's own, which its rings bear too.
        dropped: messages that were never told to others, as too many waited.
    """

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.path = directory / FILE
        self.dropped = 0
        self._position: int | None = None
        self._db = sqlite3.connect(
            self.path, timeout=BUSY_S, isolation_level=None, check_same_thread=False, cached_statements=64
        )
        try:
            self._open()
            self.generation = self._which()
        except BaseException:
            self._db.close()
            raise

    def _open(self) -> None:
        (version,) = self._db.execute("PRAGMA user_version").fetchone()
        if version not in (0, schema.VERSION):
            raise WrongVersionError(f"it is of version {version}")
        if version == 0:
            self._db.execute("PRAGMA auto_vacuum = INCREMENTAL")
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = FULL")
        self._db.execute(f"PRAGMA journal_size_limit = {WAL_BYTES}")
        if version == 0:
            with self._transaction():
                for statement in schema.SCHEMA.split(";\n"):
                    self._db.execute(statement)
                self._set_meta("generation", uuid.uuid4().bytes)
                self._set_meta("since_s", time.time())
                self._db.execute(f"PRAGMA user_version = {schema.VERSION}")
        self._add_columns()

    def _add_columns(self) -> None:
        """Those that tables have got since the database was made."""
        tables = {table for table, _, _ in schema.ADDED}
        known = {
            (table, row[1]) for table in tables for row in self._db.execute(f"PRAGMA table_info({table})")
        }
        missing = [each for each in schema.ADDED if each[:2] not in known]
        if missing:
            with self._transaction():
                for table, column, of in missing:
                    self._db.execute(f"ALTER TABLE {table} ADD COLUMN {column} {of}")

    def _which(self) -> bytes:
        generation = self._meta("generation")
        if not isinstance(generation, bytes) or len(generation) != GENERATION_BYTES:
            raise DamagedError("it does not say which it is")
        return generation

    def close(self) -> None:
        """Let go of the database."""
        self._db.close()

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._db.execute("COMMIT")
        except BaseException:
            with contextlib.suppress(sqlite3.Error):
                self._db.execute("ROLLBACK")
            raise

    def append(self, message: Message) -> None:
        """Take in what this manager has to say, and keep it for the bus; nothing where that has been done."""
        if not self._is_new(message):
            return
        with self._transaction():
            if self._position is not None:
                self._set_meta("position", self._position)
            self._apply(message)
            self._db.execute(
                "INSERT INTO outbox (origin, number, message) VALUES (?, ?, ?)",
                (message.origin, message.number, encoded(message)),
            )

    def take_in(self, messages: Iterable[Message], position: int) -> int:
        """Take in what the stream holds, up to a position of it; how many records were new.

        Where there was nothing new, as with what this manager itself has sent, the position is kept later: to read the
        same again does no harm.
        """
        new = [message for message in messages if self._is_new(message)]
        if not new:
            self._position = position
            return 0
        with self._transaction():
            count = sum(self._apply(message) for message in new)
            self._set_meta("position", position)
            self._position = None
        return count

    def unsent(self, limit: int) -> list[tuple[int, str, bytes]]:
        """What is not on the bus yet, in order: place in the outbox, name by which the bus knows what comes again, bytes."""
        rows = self._db.execute(
            "SELECT id, origin || '-' || number, message FROM outbox ORDER BY id LIMIT ?", (limit,)
        )
        return rows.fetchall()

    def sent(self, number: int) -> None:
        """The bus has taken what is in the outbox up to a place."""
        self._db.execute("DELETE FROM outbox WHERE id <= ?", (number,))

    def position(self, stream: str) -> int:
        """Of a stream, named by when it was made, up to which it has been taken in; 0 before the first."""
        if self._meta("stream") != stream:
            with self._transaction():
                self._set_meta("stream", stream)
                self._set_meta("position", 0)
        return int(self._meta("position") or 0)

    def has_event(self, event: EventRecord, within_s: float) -> bool:
        """Whether the same is known already of about the same time."""
        found = self._db.execute(
            "SELECT 1 FROM events WHERE host = ? AND kind = ? AND time_s BETWEEN ? AND ? AND nic IS ? AND detail = ?",
            (
                event.host,
                event.kind,
                event.time_s - within_s,
                event.time_s + within_s,
                event.nic,
                event.detail,
            ),
        )
        return found.fetchone() is not None

    def elements(self) -> dict[tuple[str, str], dict[str, Any]]:
        """The fabric as it is known: data by kind and name."""
        rows = self._db.execute("SELECT what, name, data FROM elements WHERE to_s IS NULL")
        try:
            return {(what, name): msgspec.json.decode(data) for what, name, data in rows}
        except (msgspec.DecodeError, UnicodeDecodeError, TypeError) as error:
            raise DamagedError(str(error)) from error

    def add_queue_pairs(self, time_s: float, rows: Iterable[tuple[str, str, bytes]], keep_s: float) -> None:
        """Keep queue pairs as they are at a time: host, NIC and the rest as JSON; and drop those older than `keep_s`."""
        with self._transaction():
            self._db.executemany(
                "INSERT INTO queue_pairs (time_s, host, nic, data) VALUES (?, ?, ?, ?)",
                [(time_s, *row) for row in rows],
            )
            self._db.execute("DELETE FROM queue_pairs WHERE time_s < ?", (time_s - keep_s,))

    def retain(self, oldest_s: float, most_bytes: int) -> bool:
        """Drop some of what is older than a time, or of the oldest while the database is too large; whether more is due."""
        more = False
        with self._transaction():
            for table, column in schema.DATED.items():
                count = self._delete(table, f"{column} < ?", (oldest_s,))
                more = more or count == DELETED_AT_ONCE
            if self.size_bytes > most_bytes:
                more = self._drop_oldest() or more
            self._drop_unsent("(SELECT max(id) FROM outbox) - ?", MOST_UNSENT)
        self._db.executescript(f"PRAGMA incremental_vacuum({PAGES_FREED_AT_ONCE})")
        return more

    def _drop_unsent(self, up_to: str, argument: int) -> bool:
        """Give up telling others of what has waited longest; whether there was any."""
        count = self._db.execute(f"DELETE FROM outbox WHERE id <= {up_to}", (argument,)).rowcount  # noqa: S608
        self.dropped += count
        return count > 0

    def _drop_oldest(self) -> bool:
        """Drop about `DELETED_AT_ONCE` of the oldest rows of all tables, and half of what waits; whether there was any."""
        any_unsent = self._drop_unsent("(SELECT (min(id) + max(id)) / ? FROM outbox)", 2)
        cut_s = min(self._cuts(), default=None)
        if cut_s is None:
            return any_unsent
        dropped = [self._delete(table, f"{column} <= ?", (cut_s,)) for table, column in schema.DATED.items()]
        return any_unsent or sum(dropped) > 0

    def _cuts(self) -> Iterator[float]:
        """Of each table that grows with what happens, the age of the last row that may go with one pass."""
        for table in schema.BULK:
            (count,) = self._db.execute(f"SELECT count(*) FROM {table}").fetchone()  # noqa: S608 - a name of ours
            if count:
                last = min(DELETED_AT_ONCE, count) - 1
                nth = f"SELECT {schema.DATED[table]} FROM {table} ORDER BY 1 LIMIT 1 OFFSET {last}"  # noqa: S608
                yield from self._db.execute(nth).fetchone()

    def _delete(self, table: str, where: str, arguments: tuple[Any, ...]) -> int:
        column = schema.DATED[table]
        chosen = f"SELECT id FROM {table} WHERE {where} ORDER BY {column} LIMIT {DELETED_AT_ONCE}"  # noqa: S608
        return self._db.execute(f"DELETE FROM {table} WHERE id IN ({chosen})", arguments).rowcount  # noqa: S608

    @property
    def size_bytes(self) -> int:
        """Of the pages in use."""
        pages, free, size = (
            self._db.execute(f"PRAGMA {name}").fetchone()[0]
            for name in ("page_count", "freelist_count", "page_size")
        )
        return int((pages - free) * size)

    @property
    def unsent_count(self) -> int:
        """How many messages are not on the bus yet."""
        (count,) = self._db.execute("SELECT count(*) FROM outbox").fetchone()
        return int(count)

    def check(self) -> None:
        """Look for damage.

        Raises:
            sqlite3.DatabaseError: it is damaged.
        """
        (found,) = self._db.execute("PRAGMA quick_check(1)").fetchone()
        if found != "ok":
            raise DamagedError(found)

    def run(self, work: Callable[[sqlite3.Connection], _T]) -> _T:
        """Do something in a transaction of its own."""
        with self._transaction():
            return work(self._db)

    def _meta(self, name: str) -> Any:
        row = self._db.execute("SELECT value FROM meta WHERE name = ?", (name,)).fetchone()
        return None if row is None else row[0]

    def _set_meta(self, name: str, value: object) -> None:
        self._db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (name, value))

    def _apply(self, message: Message) -> int:
        """Take in a message unless that has been done; how many records."""
        if not self._is_new(message):
            return 0
        for record in message.records:
            self._take(message.origin, record)
        self._db.execute("INSERT OR REPLACE INTO origins VALUES (?, ?)", (message.origin, message.number))
        return len(message.records)

    def _is_new(self, message: Message) -> bool:
        row = self._db.execute("SELECT number FROM origins WHERE origin = ?", (message.origin,)).fetchone()
        return row is None or message.number > row[0]

    def _take(self, origin: str, record: object) -> None:
        match record:
            case EventRecord():
                self._insert(
                    "events",
                    time_s=record.time_s,
                    kind=record.kind,
                    host=record.host,
                    nic=record.nic,
                    detail=record.detail,
                    path=_json(record.path),
                    why=record.why,
                    moves=_json(record.moves),
                )
            case FindingRecord():
                self._take_finding(origin, record)
            case MoveRecord():
                said = msgspec.structs.asdict(record)
                ways = {name: _json(said[name] or None) for name in ("switches", "before_switches")}
                self._insert("moves", **said | ways)
            case OverrideRecord():
                self._insert(
                    "overrides",
                    time_s=record.time_s,
                    host=record.host,
                    nic=record.nic,
                    what=record.what,
                    action=record.action,
                    author=record.by,
                    wanted=_json(record.wanted),
                    before=_json(record.before),
                    why=record.why,
                )
            case FabricRecord():
                self._take_fabric(record)
            case LeaderRecord():
                self._db.execute(
                    "UPDATE findings SET to_s = max(from_s, ?) WHERE to_s IS NULL AND origin != ?",
                    (record.time_s, origin),
                )
                self._set_meta("leader", origin)
                self._set_meta("leads_since_s", record.time_s)

    def _insert(self, table: str, **row: object) -> None:
        names = ", ".join(row)
        places = ", ".join("?" * len(row))
        self._db.execute(f"INSERT INTO {table} ({names}) VALUES ({places})", tuple(row.values()))  # noqa: S608

    def _take_finding(self, origin: str, record: FindingRecord) -> None:
        self._db.execute(
            "UPDATE findings SET to_s = max(from_s, ?) WHERE origin = ? AND number = ? AND to_s IS NULL",
            (record.time_s if record.end_s is None else record.end_s, origin, record.number),
        )
        if record.end_s is None:
            is_late = self._meta("leader") not in (None, origin)
            to_s = max(record.time_s, self._meta("leads_since_s")) if is_late else None
            row = (origin, record.number, record.start_s, record.time_s, to_s, msgspec.json.encode(record))
            self._db.execute(
                "INSERT INTO findings (origin, number, start_s, from_s, to_s, data) VALUES (?, ?, ?, ?, ?, ?)",
                row,
            )

    def _take_fabric(self, record: FabricRecord) -> None:
        over = "UPDATE elements SET to_s = max(from_s, ?) WHERE what = ? AND name = ? AND to_s IS NULL"
        self._db.executemany(over, [(record.time_s, what, name) for what, name in record.gone])
        for element in record.present:
            data = msgspec.json.encode(element.data)
            name = (element.what, element.name)
            self._db.execute(f"{over} AND data != ?", (record.time_s, *name, data))
            self._db.execute(
                "INSERT OR IGNORE INTO elements (what, name, data, from_s) VALUES (?, ?, ?, ?)",
                (*name, data, record.time_s),
            )
