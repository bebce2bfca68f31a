"""Local time, the way from there to the timeline, and the lab's clocks, against exact fractions."""

import time
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from machine import Machine, machine
from probes import Probe, reflected, request

from cwdp.agent.clock.timebase import LOOKED_AFTER_NS
from cwdp.dataplane import abi
from cwdp.dataplane.abi import Reason
from cwdp.dataplane.kernel import libbpf
from cwdp.dataplane.loading.loader import Settings
from cwdp.dataplane.pinned import maps
from cwdp.shared import testclock
from cwdp.shared.testclock import TestClock

pytestmark = pytest.mark.kernel

REACH_NS = 1 << 44
FASTEST_Q48 = (1 << 34) - 1
"""61 ppm in units of 2^-48."""
BASE_REACH_NS = 1 << 46
LONGEST_NS = 10**12
"""More than a test takes, however slow the machine: the clock goes on meanwhile."""

Q40, Q48 = 1 << 40, 1 << 48
FASTEST_Q40 = Q40 // 8 - 1
SEQ = 9


def read_line(
    dataplane: Machine, delta_ns: int, drift_q48: int, bound_drift_q48: int = 0
) -> tuple[int, int, int]:
    """Have a reply accepted about delta_ns after the line's reference.

    Returns:
        The exact distance from the reference, the offset that the program used, and the bound.
    """
    now = time.monotonic_ns()
    ref = (now - delta_ns) % 2**64
    dataplane.maps.write_clock(
        ref_local_ns=ref,
        offset_ns=0,
        drift=drift_q48 / Q48,
        bound_ns=7,
        bound_drift=bound_drift_q48 / Q48,
    )
    t1 = now - 10**9
    sent = dataplane.expect_reply(request(seq=SEQ), t1)
    assert dataplane.ingress(reflected(sent, t1, t1, bound_ns=0)).counted == {Reason.REPLY_ACCEPTED: 1}
    slot = dataplane.slot(SEQ)
    distance = int(slot["t4"]) - (now - delta_ns)
    return distance, -int(slot["fwd_owd_ns"]), int(slot["bound_ns"])


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    delta_ns=st.integers(-REACH_NS + LONGEST_NS, REACH_NS - LONGEST_NS),
    drift_q48=st.integers(-FASTEST_Q48, FASTEST_Q48),
)
@example(delta_ns=0, drift_q48=0)
@example(delta_ns=REACH_NS - LONGEST_NS, drift_q48=FASTEST_Q48)
@example(delta_ns=REACH_NS - LONGEST_NS, drift_q48=-FASTEST_Q48)
@example(delta_ns=-REACH_NS + LONGEST_NS, drift_q48=FASTEST_Q48)
@example(delta_ns=-REACH_NS + LONGEST_NS, drift_q48=-FASTEST_Q48)
@example(delta_ns=1, drift_q48=-1)
def test_offset_is_exact(dataplane: Machine, delta_ns: int, drift_q48: int) -> None:
    distance, offset, _ = read_line(dataplane, delta_ns, drift_q48)
    exact = Fraction(distance * drift_q48, Q48)
    assert -1 - Fraction(1, 1 << 32) <= offset - exact <= 0


@pytest.mark.parametrize("delta_ns", [0, 10**9, -(10**9), 3_600 * 10**9, -3_600 * 10**9])
@pytest.mark.parametrize("rate", [0.0, 1e-9, 1e-6, 5e-5])
def test_bound_grows_both_ways(dataplane: Machine, delta_ns: int, rate: float) -> None:
    rate_q48 = round(rate * Q48)
    distance, _, bound = read_line(dataplane, delta_ns, 0, rate_q48)
    assert abs(bound - 7 - Fraction(abs(distance) * rate_q48, Q48)) <= 1


@pytest.mark.parametrize("delta_ns", [REACH_NS, -REACH_NS - LONGEST_NS, 10**16, -(10**16)])
def test_out_of_reach_is_unsynced(dataplane: Machine, delta_ns: int) -> None:
    """Where the product could overflow there is no claim rather than a wrong one."""
    _, offset, bound = read_line(dataplane, delta_ns, FASTEST_Q48)
    assert (offset, bound) == (0, abi.BOUND_UNSYNCED)


def bound_looked_at(dataplane: Machine, since_ns: int, ahead_ns: int) -> int:
    """The bound of a delay while the base line's reference is so far back, on a line that is in reach."""
    mono_ns = time.monotonic_ns() - since_ns
    dataplane.maps.write_base(ref_mono_ns=mono_ns, ahead_ns=ahead_ns, rate=0.0)
    dataplane.maps.write_clock(
        ref_local_ns=mono_ns + ahead_ns, offset_ns=0, drift=0.0, bound_ns=7, bound_drift=0.0
    )
    t1 = mono_ns + ahead_ns - 10**9
    sent = dataplane.expect_reply(request(seq=SEQ), t1)
    assert dataplane.ingress(reflected(sent, t1, t1, bound_ns=0)).counted == {Reason.REPLY_ACCEPTED: 1}
    return int(dataplane.slot(SEQ)["bound_ns"])


