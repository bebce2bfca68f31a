"""This host's clock: read locally, and kept on the timeline by slewing."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from cwdp.agent.clock.discipline import Clocks
from cwdp.agent.clock.holdover import RateChanges
from cwdp.agent.clock.timebase import IDENTITY, BaseLine, Change, TimeBase
from cwdp.dataplane.loading.loader import Settings
from cwdp.dataplane.pinned.maps import Q40, Q48, Maps
from cwdp.shared import clocksync
from cwdp.shared.bus.clocks import Discipline, short_id
from cwdp.shared.bus.messages import ClockLine, ClockState, ClockUpdate

VOID: tuple[ClockState, ...] = ("unsynced", "set_aside")
SLEW_S, FOUND_SLEW_S = 0.5, 0.1
STEP_LIMIT_NS = 1_000_000
SILENCE_S = 2.0
UNHEARD_NS = 10_000_000_000
"""For no longer solutions are waited for that an agent's word is in."""

STOOD_STILL_NS = 6_000_000_000
"""For so long solutions may rest on stamps of the time in which an agent stood still."""

LEFT_S = 0.3
LEFT_SURCHARGE = 2.0
MORE_LOOKS = 4
"""After a change what is known of the clock's distance is known by a single reading."""

WRITE_NS, WRITE_EVERY_NS = 1.0, 500_000_000
COMPARE_EVERY = 10
"""The dataplane is given a new base line when that moves local time by more, or when it is as old.

The two are compared after a change, and else at one look of so many."""


@dataclass(frozen=True)
class Published:
    """What the dataplane converts timestamps with now.

    Attributes:
        line: where the clock will go when the slew is over.
        slew, slew_ns: a rate on top, for so long from the line's reference.
        bound_ns, bound_drift: error bound at the reference, and its growth per ns.
    """

    line: clocksync.ClockLine
    slew: float
    slew_ns: int
    bound_ns: float
    bound_drift: float

    def at(self, local_ns: int) -> clocksync.ClockLine:
        """The offset at a local time, as a line with its reference there."""
        slewed_ns = self.slew * min(local_ns - self.line.ref_local_ns, self.slew_ns)
        whole = replace(self.line, offset_frac_ns=self.line.offset_frac_ns + slewed_ns)
        return whole.at(local_ns)


class LocalClock:
    """This host's local time, CLOCK_MONOTONIC_RAW and a constant; the dataplane is told how to make it."""

    def __init__(self, settings: Settings) -> None:
        self._kernel = Clocks(settings.test_clock)
        self._base = TimeBase()
        self._written: BaseLine | None = None
        self._looks, self._changes = COMPARE_EVERY, 0

    def take_up(self, all_maps: Iterable[Maps]) -> None:
        """Begin: go on as an earlier agent did, by CLOCK_MONOTONIC_RAW and its constant if that can be.

        Without a dataplane nothing is kept. Local time is then CLOCK_MONOTONIC_RAW itself, which an agent that is started
        again finds as it was.
        """
        left = [(_base_line(maps), maps.ahead_of_raw_ns) for maps in all_maps]
        line, ahead_of_raw_ns = next((each for each in left if each[0] != IDENTITY), (IDENTITY, 0))
        self._base = TimeBase(line if left else None, ahead_of_raw_ns)
        self._observe()

    def look(self) -> Change | None:
        """Look at the discipline of CLOCK_MONOTONIC: what stamps since the last look may be wrong, if any."""
        change = self._observe()
        if change is not None or self._base.is_in_doubt:
            for _ in range(MORE_LOOKS):
                again = self._observe()
                change = change or again
        return change

    def write(self, all_maps: Iterable[Maps]) -> None:
        """Have these dataplanes make local time as it is made now."""
        line = self._base.line
        self._written = line
        for maps in all_maps:
            maps.write_base(ref_mono_ns=line.ref_mono_ns, ahead_ns=round(line.ahead_ns), rate=line.rate)
            maps.ahead_of_raw_ns = self.ahead_of_raw_ns or 0

    def has_moved(self) -> bool:
        """Whether dataplanes should be told anew; asked after each look. It takes a change, or time, to move a line."""
        self._looks += 1
        if self._looks < COMPARE_EVERY and self._base.changes == self._changes:
            return False
        self._looks, self._changes = 0, self._base.changes
        line, written = self._base.line, self._written
        if written is None or line.ref_mono_ns - written.ref_mono_ns > WRITE_EVERY_NS:
            return True
        return abs(line.ahead_ns - written.ahead_at(line.ref_mono_ns)) > WRITE_NS

    def now_ns(self) -> int:
        """The time now."""
        if self._base.ahead_of_raw_ns is None:
            self._observe()
        ahead_ns = self._base.ahead_of_raw_ns
        if ahead_ns is None or self._kernel.source == "none":
            return self._base.line.local_ns(self._kernel.mono_ns())
        return self._kernel.raw_ns() + ahead_ns

    @property
    def is_kept(self) -> bool:
        """Whether local time goes on as an earlier agent had it."""
        return self._base.is_kept

    @property
    def ahead_of_raw_ns(self) -> int | None:
        """Local time less CLOCK_MONOTONIC_RAW; None where that is not readable, and local time CLOCK_MONOTONIC."""
        return None if self._kernel.source == "none" else self._base.ahead_of_raw_ns

    def discipline(self) -> Discipline:
        """What disciplines CLOCK_MONOTONIC, as a message."""
        changed_ns = self._base.changed_local_ns
        return Discipline(
            source=self._kernel.source,
            frequency_ppb=self._base.frequency * 1e9,
            changes=self._base.changes,
            changed_s_ago=None if changed_ns is None else (self.now_ns() - changed_ns) * 1e-9,
            kept=self._base.is_kept,
        )

    def _observe(self) -> Change | None:
        reading = self._kernel.read()
        return None if reading is None else self._base.observe(reading)


