"""Local time is CLOCK_MONOTONIC_RAW and a constant, whatever disciplines CLOCK_MONOTONIC, as far as readings tell."""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from cwdp.agent.clock.timebase import IDENTITY, REACH_NS, BaseLine, Change, Reading, TimeBase

MS = 1_000_000
S = 1000 * MS
BEGUN_NS = 10**12
SCATTER_NS = 5.0
SETTLED_S = 5.0

Floats = NDArray[np.float64]
Rate = Callable[[Floats], Floats]


@dataclass
class Followed:
    """What became of a run: errors of local time every 5 ms, and what was told.

    Attributes:
        time_s, error_ns: shape (n,); the errors less their median.
        told: changes, and when each was told, in s.
    """

    base: TimeBase
    time_s: Floats
    error_ns: Floats
    told: list[tuple[float, Change]] = field(default_factory=list)

    def rms_ns(self) -> float:
        return float(np.sqrt(np.mean(self.error_ns[self.time_s > SETTLED_S] ** 2)))

    def worst_outside_ns(self) -> float:
        """The largest error of local time outside the stretches that were told of."""
        wrong = self.time_s < SETTLED_S
        for _, change in self.told:
            from_s, to_s = ((ns - BEGUN_NS) / S for ns in (change.from_local_ns, change.to_local_ns))
            wrong |= (self.time_s >= from_s) & (self.time_s <= to_s)
        return float(np.abs(self.error_ns[~wrong]).max())


def follow(rate: Rate, seconds: float = 60.0, *, nominal: Rate | None = None, seed: int = 0) -> Followed:
    """Readings every 10 to 30 ms of a clock whose frequency is `rate`, in steps of 1 ms."""
    rng = np.random.default_rng(seed)
    time_s = np.arange(round(seconds * 1000)) * 1e-3
    distance_ns = np.append(0.0, np.cumsum(rate(time_s)[:-1] * MS))
    told_rate = None if nominal is None else nominal(time_s)

    def read(index: int) -> Reading:
        raw_ns = BEGUN_NS + index * MS
        mono_ns = raw_ns + distance_ns[index] + rng.normal(0, SCATTER_NS)
        return Reading(round(mono_ns), raw_ns, None if told_rate is None else float(told_rate[index]))

    base, at_s, error_ns, told = TimeBase(), [], [], []
    index = 0
    while index < len(time_s) - 40:
        change = base.observe(read(index))
        if base.is_in_doubt:
            change = base.observe(read(index))
        if change is not None:
            told.append((index * 1e-3, change))
        until = index + int(rng.integers(10, 30))
        assert base.ahead_of_raw_ns is not None
        for later in range(index + 1, until, 5):
            mono_ns = BEGUN_NS + later * MS + distance_ns[later]
            local_ns = mono_ns + base.line.ahead_at(round(mono_ns))
            at_s.append(later * 1e-3)
            error_ns.append(local_ns - (BEGUN_NS + later * MS + base.ahead_of_raw_ns))
        index = until
    errors = np.array(error_ns)
    return Followed(base, np.array(at_s), errors - np.median(errors), told)


