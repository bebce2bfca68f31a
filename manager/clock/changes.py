"""What is told of clocks that change: which, by how much, for how long, and why one is set aside. No I/O."""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from cwdp.shared.bus.messages import ClockState
from cwdp.shared.clocksync.timeline.track import HostClocks, HostState
from manager.clock.disciplines import LATELY_S, Disciplines
from manager.clock.timeline import NS_PER_S

Widened = Literal["clock_changed", "allowance", "out_of_touch"]

MANY_CHANGES = 60
MUCH_MOVED_PPB = 200_000.0
LONGEST_UNNOTICED_S = 5.0
TIME_OF_CHANGE_S = 0.3
"""So far may the time since when a clock goes otherwise be off: what a new rate leads to in it is no jump."""

LEAST_JUMP_NS = 1_000.0
_NORMAL = (HostState.SYNCED, HostState.HOLDOVER)


@dataclass(frozen=True, slots=True)
class Note:
    """Something to tell people of a host's clock."""

    host: str
    kind: str
    detail: str


@dataclass(frozen=True, slots=True)
class _Line:
    """A clock against the timeline: global - local is g + frac + drift * (local - ref)."""

    ref_local_ns: int
    g_ns: int
    frac_ns: float
    drift: float
    bound_ns: float
    bound_growth: float

    @classmethod
    def of(cls, clocks: HostClocks, slot: int) -> "_Line":
        """The line of one host."""
        return cls(
            int(clocks.ref_local_ns[slot]),
            int(clocks.offset_ns[slot]),
            float(clocks.offset_frac_ns[slot]),
            float(clocks.drift[slot]),
            float(clocks.bound_ns[slot]),
            float(clocks.bound_growth[slot]),
        )

    def ahead_ns(self, local_ns: int, base_ns: int) -> float:
        """Global - local - `base_ns` when the clock shows `local_ns`."""
        return (self.g_ns - base_ns) + self.frac_ns + self.drift * (local_ns - self.ref_local_ns)

    def error_ns(self, local_ns: int) -> float:
        """The bound of that."""
        return self.bound_ns + self.bound_growth * abs(local_ns - self.ref_local_ns) / NS_PER_S


@dataclass(slots=True)
class _Change:
    """A clock that goes otherwise since `since_s`, and how it went before; `found_s` is when it was synced again."""

    since_s: float
    since_ns: int
    before: _Line | None
    found_s: float | None = None


