"""What the planner has asked for and when, which it remembers between two steps, and what hosts say is steered."""

import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from cwdp.shared.bus.messages import SteerQp, SteerReport
from manager.planner.candidates import Choices
from manager.planner.flows import QpName

IDLE_S = 15.0
REFUSED_S = 60.0
APPLIED_AFTER_S = 10.0
MOST_ENTRIES = 1_000_000

CLEAR_S = 2.0
"""So long after the last queue on its way a queue pair's rate may still be on the rise, and smoothed."""

CALM_RESTS = 3.0
"""Left alone for so many of its rests, a queue pair is moved as freely again as one that never was."""

MOST_RESTS = 16
"""The longest rest, in those after a first move."""


@dataclass(kw_only=True)
class Entry:
    """One queue pair. Times are seconds of the manager's monotonic clock.

    Attributes:
        first_s, active_s: when it was first and last seen to send.
        told_s: how many seconds its NIC's reports told of when it was first found not to send; None while it does.
        sport, backup_sport: what its host was told; no port: nothing.
        asked_s: when that was.
        moved_s: when it was moved last of the planner's own accord.
        rest_s: for so long from then it is left alone.
        refused_s: until when its host is taken not to do as it is told.
        rate_bps: smoothed, NaN while unknown.
        clear_s: since when no queue was on its way, in the future while one may be.
        choices: those by which its backup was found to be as good as can be.
    """

    first_s: float
    active_s: float
    told_s: float | None = None
    sport: int | None = None
    backup_sport: int | None = None
    asked_s: float = -math.inf
    moved_s: float = -math.inf
    rest_s: float = 0.0
    refused_s: float = -math.inf
    rate_bps: float = math.nan
    clear_s: float = math.inf
    choices: Choices | None = None

    def port(self, seen: int, now_s: float) -> int:
        """The port of its primary path: as it was told, or as was seen where it does not do so."""
        return seen if self.sport is None or self.refused_s > now_s else self.sport

    def idle_s(self, told_s: float | None) -> float:
        """For how many seconds its NIC, whose reports tell of so many, has told that it does not send."""
        if told_s is None:
            return 0.0
        self.told_s = told_s if self.told_s is None else min(self.told_s, told_s)
        return told_s - self.told_s

    def may_queue(self, queueing: bool, now_s: float) -> bool:
        """Take in whether a queue may be on its way; whether one may have been lately, so that its rate tells of that."""
        self.clear_s = math.inf if queueing else min(self.clear_s, now_s)
        return now_s - self.clear_s < CLEAR_S

    def is_rested(self, now_s: float) -> bool:
        """Whether it may be moved for more room."""
        return now_s - self.moved_s >= self.rest_s

    def move(self, now_s: float, hold_s: float) -> None:
        """It is moved for more room: it rests for `hold_s`, and twice as long each time that this did not last."""
        lasted = now_s - self.moved_s > CALM_RESTS * self.rest_s
        self.rest_s = hold_s if lasted else min(2 * self.rest_s, MOST_RESTS * hold_s)
        self.moved_s = now_s
        self.clear_s = math.inf


