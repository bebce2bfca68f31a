"""What the planner has asked for and when, which it remembers between two steps, and what hosts say is steered."""

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cwdp.shared.bus.messages import SteerQp, SteerReport
from manager.hosts.happening import Move
from manager.placement.flows import QpName
from manager.planner.entries import NO_PORT, Entries, unused

IDLE_S = 15.0
REFUSED_S = 60.0
APPLIED_AFTER_S = 10.0
MOST_ENTRIES = 1_000_000

_FIRST_ROWS = 64

Indices = NDArray[np.intp]


class Released(NamedTuple):
    """One that is let go of, and the ports that its host was told."""

    name: QpName
    sport: int
    backup_sport: int

    def move(self) -> Move:
        """For people."""
        return Move(
            **self.name._asdict(),
            what="released",
            sport=None,
            backup_sport=None,
            before_sport=self.sport,
            before_backup_sport=self.backup_sport or None,
            why="it has not sent for a while",
        )


class SteeringState:
    """All queue pairs that send or have sent of late.

    Attributes:
        row: where what is remembered of each stands; one that is let go of leaves its row to another.
        generation: how many each row has stood for by now, shape (rows,).
    """

    def __init__(self) -> None:
        self.row: dict[QpName, int] = {}
        self.generation = np.zeros(_FIRST_ROWS, np.int64)
        self._rows = unused(_FIRST_ROWS)
        self._names: list[QpName | None] = [None] * _FIRST_ROWS
        self._unused = list(range(_FIRST_ROWS))
        self._by_host: dict[str, set[QpName]] = {}
        self._nics: dict[tuple[str, str], int] = {}

    def know(self, names: Sequence[QpName], now_s: float) -> Indices:
        """The rows of queue pairs that are thought to send, shape (names,)."""
        rows = np.fromiter(map(self.row.get, names, repeat(-1)), np.intp, len(names))
        new = np.flatnonzero(rows < 0)
        if len(new):
            rows[new] = self._add([names[i] for i in new.tolist()], now_s)
        return rows

    def at(self, rows: Indices | int) -> Entries:
        """What is remembered in some rows, until others are added."""
        return Entries(self._rows, rows)

    def of(self, name: QpName) -> Entries:
        """What is remembered of one, until others are added."""
        return self.at(self.row[name])

    def steered(self) -> Indices:
        """The rows of all of which their hosts were told something, shape (steered,)."""
        return np.flatnonzero(self._rows["used"] & (self._rows["sport"] != NO_PORT))

    def names(self, rows: Indices) -> Iterator[QpName]:
        """Whose these are, of rows in use."""
        return (name for row in rows.tolist() if (name := self._names[row]) is not None)

    def mask(self, names: Iterable[QpName]) -> NDArray[np.bool_]:
        """Whether each row is of one of these, shape (rows,)."""
        mask = np.zeros(len(self._names), dtype=bool)
        mask[[row for name in names if (row := self.row.get(name)) is not None]] = True
        return mask

    def ask(self, name: QpName, sport: int, backup_sport: int | None, now_s: float) -> bool:
        """Want a queue pair steered so; whether that is new."""
        entry, backup = self.of(name), backup_sport or NO_PORT
        if (entry.sport, entry.backup_sport) == (sport, backup):
            return False
        entry.sport, entry.backup_sport, entry.asked_s = sport, backup, now_s
        return True

    def adopt(self, host: str, steered: Iterable[SteerQp], now_s: float) -> int:
        """Take up what a host was told by an earlier manager's planner, and no operator's override; how many."""
        taken = 0
        for steer in (steer for steer in steered if not steer.override):
            name = QpName(host, steer.nic, steer.dst_addr, steer.qpn)
            if name not in self.row:
                if len(self.row) >= MOST_ENTRIES:
                    continue
                self._add([name], now_s)
            if self.of(name).sport == NO_PORT:
                self.ask(name, steer.sport, steer.backup_sport, now_s)
                taken += 1
        return taken

    def compare(self, host: str, steered: Iterable[SteerQp], now_s: float) -> int:
        """Note what a host was told a while ago and does not do; how many are new."""
        done = {QpName(host, steer.nic, steer.dst_addr, steer.qpn): steer.sport for steer in steered}
        names = list(self._by_host.get(host, ()))
        entries = self.at(np.array([self.row[name] for name in names], dtype=np.intp))
        sport = entries.sport
        differs = sport != [done.get(name, NO_PORT) for name in names]
        refusing = (sport != NO_PORT) & (now_s - entries.asked_s > APPLIED_AFTER_S) & differs
        refused = int(np.count_nonzero(refusing & (entries.refused_s < now_s)))
        entries.refused_s = np.where(refusing, now_s + REFUSED_S, entries.refused_s)
        return refused

    def release(self, host: str) -> int:
        """Let go of all that a host was told; how much that was."""
        names = list(self._by_host.get(host, ()))
        steered = sum(self.of(name).sport != NO_PORT for name in names)
        for name in names:
            self._drop(name)
        return int(steered)

    def release_idle(self, told_s: Mapping[tuple[str, str], float]) -> list[Released]:
        """Let go of those that have not sent for long; those of them that were steered.

        Args:
            told_s: how many seconds the reports of each NIC tell of. What it has not told of is no idleness.
        """
        rows = np.flatnonzero(self._rows["used"])
        told = np.array([told_s.get(nic, math.nan) for nic in self._nics])
        idle = rows[self.at(rows).idle_s(told[self._rows["nic"][rows]]) > IDLE_S] if len(rows) else rows
        steered = idle[self.at(idle).sport != NO_PORT]
        entries = self.at(steered)
        ports = zip(entries.sport.tolist(), entries.backup_sport.tolist(), strict=True)
        released = [Released(name, *each) for name, each in zip(self.names(steered), ports, strict=True)]
        for name in list(self.names(idle)):
            self._drop(name)
        return released

    def keep_only(self, nics: Collection[tuple[str, str]]) -> set[str]:
        """Let go of the queue pairs of all other NICs; the hosts concerned."""
        lost = [name for name in self.row if (name.host, name.nic) not in nics]
        for name in lost:
            self._drop(name)
        self._number_nics(nics)
        return {name.host for name in lost}

    def hosts(self) -> Iterator[str]:
        """Hosts of which there is an entry."""
        yield from self._by_host

    def wanted(self, host: str) -> list[SteerQp]:
        """What a host is to be told, in order."""
        names = sorted(self._by_host.get(host, ()))
        entries = self.at(np.array([self.row[name] for name in names], dtype=np.intp))
        ports = zip(names, entries.sport.tolist(), entries.backup_sport.tolist(), strict=True)
        return [
            SteerQp(
                nic=name.nic,
                dst_addr=name.dst_addr,
                qpn=name.qpn,
                sport=sport,
                backup_sport=backup_sport or None,
                flow_label=":" in name.dst_addr,
            )
            for name, sport, backup_sport in ports
            if sport != NO_PORT
        ]

    def _add(self, names: Sequence[QpName], now_s: float) -> list[int]:
        """The rows of some that have none yet, each of which is there once."""
        while len(self._unused) < len(names):
            self._grow()
        rows = self._unused[-len(names) :][::-1]
        del self._unused[-len(names) :]
        nics = [self._nics.setdefault((name.host, name.nic), len(self._nics)) for name in names]
        self.at(np.array(rows, np.intp)).begin(np.array(nics, np.int64), now_s)
        self.generation[rows] += 1
        for row, name in zip(rows, names, strict=True):
            self.row[name], self._names[row] = row, name
            self._by_host.setdefault(name.host, set()).add(name)
        return rows

    def _grow(self) -> None:
        """Twice as many rows."""
        count, more = len(self._names), unused(len(self._names))
        self._rows = {name: np.concatenate([column, more[name]]) for name, column in self._rows.items()}
        self.generation = np.concatenate([self.generation, np.zeros(count, np.int64)])
        self._names += [None] * count
        self._unused = [*range(count, 2 * count), *self._unused]

    def _drop(self, name: QpName) -> None:
        row = self.row.pop(name)
        self._rows["used"][row], self._names[row] = False, None
        self._unused.append(row)
        names = self._by_host[name.host]
        names.discard(name)
        if not names:
            del self._by_host[name.host]

    def _number_nics(self, nics: Collection[tuple[str, str]]) -> None:
        """Number those anew that are left."""
        before, self._nics = self._nics, {}
        numbers = [self._nics.setdefault(nic, len(self._nics)) if nic in nics else 0 for nic in before]
        self._rows["nic"] = np.array([*numbers, 0], np.int64)[self._rows["nic"]]


