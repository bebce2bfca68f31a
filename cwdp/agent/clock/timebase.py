"""A host's local time: CLOCK_MONOTONIC_RAW and a constant, made of CLOCK_MONOTONIC, which is all that BPF can read.

CLOCK_MONOTONIC is disciplined: chrony, ntpd and ptp4l change its rate. Both clocks count the same oscillator, so
between two changes one less the other is a straight line. A Kalman filter with fading memory follows it (Bar-Shalom et
al., Estimation with Applications to Tracking and Navigation, 2001, ch. 5). Pure logic, without I/O.
"""

import math
from dataclasses import dataclass

REACH_NS = 1 << 46
"""As in `bpf/clock.h`: beyond, a base line's rate holds no more."""

LOOKED_AFTER_NS = 2_000_000_000
"""As in `bpf/clock.h`: so long after an agent has looked at it a clock has a bound."""

MEMORY_NS = 2e9
MOST_FADING = 0.05
SCATTER_NS, SCATTER_LEAST_NS = 5.0, 1.0
SCATTER_SHARE, MEAN_SHARE = 0.02, 0.1
"""Of each reading, in what is known of the scatter and in the mean of how far readings are off."""

LEAST_CHANGE_NS, CHANGE_SIGMAS = 15.0, 5.0
TOLD_NS = 5.0
"""An announced change that can have moved no stamp by more is not worth telling of."""

NOMINAL_SIGMA, UNKNOWN_SIGMA = 1e-6, 1e-3
"""Of a rate that the kernel told, and of one that nobody told."""

ANNOUNCED_SLOP = 1e-6
MOST_DISCIPLINE = 0.12
"""More than Linux lets a clock be disciplined: a tick of 10 ms by a tenth, and 500 ppm (adjtimex(2))."""

FORGOTTEN = 2.0
"""After a surprise the line may be off by so many times of what has been seen."""


@dataclass(frozen=True, slots=True)
class Reading:
    """One look at both clocks.

    Attributes:
        mono_ns, raw_ns: CLOCK_MONOTONIC and CLOCK_MONOTONIC_RAW at one instant.
        nominal: the rate of the first over the second less one, as adjtimex tells it; None where it does not.
    """

    mono_ns: int
    raw_ns: int
    nominal: float | None


@dataclass(frozen=True, slots=True)
class BaseLine:
    """local = mono + ahead + (mono - ref) * rate. All zero: local time is CLOCK_MONOTONIC."""

    ref_mono_ns: int
    ahead_ns: float
    rate: float

    def local_ns(self, mono_ns: int) -> int:
        """Local time when CLOCK_MONOTONIC shows that."""
        return mono_ns + round(self.ahead_at(mono_ns))

    def ahead_at(self, mono_ns: int) -> float:
        """Local time less CLOCK_MONOTONIC when that shows `mono_ns`, in ns."""
        since_ns = min(max(mono_ns - self.ref_mono_ns, -REACH_NS), REACH_NS)
        return self.ahead_ns + since_ns * self.rate


IDENTITY = BaseLine(0, 0.0, 0.0)


@dataclass(frozen=True, slots=True)
class Change:
    """A stretch of local time in which stamps may be wrong, for CLOCK_MONOTONIC's rate was no longer the known one.

    Attributes:
        from_local_ns, to_local_ns: from the last good reading until the change was found.
        error_ns: by how much stamps were ahead at its end.
    """

    from_local_ns: int
    to_local_ns: int
    error_ns: float