class SteeringState:
    """All queue pairs that send or have sent of late."""

    SMOOTHING = 0.5

    def __init__(self) -> None:
        self.entries: dict[QpName, Entry] = {}
        self._by_host: dict[str, set[QpName]] = {}

    def see(self, name: QpName, rate_bps: float, now_s: float) -> Entry:
        """A queue pair sends."""
        entry = self.know(name, now_s)
        entry.active_s, entry.told_s = now_s, None
        if not math.isnan(rate_bps):
            before = rate_bps if math.isnan(entry.rate_bps) else entry.rate_bps
            entry.rate_bps = before + self.SMOOTHING * (rate_bps - before)
        return entry

    def know(self, name: QpName, now_s: float) -> Entry:
        """What is remembered of a queue pair that is thought to send."""
        return self.entries.get(name) or self._add(name, now_s)

    def ask(self, name: QpName, sport: int, backup_sport: int | None, now_s: float) -> bool:
        """Want a queue pair steered so; whether that is new."""
        entry = self.entries[name]
        if (entry.sport, entry.backup_sport) == (sport, backup_sport):
            return False
        entry.sport, entry.backup_sport, entry.asked_s = sport, backup_sport, now_s
        return True

    def adopt(self, host: str, steered: Iterable[SteerQp], now_s: float) -> int:
        """Take up what a host was told by an earlier manager's planner, and no operator's override; how many."""
        taken = 0
        for steer in (steer for steer in steered if not steer.override):
            name = QpName(host, steer.nic, steer.dst_addr, steer.qpn)
            entry = self.entries.get(name)
            if entry is None and len(self.entries) < MOST_ENTRIES:
                entry = self._add(name, now_s)
            if entry is not None and entry.sport is None:
                entry.sport, entry.backup_sport, entry.asked_s = steer.sport, steer.backup_sport, now_s
                taken += 1
        return taken

    def compare(self, host: str, steered: Iterable[SteerQp], now_s: float) -> int:
        """Note what a host was told a while ago and does not do; how many are new."""
        done = {QpName(host, steer.nic, steer.dst_addr, steer.qpn): steer.sport for steer in steered}
        refused = 0
        for name in self._by_host.get(host, ()):
            entry = self.entries[name]
            waited = now_s - entry.asked_s > APPLIED_AFTER_S
            if entry.sport is not None and waited and done.get(name) != entry.sport:
                refused += entry.refused_s < now_s
                entry.refused_s = now_s + REFUSED_S
        return refused

    def release(self, host: str, keep: Iterable[QpName] = ()) -> int:
        """Let go of all that a host was told but for some; how much that was."""
        kept = set(keep)
        held = [name for name in self._by_host.get(host, ()) if name not in kept]
        steered = sum(self.entries[name].sport is not None for name in held)
        for name in held:
            self._drop(name)
        return steered

    def release_idle(self, told_s: Mapping[tuple[str, str], float]) -> list[QpName]:
        """Let go of those that have not sent for long; those of them that were steered.

        Args:
            told_s: how many seconds the reports of each NIC tell of. What it has not told of is no idleness.
        """
        idle = [
            name
            for name, entry in self.entries.items()
            if entry.idle_s(told_s.get((name.host, name.nic))) > IDLE_S
        ]
        steered = [name for name in idle if self.entries[name].sport is not None]
        for name in idle:
            self._drop(name)
        return steered

    def keep_only(self, nics: Collection[tuple[str, str]]) -> set[str]:
        """Let go of the queue pairs of all other NICs; the hosts concerned."""
        lost = [name for name in self.entries if (name.host, name.nic) not in nics]
        for name in lost:
            self._drop(name)
        return {name.host for name in lost}

    def hosts(self) -> Iterator[str]:
        """Hosts of which there is an entry."""
        yield from self._by_host

    def wanted(self, host: str) -> list[SteerQp]:
        """What a host is to be told, in order."""
        return [
            SteerQp(
                nic=name.nic,
                dst_addr=name.dst_addr,
                qpn=name.qpn,
                sport=entry.sport,
                backup_sport=entry.backup_sport,
                flow_label=":" in name.dst_addr,
            )
            for name in sorted(self._by_host.get(host, ()))
            if (entry := self.entries[name]).sport is not None
        ]

    def _add(self, name: QpName, now_s: float) -> Entry:
        entry = self.entries[name] = Entry(first_s=now_s, active_s=now_s)
        self._by_host.setdefault(name.host, set()).add(name)
        return entry

    def _drop(self, name: QpName) -> None:
        del self.entries[name]
        names = self._by_host[name.host]
        names.discard(name)
        if not names:
            del self._by_host[name.host]


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
        )

    def keep_only(self, hosts: Collection[str]) -> None:
        """Let go of what others have begun to say."""
        for host in self._begun.keys() - set(hosts):
            del self._begun[host]