@dataclass
class _Begun:
    number: int
    parts: dict[int, SteerReport] = field(default_factory=dict)


class SteerParts:
    """The latest report of each host, as far as it has come."""

    def __init__(self) -> None:
        self._begun: dict[str, _Begun] = {}

    def hear(self, report: SteerReport) -> SteerReport | None:
        """The whole report, once all of it is there; parts of an earlier number are let go of."""
        if report.parts == 1:
            self._begun.pop(report.host, None)
            return report
        begun = self._begun.get(report.host)
        if begun is None or begun.number != report.number:
            begun = self._begun[report.host] = _Begun(report.number)
        begun.parts[report.part] = report
        if begun.parts.keys() != set(range(report.parts)):
            return None
        del self._begun[report.host]
        parts = [begun.parts[number] for number in range(report.parts)]
        return SteerReport(
            host=report.host,
            managed=[steer for part in parts for steer in part.managed],
            by_hand=[steer for part in parts for steer in part.by_hand],
            tcp=None
            if any(part.tcp is None for part in parts)
            else [one for part in parts for one in part.tcp or ()],
        )

    def keep_only(self, hosts: Collection[str]) -> None:
        """Let go of what others have begun to say."""
        for host in self._begun.keys() - set(hosts):
            del self._begun[host]