@pytest.mark.parametrize("ahead_ns", [0, 10**15, -(10**12)])
def test_a_clock_that_nobody_looks_at_has_no_bound(dataplane: Machine, ahead_ns: int) -> None:
    """What disciplines CLOCK_MONOTONIC may have changed, and whoever would take that out is dead or stopped."""
    assert bound_looked_at(dataplane, 0, ahead_ns) == 7
    assert bound_looked_at(dataplane, LOOKED_AFTER_NS + 1, ahead_ns) == abi.BOUND_UNSYNCED
    assert bound_looked_at(dataplane, -(10**9), ahead_ns) == 7, "a reference that is ahead is no old one"


def test_the_switch_between_lines(dataplane: Machine) -> None:
    for n in range(5):
        dataplane.maps.write_clock(
            ref_local_ns=time.monotonic_ns(), offset_ns=n, drift=0.0, bound_ns=1, bound_drift=0.0
        )
        assert dataplane.maps.read_clock()["offset_ns"] == n
    dataplane.maps.clear_clock()
    assert not dataplane.maps.read_clock()["synced"]


@pytest.mark.parametrize("kind", ["line", "base", "none"])
def test_a_line_is_whole_before_it_is_in_force(
    dataplane: Machine, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Also where stores may be seen in another order than they were made in: there is a barrier between."""
    table = dataplane.maps
    write = {
        "line": lambda n: table.write_clock(
            ref_local_ns=n, offset_ns=n, drift=0.0, bound_ns=1, bound_drift=0.0
        ),
        "base": lambda n: table.write_base(ref_mono_ns=n, ahead_ns=n, rate=0.0),
        "none": lambda _: table.clear_clock(),
    }[kind]
    read = table.read_base if kind == "base" else table.read_clock
    with libbpf.opened(dataplane.pin("clock")) as fd:
        memory = maps.shared(fd, abi.CLOCK)
    write(1)
    before, seen = read(), []
    monkeypatch.setattr(maps, "store_barrier", lambda: seen.append((read(), memory.copy())))
    write(2)
    ((in_force, then),) = seen
    assert in_force == before
    lines, active = ("base_lines", "base_active") if kind == "base" else ("lines", "active")
    assert then[lines][0, 1 - int(then[active][0])] == read()


@pytest.mark.parametrize(
    ("bound_ns", "written"), [(0.0, 0), (41.0, 41), (42.0, 42), (42.1, 43), (1e300, 2**32 - 2)]
)
def test_a_bound_is_rounded_up(dataplane: Machine, bound_ns: float, written: int) -> None:
    dataplane.maps.write_clock(ref_local_ns=1, offset_ns=0, drift=0.0, bound_ns=bound_ns, bound_drift=0.0)
    assert dataplane.maps.read_clock()["bound_ns"] == written


def stamped(dataplane: Machine) -> tuple[int, int, int]:
    """A local time that the program read, between two readings of CLOCK_MONOTONIC."""
    before = time.monotonic_ns()
    t1 = dataplane.egress(request()).dissected[Probe].t1
    return before, t1, time.monotonic_ns()


def test_a_zeroed_record_leaves_the_clock_as_it_is(dataplane: Machine) -> None:
    before, t1, after = stamped(dataplane)
    assert before <= t1 <= after


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    delta_ns=st.integers(-BASE_REACH_NS + LONGEST_NS, BASE_REACH_NS - LONGEST_NS),
    rate_q40=st.integers(-FASTEST_Q40, FASTEST_Q40),
    ahead_ns=st.integers(-(2**50), 2**50),
)
@example(delta_ns=BASE_REACH_NS - LONGEST_NS, rate_q40=FASTEST_Q40, ahead_ns=0)
@example(delta_ns=BASE_REACH_NS - LONGEST_NS, rate_q40=-FASTEST_Q40, ahead_ns=0)
@example(delta_ns=-BASE_REACH_NS + LONGEST_NS, rate_q40=FASTEST_Q40, ahead_ns=-1)
@example(delta_ns=-BASE_REACH_NS + LONGEST_NS, rate_q40=-FASTEST_Q40, ahead_ns=1)
def test_local_time_is_that_of_the_base_line(
    dataplane: Machine, delta_ns: int, rate_q40: int, ahead_ns: int
) -> None:
    ref = (time.monotonic_ns() - delta_ns) % 2**64
    dataplane.maps.write_base(ref_mono_ns=ref, ahead_ns=ahead_ns, rate=rate_q40 / Q40)
    before, t1, after = stamped(dataplane)
    low, high = (
        mono + ahead_ns + Fraction(signed_64(mono - ref) * rate_q40, Q40) for mono in (before, after)
    )
    assert low - 2 <= signed_64(t1) <= high


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(delta_ns=st.integers(-(2**42), 2**42), slow_q40=st.integers(-(2**23), 2**23))
def test_local_time_is_exact_to_the_nanosecond(dataplane: Machine, delta_ns: int, slow_q40: int) -> None:
    """At a rate of nearly nothing the moment of the reading makes no difference."""
    ref = (time.monotonic_ns() - delta_ns) % 2**64
    rate_q40 = slow_q40 - Q40
    dataplane.maps.write_base(ref_mono_ns=ref, ahead_ns=10**18, rate=rate_q40 / Q40)
    before, t1, after = stamped(dataplane)
    low, high = sorted(
        mono + 10**18 + Fraction(signed_64(mono - ref) * rate_q40, Q40) for mono in (before, after)
    )
    assert low - 1 - Fraction(1, 1 << 20) <= t1 <= high


@pytest.mark.parametrize("delta_ns", [BASE_REACH_NS + LONGEST_NS, -BASE_REACH_NS - LONGEST_NS, 2**60])
def test_beyond_the_reach_of_a_base_line_time_goes_on_as_the_monotonic_clock_does(
    dataplane: Machine, delta_ns: int
) -> None:
    ref = (time.monotonic_ns() - delta_ns) % 2**64
    dataplane.maps.write_base(ref_mono_ns=ref, ahead_ns=5, rate=FASTEST_Q40 / Q40)
    before, t1, after = stamped(dataplane)
    reached = int(Fraction(BASE_REACH_NS * FASTEST_Q40, Q40)) * (1 if delta_ns > 0 else -1)
    assert before - 1 <= signed_64(t1) - 5 - reached <= after + 1


def test_the_switch_between_base_lines(dataplane: Machine) -> None:
    for n in range(5):
        dataplane.maps.write_base(ref_mono_ns=1, ahead_ns=n * 10**12, rate=0.0)
        assert dataplane.maps.read_base()["ahead_ns"] == n * 10**12
        before, t1, after = stamped(dataplane)
        assert before <= t1 - n * 10**12 <= after


@pytest.mark.parametrize(
    ("offset_ns", "drift_ppb"), [(0, 0.0), (3_000_000_000, 50_000.0), (-2_000_000_000, -50_000.0)]
)
def test_a_clock_of_the_lab_that_only_drifts(offset_ns: int, drift_ppb: float) -> None:
    """local = mono + offset + (mono - base) * drift, the base an hour ago."""
    base = max(1, time.monotonic_ns() - 3_600 * 10**9)
    with machine(Settings(test_clock=TestClock.constant(base, offset_ns, drift_ppb))) as lab:
        before, t1, after = stamped(lab)
    drift = Fraction(round(drift_ppb * 1e-9 * Q40), Q40)
    low, high = (mono + offset_ns + (mono - base) * drift for mono in (before, after))
    assert low - 1 <= t1 <= high + 1


@pytest.mark.parametrize("begun_steps_ago", [0, 5, 100, 5_000_000])
@pytest.mark.parametrize("seed", range(3))
def test_a_clock_of_the_lab_is_the_same_curve_in_c_and_in_python(begun_steps_ago: int, seed: int) -> None:
    """Rates as fast as a curve may have them, jumps, several steps, and cycles long since gone by."""
    rng = np.random.default_rng(seed)
    steps = 2 ** int(rng.integers(0, 5))
    base = max(1, time.monotonic_ns() - begun_steps_ago * testclock.STEP_NS)
    oscillator, discipline = rng.uniform(-0.05, 0.05, (2, steps))
    clock = TestClock.from_frequencies(
        base, int(rng.integers(-(10**10), 10**10)), oscillator, discipline, rng.uniform(-1e6, 1e6, steps)
    )
    with machine(Settings(test_clock=clock)) as lab:
        for _ in range(20):
            before, t1, after = stamped(lab)
            if (before - base) // testclock.STEP_NS == (after - base) // testclock.STEP_NS:
                assert clock.mono_ns(before) <= t1 <= clock.mono_ns(after)
            time.sleep(0.01)


def test_the_base_line_is_of_the_clock_of_the_lab() -> None:
    """What disciplines the lab's clock is taken out of it, not out of the machine's."""
    now = time.monotonic_ns()
    clock = TestClock.constant(now - 10**9, 10**15, 0.0)
    with machine(Settings(test_clock=clock)) as lab:
        lab.maps.write_base(ref_mono_ns=clock.mono_ns(now), ahead_ns=7, rate=-1.0)
        assert lab.egress(request()).dissected[Probe].t1 == clock.mono_ns(now) + 7


def test_steps_of_a_labs_clock_are_as_long_in_c_as_in_python() -> None:
    assert abi.TEST_CLOCK_STEP_BITS == testclock.STEP_BITS


def signed_64(value: int) -> int:
    """As the programs take it."""
    return (value + 2**63) % 2**64 - 2**63


def test_another_port(dataplane: Machine) -> None:
    with machine(Settings(probe_port=18515)) as other:
        assert other.egress(request()).counted == {Reason.PROBE_BAD_TEMPLATE: 1}
        packet = request()
        packet["UDP"].dport = 18515
        assert other.egress(packet).counted == {Reason.PROBE_SENT: 1}