def _base_line(maps: Maps) -> BaseLine:
    record = maps.read_base()
    return BaseLine(int(record["ref_mono_ns"]), float(record["ahead_ns"]), float(record["rate_q40"]) / Q40)


class HostClock:
    """Follows the manager's solutions: the first is taken as it is, later ones are approached by slewing.

    A line found in the maps, left by an earlier agent, is taken up. Without word from the manager the last
    line goes on, and its bound grows, the faster the longer that lasts; so it does while the manager tells lines that nobody
    has measured, as of a host whose link is cut.

    Where local time goes on as an earlier agent had it, solutions count once this one's word is in them: others found stamps that
    nobody had freed of the discipline. So they do after an agent stood still.

    Args:
        clock: this host's.
        boot_id: this agent's.
    """

    def __init__(self, clock: LocalClock, boot_id: str) -> None:
        self._clock, self._agent = clock, short_id(boot_id)
        self._known_from_ns, self._alone_until_ns = 0, clocksync.LONG_AGO
        self._target: ClockLine | None = None
        self._target_came_ns = 0
        self._measured_ns: int | None = None
        self._timeline: str | None = None
        self._left_ns, self._left_rate, self._left_at_ns = 0, 0.0, clocksync.LONG_AGO
        self._rate_changes = RateChanges()
        self.published: Published | None = None

    @property
    def state(self) -> ClockState:
        """What the host's clock is good for."""
        if self._target is not None and self._target.state in VOID:
            return self._target.state
        if self.published is None:
            return "unsynced"
        now_ns = self._clock.now_ns()
        silent = now_ns - self._target_came_ns > SILENCE_S * 1e9
        if self._target is None or silent or self._is_off_line(now_ns):
            return "holdover"
        return self._target.state

    def leave_line(self, since_ns: int, rate: float) -> None:
        """This host's clock has changed: its line holds only within what it leaves it by, until it is found anew.

        Args:
            since_ns: on this host's clock, when it began to.
            rate: how fast at least, dimensionless.
        """
        self._left_ns, self._left_rate = since_ns, LEFT_SURCHARGE * rate
        self._left_at_ns = self._clock.now_ns()

    def stood_still(self) -> None:
        """Nobody freed this host's stamps of the discipline for a while: its line holds, solutions of that time do not."""
        self._alone_until_ns = self._clock.now_ns() + STOOD_STILL_NS

    def _is_off_line(self, now_ns: int) -> bool:
        """Whether the clock has changed too lately to have been found anew, or nobody has had word of it since."""
        return now_ns - self._left_at_ns < LEFT_S * 1e9 or self._target_came_ns < self._left_at_ns

    def take_up(self, maps: Maps) -> None:
        """Go on from the line in a NIC's map, unless there is one already."""
        record = maps.read_clock()
        if self.published is not None or not record["synced"]:
            return
        if self._clock.is_kept:
            self._known_from_ns = self._clock.now_ns() + UNHEARD_NS
        line = clocksync.ClockLine(
            int(record["ref_local_ns"]), int(record["offset_ns"]), 0.0, float(record["drift_q48"]) / Q48
        )
        slew, bound_drift = (float(record[name]) / Q48 for name in ("slew_q48", "bound_drift_q48"))
        self.published = Published(line, slew, int(record["slew_ns"]), float(record["bound_ns"]), bound_drift)

    def follow(self, update: ClockUpdate) -> None:
        """Take in the manager's latest solution, if it is of this agent's time."""
        if update.agent == self._agent:
            self._known_from_ns = 0
        elif update.agent is not None and self._clock.now_ns() < self._known_from_ns:
            return
        if self.published is not None and self._clock.now_ns() < self._alone_until_ns:
            return
        new_timeline = self._timeline is not None and update.timeline != self._timeline
        self._timeline = update.timeline
        self._target, self._target_came_ns = update.line, self._clock.now_ns()
        if update.line.state in VOID:
            return
        if update.line.state == "synced":
            self._rate_changes.hear(update.line.ref_local_ns, update.line.drift)
        if update.line.state == "synced" or self._measured_ns is None:
            self._measured_ns = update.line.ref_local_ns
        target = _line(update.line)
        if self.published is not None:
            here = self.published.at(self._target_came_ns)
            behind = abs(target.minus_ns(here, self._target_came_ns))
            if new_timeline or behind > STEP_LIMIT_NS:
                self.published = None

    def offset_ns(self) -> int | None:
        """What the timeline shows now, less this host's clock; None while that is not known."""
        if self.published is None or self.state in VOID:
            return None
        return self.published.at(self._clock.now_ns()).offset_ns

    def local_ns(self, timeline_ns: int) -> int | None:
        """What this host's clock showed at a time of the timeline of late; None while that is not known."""
        if self.published is None:
            return None
        guess_ns = timeline_ns - self.published.line.offset_ns
        return timeline_ns - self.published.at(guess_ns).offset_ns

    def write(self, all_maps: list[Maps]) -> None:
        """Move the published line on and give it to the dataplane of every NIC."""
        if self._target is not None and self._target.state not in VOID:
            self.published = self._approach(self._target, self._clock.now_ns())
        if self.published is None or self.state in VOID:
            for maps in all_maps:
                maps.clear_clock()
            return
        for maps in all_maps:
            maps.write_clock(
                ref_local_ns=self.published.line.ref_local_ns,
                offset_ns=self.published.line.offset_ns + round(self.published.line.offset_frac_ns),
                drift=self.published.line.drift,
                slew=self.published.slew,
                slew_ns=self.published.slew_ns,
                bound_ns=self.published.bound_ns,
                bound_drift=self.published.bound_drift,
            )

    def _approach(self, target: ClockLine, now_ns: int) -> Published:
        goal = _line(target).at(now_ns)
        here = self.published.at(now_ns) if self.published else None
        line = clocksync.slew(here, goal, now_ns, FOUND_SLEW_S if target.found_anew else SLEW_S)
        slew = line.drift - goal.drift
        behind_ns = goal.minus_ns(line, now_ns)
        slew_ns = round(behind_ns / slew) if slew else 0
        left = self._left_rate if self._is_off_line(now_ns) else 0.0
        age_ns = max(now_ns - target.ref_local_ns, 0)
        measured_ns = target.ref_local_ns if self._measured_ns is None else self._measured_ns
        off_ns, off_drift = self._rate_changes.off_ns(max(now_ns - measured_ns, 0))
        bound_ns = target.bound_ns + target.bound_drift * age_ns + off_ns + abs(behind_ns)
        bound_ns += left * (now_ns - self._left_ns)
        bound_drift = target.bound_drift + off_drift + left
        return Published(replace(line, drift=goal.drift), slew, slew_ns, bound_ns, bound_drift)

    def report(self) -> ClockLine | None:
        """The published line as a message, as it stands now."""
        if self.published is None:
            return None
        now_ns = self._clock.now_ns()
        line, age_ns = self.published.at(now_ns), now_ns - self.published.line.ref_local_ns
        return ClockLine(
            ref_local_ns=now_ns,
            offset_base_ns=line.offset_ns,
            offset_ns=line.offset_frac_ns,
            drift=line.drift,
            bound_ns=self.published.bound_ns + self.published.bound_drift * abs(age_ns),
            bound_drift=self.published.bound_drift,
            state=self.state,
        )


def _line(message: ClockLine) -> clocksync.ClockLine:
    return clocksync.ClockLine(message.ref_local_ns, message.offset_base_ns, message.offset_ns, message.drift)
