"""The published clock line never steps once it is locked."""

from hypothesis import given
from hypothesis import strategies as st

from cwdp.shared.clocksync import ClockLine, slew
from cwdp.shared.clocksync.slew import MAX_SLEW

lines = st.builds(
    ClockLine,
    ref_local_ns=st.integers(0, 10**18),
    offset_ns=st.integers(-(10**18), 10**18),
    offset_frac_ns=st.floats(-0.5, 0.5),
    drift=st.floats(-1e-4, 1e-4),
)


@given(lines, st.integers(-(10**6), 10**6), st.integers(0, 10**9), st.floats(-1e-4, 1e-4))
def test_no_step_and_a_bounded_rate(current: ClockLine, away_ns: int, later_ns: int, drift: float) -> None:
    now = current.ref_local_ns + later_ns
    here = current.at(now)
    target = ClockLine(now, here.offset_ns + away_ns, here.offset_frac_ns, drift)
    line = slew(current, target, now)
    assert abs(line.minus_ns(current, now)) < 1e-6
    assert abs(line.drift - target.drift) <= MAX_SLEW * (1 + 1e-9)


@given(lines, st.integers(-400_000, 400_000))
def test_meets_its_target_in_the_slew_time(current: ClockLine, away_ns: int) -> None:
    now = current.ref_local_ns
    target = ClockLine(now, current.offset_ns + away_ns, current.offset_frac_ns, current.drift)
    line = slew(current, target, now)
    assert abs(line.minus_ns(target, now + 10**9)) < 0.01


@given(lines, st.integers(0, 10**9))
def test_the_first_lock_steps(target: ClockLine, later_ns: int) -> None:
    line = slew(None, target, target.ref_local_ns + later_ns)
    assert abs(line.minus_ns(target, target.ref_local_ns + later_ns)) < 1e-6
