"""The lab's clocks as curves: against exact fractions, round and round, and in their files."""

from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cwdp.errors import ConfigError
from cwdp.shared import testclock
from cwdp.shared.testclock import RATE_ONE, STEP_NS, Curve, TestClock

BASE_NS = 10**12


def curve(seed: int) -> Curve:
    rng = np.random.default_rng(seed)
    steps = 2 ** int(rng.integers(0, 6))
    rates = rng.integers(-RATE_ONE // 10, RATE_ONE // 10, steps)
    return Curve(rates, rng.integers(-(10**12), 10**12, steps))


def exact_ns(of: Curve, since_ns: int) -> Fraction:
    """The phase by adding up whole steps and what is left of the last."""
    whole, past_ns = divmod(since_ns, STEP_NS)
    cycles, index = divmod(whole, len(of.rate_q40))
    each = [
        Fraction(int(rate) * STEP_NS, RATE_ONE) + Fraction(int(jump), testclock.PHASE_ONE)
        for rate, jump in zip(of.rate_q40, of.jumps_q16, strict=True)
    ]
    jump = Fraction(int(of.jumps_q16[index]), testclock.PHASE_ONE)
    return (
        cycles * sum(each) + sum(each[:index]) + jump + Fraction(int(of.rate_q40[index]) * past_ns, RATE_ONE)
    )


@given(st.integers(0, 50), st.integers(-(2**40), 2**50))
def test_a_curve_is_exact_to_the_nanosecond(seed: int, since_ns: int) -> None:
    of = curve(seed)
    assert 0 <= exact_ns(of, since_ns) - of.ahead_ns(since_ns) < 1 + Fraction(1, testclock.PHASE_ONE)


def test_a_curve_begins_again_and_its_phase_goes_on() -> None:
    of = Curve(np.array([0, RATE_ONE // 100]), np.zeros(2, np.int64))
    ahead = [of.ahead_ns(step * STEP_NS) for step in range(6)]
    assert np.diff(ahead).tolist() == pytest.approx([0, STEP_NS / 100] * 2 + [0], abs=1)
    assert [of.rate(step * STEP_NS) for step in range(4)] == pytest.approx([0, 0.01, 0, 0.01])


@pytest.mark.parametrize("steps", [0, 3])
def test_a_curve_has_a_power_of_two_of_steps(steps: int) -> None:
    with pytest.raises(ValueError, match="a power of two of steps"):
        Curve(np.zeros(steps, np.int64), np.zeros(steps, np.int64))


def test_a_rate_that_no_clock_has_is_refused() -> None:
    with pytest.raises(ValueError, match=r"more than 0\.1"):
        TestClock.constant(1, 0, 2e8)


def test_the_discipline_is_on_top_of_the_oscillator() -> None:
    """All in one step: what both clocks show, and what a kernel would tell."""
    clock = TestClock.from_frequencies(
        BASE_NS, 5_000, np.array([50e-6]), np.array([-20e-6]), np.array([100.0])
    )
    later_ns = BASE_NS + 10**9
    assert clock.mono_ns(later_ns) == pytest.approx(later_ns + 5_000 + 30_000 + 1_500, abs=2)
    assert clock.raw_ns(later_ns, 7) == pytest.approx(7 + 5_000 + 50_000 + 1_500, abs=2)
    rate = clock.nominal(later_ns, 0.0)
    assert rate == pytest.approx(1.000030 / 1.000050 - 1, abs=8e-12)
    assert clock.nominal(later_ns, 1e-4) == pytest.approx(
        1.0001 * 1.00003 / (1 + 1.0001 * 50e-6) - 1, abs=8e-12
    )


def test_a_clock_is_the_same_in_its_file(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    clock = TestClock.from_frequencies(
        BASE_NS, -77, *rng.uniform(-1e-4, 1e-4, (2, 64)), rng.uniform(-9, 9, 64)
    )
    clock.save(tmp_path / "h1.npz")
    found = testclock.load(tmp_path / "h1.npz")
    for later_ns in rng.integers(0, 10**13, 100).tolist():
        now_ns = BASE_NS + later_ns
        assert found.mono_ns(now_ns) == clock.mono_ns(now_ns)
        assert found.raw_ns(now_ns, 3) == clock.raw_ns(now_ns, 3)
    assert [path.name for path in tmp_path.iterdir()] == ["h1.npz"]


@pytest.mark.parametrize("content", [None, b"", b"nothing"])
def test_a_file_that_is_no_clock_is_refused(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "h1.npz"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError, match="is not the clock of a host of a lab"):
        testclock.load(path)