def updates(sigma: float, every_s: float) -> Rate:
    """A frequency set anew again and again."""

    def rate(time_s: Floats) -> Floats:
        turn = (time_s // every_s).astype(np.intp)
        return np.asarray(np.random.default_rng(1).normal(0, sigma, int(turn.max()) + 1)[turn])

    return rate


def slews(by: float) -> Rate:
    """A slew of 3 s every 15 s."""
    return lambda time_s: np.where(time_s % 15 > 12, by, 0.0)


def pll(time_s: Floats) -> Floats:
    """1 ms that the kernel's PLL works off (time constant 6): a 256th of what is left each second, unannounced."""
    return 1e-3 / 256 * (1 - 1 / 256) ** np.floor(time_s)


def quiet(time_s: Floats) -> Floats:
    return np.full_like(time_s, 17e-6)


@pytest.mark.parametrize("nominal", [None, quiet])
def test_a_steady_discipline_is_taken_out_to_less_than_a_nanosecond(nominal: Rate | None) -> None:
    run = follow(quiet, nominal=nominal)
    assert run.rms_ns() < 0.7
    assert run.base.changes == 0
    assert run.base.frequency == pytest.approx(17e-6, abs=1e-9)


@pytest.mark.parametrize("sigma", [1e-9, 1e-8, 1e-7, 1e-6])
def test_announced_frequencies_are_exact_at_once(sigma: float) -> None:
    run = follow(updates(sigma, 8.0), nominal=updates(sigma, 8.0))
    assert run.base.changes == 7
    assert run.worst_outside_ns() < 15
    assert run.rms_ns() < 1.5


@pytest.mark.parametrize("sigma", [1e-9, 1e-8, 1e-7, 1e-6])
def test_frequencies_that_nobody_announces_are_found(sigma: float) -> None:
    run = follow(updates(sigma, 8.0))
    assert run.worst_outside_ns() < 60
    assert run.rms_ns() < 4


@pytest.mark.parametrize("by", [2e-5, -5e-4, 0.0833, -0.0833])
@pytest.mark.parametrize("announced", [False, True])
def test_slews_are_told_of_and_over_at_once(by: float, *, announced: bool) -> None:
    run = follow(slews(by), nominal=slews(by) if announced else None)
    assert run.base.changes >= 7
    assert len(run.told) <= 24
    assert run.worst_outside_ns() < 40
    begun_s = [when for when, _ in run.told if when % 15 < 12.1 and when % 15 > 11.9]
    assert len(begun_s) >= 4


def test_a_servo_that_sets_the_frequency_eight_times_a_second_costs_no_stamps() -> None:
    run = follow(updates(2e-8, 1 / 8), nominal=updates(2e-8, 1 / 8))
    assert run.rms_ns() < 1
    assert not run.told


def test_an_offset_that_the_kernel_works_off_by_itself() -> None:
    assert follow(pll).rms_ns() < 5


def test_what_was_off_is_told_with_its_stretch_and_size() -> None:
    run = follow(lambda time_s: np.where(time_s > 30.0, 1e-4, 0.0), 40.0)
    when_s, change = run.told[1] if run.told[0][0] < 1 else run.told[0]
    assert when_s == pytest.approx(30.02, abs=0.02)
    assert BEGUN_NS + 29.97 * S < change.from_local_ns <= BEGUN_NS + 30 * S
    assert change.to_local_ns >= BEGUN_NS + when_s * S - 1
    assert change.error_ns == pytest.approx((when_s - 30.0) * 1e5, abs=150)
    assert run.base.changed_local_ns is not None


def steadily(base: TimeBase, count: int, *, first: int = 0, ahead_ns: int = 0) -> int:
    """So many readings of clocks that run alike; returns the number of the next."""
    for number in range(first, first + count):
        raw_ns = BEGUN_NS + number * 20 * MS
        base.observe(Reading(raw_ns + ahead_ns, raw_ns, 0.0))
    return first + count


def test_one_reading_that_is_off_is_an_accident() -> None:
    base = TimeBase()
    number = steadily(base, 100)
    line, raw_ns = base.line, BEGUN_NS + number * 20 * MS
    assert base.observe(Reading(raw_ns + 4_000, raw_ns, 0.0)) is None
    assert base.is_in_doubt
    assert base.line == line
    assert base.observe(Reading(raw_ns + 1_000, raw_ns + 1_000, 0.0)) is None
    assert (base.is_in_doubt, base.changes) == (False, 0)


@pytest.mark.parametrize("step_ns", [100, -100, 1_000_000, -50_000_000, 10**10])
def test_a_step_of_the_one_clock_against_the_other(step_ns: int) -> None:
    base = TimeBase()
    number = steadily(base, 100)
    raw_ns = BEGUN_NS + number * 20 * MS
    assert base.observe(Reading(raw_ns + step_ns, raw_ns, 0.0)) is None
    change = base.observe(Reading(raw_ns + step_ns + 1_000, raw_ns + 1_000, 0.0))
    if step_ns > -20 * MS:
        assert change is not None
        assert change.error_ns == pytest.approx(step_ns, abs=2)
    steadily(base, 100, first=number + 1, ahead_ns=step_ns)
    later_ns = BEGUN_NS + 300 * 20 * MS
    assert base.line.local_ns(later_ns + step_ns) == pytest.approx(later_ns, abs=200)


def test_a_host_that_was_suspended_goes_on() -> None:
    base = TimeBase()
    number = steadily(base, 200)
    number += 50 * 3_600
    raw_ns = BEGUN_NS + number * 20 * MS
    for later_ns in (0, 1_000):
        base.observe(Reading(raw_ns + later_ns + 30_000_000, raw_ns + later_ns, 0.0))
    steadily(base, 100, first=number + 1, ahead_ns=30_000_000)
    mono_ns = raw_ns + 5 * S + 30_000_000
    assert base.line.local_ns(mono_ns) == pytest.approx(raw_ns + 5 * S, abs=10)


def test_it_begins_as_the_monotonic_clock() -> None:
    base = TimeBase()
    assert base.line == IDENTITY
    base.observe(Reading(BEGUN_NS + 777, BEGUN_NS, 3e-5))
    assert base.ahead_of_raw_ns == 777
    assert base.line.local_ns(BEGUN_NS + 777) == BEGUN_NS + 777
    assert base.frequency == pytest.approx(3e-5)


def test_without_a_line_it_is_the_raw_clock() -> None:
    base = TimeBase(None)
    base.observe(Reading(BEGUN_NS + 777, BEGUN_NS, None))
    assert base.line.local_ns(BEGUN_NS + 777) == BEGUN_NS


@given(st.integers(0, 10**15), st.integers(-(10**12), 10**12), st.floats(-0.09, 0.09))
def test_it_goes_on_from_a_line_to_the_nanosecond(ref_ns: int, ahead_ns: int, rate: float) -> None:
    line = BaseLine(ref_ns, ahead_ns, rate)
    base = TimeBase(line)
    mono_ns = ref_ns + 100 * S
    base.observe(Reading(mono_ns, BEGUN_NS, None))
    assert base.line.local_ns(mono_ns) == pytest.approx(line.local_ns(mono_ns), abs=1)


@given(st.integers(1, 10**13), st.floats(-0.1, 0.1))
def test_it_goes_on_by_what_was_kept_however_the_clock_was_disciplined_since(
    away_ns: int, rate: float
) -> None:
    line, begun_raw_ns = BaseLine(BEGUN_NS, 5_000.0, 1e-6), BEGUN_NS - 10**12
    kept_ns = line.local_ns(BEGUN_NS) - begun_raw_ns
    base = TimeBase(line, kept_ns)
    mono_ns, raw_ns = BEGUN_NS + away_ns, begun_raw_ns + round(away_ns / (1 + rate))
    base.observe(Reading(mono_ns, raw_ns, None))
    assert base.ahead_of_raw_ns == kept_ns
    assert base.line.local_ns(mono_ns) == raw_ns + kept_ns


@pytest.mark.parametrize("off_ns", [-2 * S, 2 * S])
def test_what_was_kept_of_another_clock_is_not_believed(off_ns: int) -> None:
    line = BaseLine(BEGUN_NS, 5_000.0, 1e-6)
    base = TimeBase(line, line.local_ns(BEGUN_NS) - BEGUN_NS + off_ns)
    mono_ns = BEGUN_NS + 10 * S
    base.observe(Reading(mono_ns, BEGUN_NS + 10 * S, None))
    assert base.line.local_ns(mono_ns) == line.local_ns(mono_ns)


def test_a_line_says_nothing_of_rates_beyond_its_reach() -> None:
    line = BaseLine(0, 5.0, 1e-6)
    assert line.ahead_at(2 * REACH_NS) == line.ahead_at(REACH_NS)


def test_readings_that_do_not_go_on_are_left_alone() -> None:
    base = TimeBase()
    steadily(base, 10)
    line = base.line
    assert base.observe(Reading(BEGUN_NS, BEGUN_NS + 5, 0.0)) is None
    assert base.line == line
