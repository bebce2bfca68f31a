"""From a host's clock to the timeline, and the lab's clocks, against exact fractions."""

import time
from fractions import Fraction

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from machine import Machine, machine
from probes import Probe, reflected, request

from cwdp.dataplane import abi, loader
from cwdp.dataplane.abi import Reason
from cwdp.dataplane.loader import Settings

pytestmark = pytest.mark.kernel

REACH_NS = 1 << 44
FASTEST_Q48 = (1 << 34) - 1
"""61 ppm in units of 2^-48."""
Q48 = 1 << 48
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


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    delta_ns=st.integers(-REACH_NS + 10**9, REACH_NS - 10**9),
    drift_q48=st.integers(-FASTEST_Q48, FASTEST_Q48),
)
@example(delta_ns=0, drift_q48=0)
@example(delta_ns=REACH_NS - 10**9, drift_q48=FASTEST_Q48)
@example(delta_ns=REACH_NS - 10**9, drift_q48=-FASTEST_Q48)
@example(delta_ns=-REACH_NS + 10**9, drift_q48=FASTEST_Q48)
@example(delta_ns=-REACH_NS + 10**9, drift_q48=-FASTEST_Q48)
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


@pytest.mark.parametrize("delta_ns", [REACH_NS, -REACH_NS - 10**9, 10**16, -(10**16)])
def test_out_of_reach_is_unsynced(dataplane: Machine, delta_ns: int) -> None:
    """Where the product could overflow there is no claim rather than a wrong one."""
    _, offset, bound = read_line(dataplane, delta_ns, FASTEST_Q48)
    assert (offset, bound) == (0, abi.BOUND_UNSYNCED)


def test_the_switch_between_lines(dataplane: Machine) -> None:
    for n in range(5):
        dataplane.maps.write_clock(
            ref_local_ns=time.monotonic_ns(), offset_ns=n, drift=0.0, bound_ns=1, bound_drift=0.0
        )
        assert dataplane.maps.read_clock()["offset_ns"] == n
    dataplane.maps.clear_clock()
    assert not dataplane.maps.read_clock()["synced"]


@pytest.mark.parametrize(
    ("bound_ns", "written"), [(0.0, 0), (41.0, 41), (42.0, 42), (42.1, 43), (1e300, 2**32 - 2)]
)
def test_a_bound_is_rounded_up(dataplane: Machine, bound_ns: float, written: int) -> None:
    dataplane.maps.write_clock(ref_local_ns=1, offset_ns=0, drift=0.0, bound_ns=bound_ns, bound_drift=0.0)
    assert dataplane.maps.read_clock()["bound_ns"] == written


@pytest.mark.parametrize(
    ("offset_ns", "drift_ppb"), [(0, 0.0), (3_000_000_000, 50_000.0), (-2_000_000_000, -50_000.0)]
)
def test_a_clock_of_the_lab(offset_ns: int, drift_ppb: float) -> None:
    """local = raw + offset + (raw - base) * drift, the base an hour ago."""
    base = max(1, time.monotonic_ns() - 3_600 * 10**9)
    with machine(Settings(test_clock=loader.TestClock(base, offset_ns, drift_ppb))) as lab:
        before = time.monotonic_ns()
        t1 = lab.egress(request()).dissected[Probe].t1
        after = time.monotonic_ns()
    drift = Fraction(round(drift_ppb * 1e-9 * Q48), Q48)
    low, high = (raw + offset_ns + (raw - base) * drift for raw in (before, after))
    assert low - 1 <= t1 <= high + 1


def test_another_port(dataplane: Machine) -> None:
    with machine(Settings(probe_port=18515)) as other:
        assert other.egress(request()).counted == {Reason.PROBE_BAD_TEMPLATE: 1}
        packet = request()
        packet["UDP"].dport = 18515
        assert other.egress(packet).counted == {Reason.PROBE_SENT: 1}