class ClockEvents:
    """Follows the solutions. Times ending in `_s` are seconds of the manager's monotonic clock.

    Attributes:
        disciplines: what hosts tell of what disciplines their clocks.
        changes: unannounced changes found since the manager's start.
    """

    def __init__(self) -> None:
        self.disciplines = Disciplines()
        self.changes = 0
        self._open: dict[str, _Change] = {}
        self._causes: dict[str, str] = {}
        self._lately: dict[str, deque[float]] = {}
        self._last: HostClocks | None = None

    @property
    def changing(self) -> int:
        """How many hosts' clocks are being found anew."""
        return len(self._open)

    def follow(
        self, clocks: HostClocks | None, slots: Mapping[str, int], now_s: float, timeline_ns: int | None
    ) -> list[Note]:
        """Take in a solution; what there is to tell of clocks that have changed, or have settled since.

        Args:
            clocks: the newest solution; None where there is none.
            slots: which host has which slot.
            now_s: when that is.
            timeline_ns: what the timeline shows then, if that is known.
        """
        last, self._last = self._last, clocks
        if clocks is None or clocks is last or not (self._open or clocks.changing.any()):
            return []
        notes = []
        for host, slot in slots.items():
            is_changing = slot < len(clocks.changing) and bool(clocks.changing[slot])
            change = self._open.get(host)
            if is_changing and change is None:
                since_ns = int(clocks.changed_ns[slot])
                noticed_s = 0.0 if timeline_ns is None else (timeline_ns - since_ns) / NS_PER_S
                change = self._begin(host, since_ns, _line_before(last, slot), noticed_s, now_s)
                notes.append(Note(host, "clock_changed", self._at_first(host, change, now_s)))
            if change is None:
                continue
            if change.found_s is None and clocks.state[slot] == HostState.SYNCED:
                change.found_s = now_s
            if not is_changing:
                del self._open[host]
                if clocks.state[slot] in _NORMAL:
                    notes.append(
                        Note(host, "clock_found", _in_the_end(change, _Line.of(clocks, slot), now_s))
                    )
        return notes

    def explain(self, host: str, state: ClockState, now_s: float) -> str | None:
        """A host's clock has another state: what may have led to that, where it is set aside."""
        self._causes.pop(host, None)
        if state == "set_aside":
            self._causes[host] = self._cause(host, now_s)
        return self._causes.get(host)

    def widened(
        self, host: str, state: ClockState, bound_ns: float | None, allowance_ns: float
    ) -> Widened | None:
        """Why a host's bound is wider than its measurements alone would make it; None where it is not."""
        if host in self._open:
            return "clock_changed"
        if state == "holdover":
            return "out_of_touch"
        return "allowance" if allowance_ns > 0 and bound_ns is not None else None

    def view(
        self, host: str, state: ClockState, bound_ns: float | None, allowance_ns: float, now_s: float
    ) -> dict[str, Any]:
        """What is told of a host's clock beside where it is: plain data with stable keys and the unit in each."""
        told, change = self.disciplines.of(host), self._open.get(host)
        changed_s = self.disciplines.changed_s_ago(host, now_s)
        return {
            "discipline_source": None if told is None else told.source,
            "discipline_ppb": None if told is None or told.source == "none" else round(told.frequency_ppb, 3),
            "discipline_changes": None if told is None else told.changes,
            "discipline_changed_s": None if changed_s is None else round(changed_s, 3),
            "widened": self.widened(host, state, bound_ns, allowance_ns),
            "clock_changed_s": None if change is None else round(now_s - change.since_s, 3),
            "cause": self._causes.get(host),
        }

    def forget(self, host: str) -> None:
        """Drop a host that is gone for good."""
        self.disciplines.forget(host)
        for kept in (self._open, self._causes, self._lately):
            kept.pop(host, None)
        self._last = None

    def begin_anew(self) -> None:
        """The clocks are solved anew from here on: what was known of their lines holds no more."""
        self._open.clear()
        self._causes.clear()
        self._last = None

    def _begin(
        self, host: str, since_ns: int, before: _Line | None, noticed_s: float, now_s: float
    ) -> _Change:
        age_s = min(max(noticed_s, 0.0), LONGEST_UNNOTICED_S)
        change = self._open[host] = _Change(now_s - age_s, since_ns, before)
        self.changes += 1
        lately = self._lately.setdefault(host, deque(maxlen=1000))
        lately.append(now_s)
        while lately[0] <= now_s - LATELY_S:
            lately.popleft()
        return change

    def _at_first(self, host: str, change: _Change, now_s: float) -> str:
        text = f"its clock has changed unannounced {now_s - change.since_s:.1f} s ago and is being found anew"
        ago_s = self.disciplines.changed_s_ago(host, now_s)
        near = ago_s is not None and ago_s < LONGEST_UNNOTICED_S
        return f"{text}; its discipline changed {ago_s:.1f} s ago" if near else text

    def _cause(self, host: str, now_s: float) -> str:
        """The likeliest of what is known, for people."""
        discipline = self.disciplines.lately(host, now_s)
        if discipline.moved_ppb >= MUCH_MOVED_PPB:
            return f"its discipline moved by {discipline.moved_ppb / 1e3:.0f} ppm in all in the last minute"
        if discipline.changes > MANY_CHANGES:
            return f"its discipline changed {discipline.changes} times in the last minute"
        changes = sum(when_s > now_s - LATELY_S for when_s in self._lately.get(host, ()))
        if changes:
            times = "once" if changes == 1 else f"{changes} times"
            return f"its clock changed unannounced {times} in the last minute"
        return "its clock lies or steps"


def _line_before(last: HostClocks | None, slot: int) -> _Line | None:
    """A host's line by the solution before, if it had one that is worth something."""
    if last is None or slot >= len(last.state) or last.state[slot] not in _NORMAL:
        return None
    return _Line.of(last, slot)


def _in_the_end(change: _Change, after: _Line, now_s: float) -> str:
    parts = []
    if change.before is not None:
        parts.append(_difference(change.before, after, change.since_ns))
    if change.found_s is not None:
        parts.append(f"found again after {change.found_s - change.since_s:.1f} s")
    parts.append(f"settled after {now_s - change.since_s:.1f} s")
    return "; ".join(parts)


def _difference(before: _Line, after: _Line, since_ns: int) -> str:
    """By how much a clock's rate has changed, and how far it has jumped, as far as both stand out from their errors."""
    local_ns = before.ref_local_ns + (since_ns - before.ref_local_ns - before.g_ns)
    faster = (1 + before.drift) / (1 + after.drift) - 1
    jump_ns = before.ahead_ns(local_ns, before.g_ns) - after.ahead_ns(local_ns, before.g_ns)
    error_ns = (
        before.error_ns(local_ns) + after.error_ns(local_ns) + abs(faster) * TIME_OF_CHANGE_S * NS_PER_S
    )
    parts = []
    if abs(faster) * NS_PER_S > before.bound_growth + after.bound_growth:
        parts.append(f"it runs {_ppm(abs(faster))} {'faster' if faster > 0 else 'slower'} than before")
    if abs(jump_ns) > error_ns + LEAST_JUMP_NS:
        parts.append(f"it jumped {'ahead' if jump_ns > 0 else 'back'} by {_duration(abs(jump_ns))}")
    return " and ".join(parts) or "it goes as before, as far as can be told"


def _ppm(rate: float) -> str:
    ppm = rate * 1e6
    return f"{ppm:.1f} ppm" if ppm >= 10 else f"{ppm:.3f} ppm"


def _duration(ns: float) -> str:
    for unit, size in (("s", 1e9), ("ms", 1e6)):
        if ns >= size:
            return f"{ns / size:.3g} {unit}"
    return f"{ns / 1e3:.3g} us"
