"""The tables of the store. Times are seconds since 1970 by the writing manager's wall clock."""

VERSION = 1

SCHEMA = """
CREATE TABLE meta (name TEXT PRIMARY KEY, value) WITHOUT ROWID;
CREATE TABLE origins (origin TEXT PRIMARY KEY, number INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE outbox (
    id INTEGER PRIMARY KEY, origin TEXT NOT NULL, number INTEGER NOT NULL, message BLOB NOT NULL);

CREATE TABLE events (
    id INTEGER PRIMARY KEY, time_s REAL NOT NULL, kind TEXT NOT NULL, host TEXT NOT NULL, nic TEXT,
    detail TEXT NOT NULL, path BLOB);
CREATE INDEX events_by_time ON events (time_s);
CREATE INDEX events_by_kind ON events (kind, time_s);
CREATE INDEX events_by_host ON events (host, time_s);
CREATE INDEX events_by_both ON events (host, kind, time_s);

CREATE TABLE findings (
    id INTEGER PRIMARY KEY, origin TEXT NOT NULL, number INTEGER NOT NULL, start_s REAL NOT NULL,
    from_s REAL NOT NULL, to_s REAL, data BLOB NOT NULL);
CREATE INDEX findings_by_end ON findings (to_s);
CREATE INDEX findings_by_number ON findings (origin, number);

CREATE TABLE moves (
    id INTEGER PRIMARY KEY, time_s REAL NOT NULL, host TEXT NOT NULL, nic TEXT NOT NULL, dst_addr TEXT NOT NULL,
    qpn INTEGER NOT NULL, what TEXT NOT NULL, sport INTEGER, backup_sport INTEGER);
CREATE INDEX moves_by_time ON moves (time_s);
CREATE INDEX moves_by_host ON moves (host, time_s);

CREATE TABLE overrides (
    id INTEGER PRIMARY KEY, time_s REAL NOT NULL, host TEXT NOT NULL, nic TEXT NOT NULL, what TEXT NOT NULL,
    action TEXT NOT NULL, author TEXT NOT NULL, wanted BLOB NOT NULL);
CREATE INDEX overrides_by_time ON overrides (time_s);
CREATE INDEX overrides_by_host ON overrides (host, time_s);

CREATE TABLE elements (
    id INTEGER PRIMARY KEY, what TEXT NOT NULL, name TEXT NOT NULL, data BLOB NOT NULL, from_s REAL NOT NULL,
    to_s REAL);
CREATE INDEX elements_by_end ON elements (to_s);
CREATE UNIQUE INDEX elements_there ON elements (what, name) WHERE to_s IS NULL;

CREATE TABLE queue_pairs (
    id INTEGER PRIMARY KEY, time_s REAL NOT NULL, host TEXT NOT NULL, nic TEXT NOT NULL, data BLOB NOT NULL);
CREATE INDEX queue_pairs_by_time ON queue_pairs (time_s);

CREATE TABLE slots (
    ring TEXT NOT NULL, slot INTEGER NOT NULL, a TEXT NOT NULL, b TEXT NOT NULL, since_s REAL NOT NULL,
    seen_s REAL NOT NULL, PRIMARY KEY (ring, slot)) WITHOUT ROWID;
"""
"""`findings` and `elements` hold what was true from `from_s` until `to_s`, or still is; `origins` the last number of each
that was taken in; `outbox` what is not on the bus yet; `slots` which link or pair has which place in a ring."""

ADDED = (
    ("events", "why", "TEXT"),
    ("events", "moves", "BLOB"),
    ("moves", "before_sport", "INTEGER"),
    ("moves", "before_backup_sport", "INTEGER"),
    ("moves", "switches", "BLOB"),
    ("moves", "before_switches", "BLOB"),
    ("moves", "why", "TEXT"),
    ("overrides", "before", "BLOB"),
    ("overrides", "why", "TEXT"),
)
"""Columns that tables have got since, each with its type. A database made before gets them when it is opened, with null in all
its rows; a manager of before goes on with one that has them, as it names the columns that it writes and reads."""

DATED = {
    "events": "time_s",
    "moves": "time_s",
    "overrides": "time_s",
    "findings": "to_s",
    "elements": "to_s",
}
"""The tables that are bounded by age and size, and what a row's age goes by; what still holds has none."""

BULK = ("events", "moves")
"""Those of them that may become large."""
