"""This host's clock: read locally, and kept on the timeline by slewing."""

import math
import time
from dataclasses import dataclass

from cwdp.dataplane.loader import Settings
from cwdp.dataplane.maps import Maps
from cwdp.shared import clocksync
from cwdp.shared.messages import ClockLine, ClockState, ClockUpdate

VOID: tuple[ClockState, ...] = ("unsynced", "set_aside")
SLEW_S = 0.5
STEP_LIMIT_NS = 1_000_000
SILENCE_S = 2.0


@dataclass(frozen=True)
class Published:
    """What the dataplane converts timestamps with now."""

    line: clocksync.ClockLine
    bound_ns: float
    bound_drift: float


class LocalClock:
    """The clock that the dataplane stamps with, as read in user space."""

    def __init__(self, settings: Settings) -> None:
        self._test = settings.test_clock

    def now_ns(self) -> int:
        """The time now."""
        raw = time.monotonic_ns()
        if self._test is None:
            return raw
        ahead = (raw - self._test.base_ns) * self._test.drift_ppb * 1e-9
        return raw + self._test.offset_ns + math.floor(ahead)


class HostClock:
    """Follows the manager's solutions: the first is taken as it is, later ones are approached by slewing.

    A line found in the maps, left by an earlier agent, is taken up. Without word from the manager the last
    line goes on, and its bound grows.
    """

    def __init__(self, clock: LocalClock) -> None:
        self._clock = clock
        self._target: ClockLine | None = None
        self._target_came_ns = 0
        self._timeline: str | None = None
        self.published: Published | None = None

    @property
    def state(self) -> ClockState:
        """What the host's clock is good for."""
        if self._target is not None and self._target.state in VOID:
            return self._target.state
        if self.published is None:
            return "unsynced"
        silent = self._clock.now_ns() - self._target_came_ns > SILENCE_S * 1e9
        return "holdover" if silent or self._target is None else self._target.state

    def take_up(self, maps: Maps) -> None:
        """Go on from the line in a NIC's map, unless there is one already."""
        record = maps.read_clock()
        if self.published is not None or not record["synced"]:
            return
        line = clocksync.ClockLine(
            int(record["ref_local_ns"]), int(record["offset_ns"]), 0.0, float(record["drift_q48"]) / 2**48
        )
        self.published = Published(line, float(record["bound_ns"]), float(record["bound_drift_q48"]) / 2**48)

    def follow(self, update: ClockUpdate) -> None:
        """Take in the manager's latest solution."""
        new_timeline = self._timeline is not None and update.timeline != self._timeline
        self._timeline = update.timeline
        self._target, self._target_came_ns = update.line, self._clock.now_ns()
        if update.line.state in VOID:
            return
        target = _line(update.line)
        if self.published is not None:
            behind = abs(target.minus_ns(self.published.line, self._target_came_ns))
            if new_timeline or behind > STEP_LIMIT_NS:
                self.published = None

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
                bound_ns=self.published.bound_ns,
                bound_drift=self.published.bound_drift,
            )

    def _approach(self, target: ClockLine, now_ns: int) -> Published:
        goal = _line(target)
        line = clocksync.slew(self.published.line if self.published else None, goal, now_ns, SLEW_S)
        away_ns = abs(goal.minus_ns(line, now_ns))
        age_ns = abs(now_ns - target.ref_local_ns)
        return Published(line, target.bound_ns + target.bound_drift * age_ns + away_ns, target.bound_drift)

    def report(self) -> ClockLine | None:
        """The published line as a message."""
        if self.published is None:
            return None
        line = self.published.line
        return ClockLine(
            ref_local_ns=line.ref_local_ns,
            offset_base_ns=line.offset_ns,
            offset_ns=line.offset_frac_ns,
            drift=line.drift,
            bound_ns=self.published.bound_ns,
            bound_drift=self.published.bound_drift,
            state=self.state,
        )


def _line(message: ClockLine) -> clocksync.ClockLine:
    return clocksync.ClockLine(message.ref_local_ns, message.offset_base_ns, message.offset_ns, message.drift)