@dataclass(slots=True)
class _Line:
    """What is known of CLOCK_MONOTONIC less CLOCK_MONOTONIC_RAW at one instant.

    Attributes:
        distance_ns: the one less the other, less what it was at the first reading.
        slope: its growth per ns of CLOCK_MONOTONIC.
        var_distance, var_slope, cov: variances and covariance of the two.
    """

    distance_ns: float = 0.0
    slope: float = 0.0
    var_distance: float = SCATTER_NS**2
    var_slope: float = UNKNOWN_SIGMA**2
    cov: float = 0.0

    @property
    def frequency(self) -> float:
        """The rate of CLOCK_MONOTONIC over CLOCK_MONOTONIC_RAW less one."""
        return self.slope / (1 - self.slope)

    def wait(self, elapsed_ns: int) -> None:
        """So much later; what is old is forgotten."""
        fading = max(math.exp(-elapsed_ns / MEMORY_NS), MOST_FADING)
        cov = self.cov + self.var_slope * elapsed_ns
        self.distance_ns += self.slope * elapsed_ns
        self.var_distance = (self.var_distance + (self.cov + cov) * elapsed_ns) / fading
        self.var_slope, self.cov = self.var_slope / fading, cov / fading

    def announce(self, by: float, elapsed_ns: int) -> float:
        """The frequency was changed at some moment of the last stretch; returns how far that can have led, in ns."""
        frequency = self.frequency + by
        slope = frequency / (1 + frequency)
        slope_by, self.slope = slope - self.slope, slope
        led_ns = slope_by * elapsed_ns
        self.distance_ns += led_ns / 2
        self.var_distance += led_ns**2 / 12
        self.var_slope += (ANNOUNCED_SLOP * slope_by) ** 2
        return led_ns

    def doubt(self, off_ns: float, elapsed_ns: int) -> None:
        """The distance was off by so much and the slope by what led to that, within the last stretch or at once."""
        self.var_distance += (FORGOTTEN * off_ns) ** 2
        self.var_slope += (FORGOTTEN * off_ns / elapsed_ns) ** 2

    def correct(self, off_ns: float, scatter2: float) -> None:
        """Take in a reading that was off by so much."""
        gain, gain_slope = (each / (self.var_distance + scatter2) for each in (self.var_distance, self.cov))
        self.distance_ns += gain * off_ns
        self.slope += gain_slope * off_ns
        self.var_slope -= gain_slope * self.cov
        self.var_distance *= 1 - gain
        self.cov *= 1 - gain


class TimeBase:
    """Follows CLOCK_MONOTONIC less CLOCK_MONOTONIC_RAW, some tens of times a second.

    Attributes:
        changes: how often the frequency, or the distance, was found to be another than before.
        changed_local_ns: when that was the last time; None for never.
        is_in_doubt: the last reading lay off the line: another one at once tells whether that was an accident.

    Args:
        line: local time goes on from there; None for local time that is CLOCK_MONOTONIC_RAW itself.
        kept_ns: local time less CLOCK_MONOTONIC_RAW when somebody followed them last; it goes before the line, which
            the discipline has moved since, where it is possible. 0 for not known.
    """

    def __init__(self, line: BaseLine | None = IDENTITY, kept_ns: int = 0) -> None:
        self.changes = 0
        self.changed_local_ns: int | None = None
        self.is_in_doubt = False
        self._begin, self._kept_ns = line, kept_ns
        self._first_ns = 0
        self._last: Reading | None = None
        self._known = _Line()
        self._scatter2 = SCATTER_NS**2
        self._least_change_ns = CHANGE_SIGMAS * SCATTER_NS
        """No accident of reading is as far off the line."""

        self._mean_off_ns = 0.0
        self.ahead_of_raw_ns: int | None = None if line else 0
        """Local time less CLOCK_MONOTONIC_RAW, the constant; None before the first reading."""

    @property
    def line(self) -> BaseLine:
        """What makes local time of CLOCK_MONOTONIC now."""
        if self._last is None or self.ahead_of_raw_ns is None:
            return self._begin or IDENTITY
        ahead_ns = self.ahead_of_raw_ns - self._first_ns - self._known.distance_ns
        return BaseLine(self._last.mono_ns, ahead_ns, -self._known.slope)

    @property
    def is_kept(self) -> bool:
        """Whether local time goes on as somebody had it who followed the clocks before, not as the line did since."""
        return bool(self._kept_ns) and self.ahead_of_raw_ns == self._kept_ns

    @property
    def frequency(self) -> float:
        """The rate of CLOCK_MONOTONIC over CLOCK_MONOTONIC_RAW less one."""
        return self._known.frequency

    def observe(self, reading: Reading) -> Change | None:
        """Take in a reading; what was wrong since the last one, if anything was."""
        last = self._last
        if last is None or self.ahead_of_raw_ns is None:
            self._start(reading)
            return None
        elapsed_ns = reading.mono_ns - last.mono_ns
        if elapsed_ns <= 0:
            return None
        known = self._known
        off_ns = float(reading.mono_ns - reading.raw_ns - self._first_ns)
        off_ns -= known.distance_ns + known.slope * elapsed_ns
        announced = _announced(last, reading)
        is_off = abs(off_ns) > self._least_change_ns
        if is_off and not announced and not self.is_in_doubt:
            self.is_in_doubt = True
            return None
        self.is_in_doubt = False
        self._last = reading
        known.wait(elapsed_ns)
        if is_off or announced:
            return self._change(last, reading, off_ns, announced)
        self._learn(off_ns, elapsed_ns)
        known.correct(off_ns, self._scatter2)
        return None

    def _change(self, last: Reading, reading: Reading, off_ns: float, announced: float) -> Change | None:
        """The line was off by so much, or its frequency was announced to be another; what to tell of it, if anything."""
        known, elapsed_ns = self._known, reading.mono_ns - last.mono_ns
        led_ns = known.announce(announced, elapsed_ns)
        left_ns = off_ns - led_ns / 2
        is_surprise = abs(left_ns) > self._least_change_ns + abs(
            led_ns
        ) / 2 and left_ns**2 > CHANGE_SIGMAS**2 * (known.var_distance + self._scatter2)
        if is_surprise:
            known.doubt(left_ns, elapsed_ns)
        known.correct(left_ns, self._scatter2)
        from_ns, to_ns = (one.raw_ns + (self.ahead_of_raw_ns or 0) for one in (last, reading))
        if announced or is_surprise:
            self.changes += 1
            self.changed_local_ns = to_ns
        if abs(off_ns) <= self._least_change_ns and abs(led_ns) < TOLD_NS:
            return None
        return Change(from_ns, to_ns + max(0, math.ceil(off_ns)), off_ns)

    def _start(self, reading: Reading) -> None:
        """The first reading: local time goes on as it was."""
        if self._begin is not None:
            self.ahead_of_raw_ns = _ahead_of_raw_ns(self._begin, self._kept_ns, reading)
        self._first_ns = reading.mono_ns - reading.raw_ns
        if reading.nominal is not None:
            slope = reading.nominal / (1 + reading.nominal)
            self._known = _Line(slope=slope, var_slope=NOMINAL_SIGMA**2)
        self._last = reading

    def _learn(self, off_ns: float, elapsed_ns: int) -> None:
        """How far readings scatter; and whether several in a row are off to one side, so that the slope is another."""
        known = self._known
        moved = self._scatter2 + SCATTER_SHARE * (off_ns**2 - known.var_distance - self._scatter2)
        self._scatter2 = max(moved, SCATTER_LEAST_NS**2)
        self._least_change_ns = max(LEAST_CHANGE_NS, CHANGE_SIGMAS * math.sqrt(self._scatter2))
        self._mean_off_ns += MEAN_SHARE * (off_ns - self._mean_off_ns)
        sigma2 = MEAN_SHARE / (2 - MEAN_SHARE) * (self._scatter2 + known.var_distance)
        if self._mean_off_ns**2 > CHANGE_SIGMAS**2 * sigma2:
            known.doubt(self._mean_off_ns, round(elapsed_ns / MEAN_SHARE))
            self._mean_off_ns = 0.0


def _ahead_of_raw_ns(line: BaseLine, kept_ns: int, reading: Reading) -> int:
    """Local time less CLOCK_MONOTONIC_RAW: what was kept, if the discipline can have led from the line to there, to a nanosecond."""
    by_line_ns = line.local_ns(reading.mono_ns) - reading.raw_ns
    led_ns = math.ceil(MOST_DISCIPLINE * abs(reading.mono_ns - line.ref_mono_ns))
    is_possible = kept_ns and abs(kept_ns - by_line_ns) <= led_ns
    return kept_ns if is_possible else by_line_ns


def _announced(last: Reading, reading: Reading) -> float:
    """By how much the kernel tells another frequency than before; 0 for the same, or where it tells none."""
    if reading.nominal == last.nominal or reading.nominal is None or last.nominal is None:
        return 0.0
    return reading.nominal - last.nominal
