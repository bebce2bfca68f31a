"""How far two timelines are apart, from fits: what is combined, what is set aside, how it is followed."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cwdp.shared.clocksync import EdgeFits
from cwdp.shared.clocksync._types import NS_PER_S
from manager.clock.apart import Lines, Measured, measure
from manager.clock.apart_filter import ROUNDS_TO_BELIEVE, AheadFilter

HOSTS, PEERS = 10, 4
SIGMA_NS = 8.0
AHEAD_NS, RATE, NOW_NS = 86_400 * 10**9 + 12_345, 7e-6, 10**15


def _measure(seed: int, wrong: int = 0, by_ns: float = 5_000.0) -> Measured | None:
    """Hosts seconds apart on both sides; the clocks of some there have jumped since their lines were told."""
    rng = np.random.default_rng(seed)
    here, there = (rng.integers(-(10**10), 10**10, HOSTS) for _ in range(2))
    drift_here, drift_there = (rng.uniform(-5e-5, 5e-5, HOSTS) for _ in range(2))
    src = np.repeat(np.arange(HOSTS), PEERS)
    dst = (src + np.tile(np.arange(PEERS), HOSTS)) % HOSTS
    # Each fit is of another moment of this timeline, and each line of some seconds before.
    when = rng.integers(-(10**9), 0, len(src))
    local_here = (NOW_NS - here[src]) + when - np.rint(when * drift_here[src]).astype(np.int64)
    gained = RATE * when
    since_there = when + gained
    local_there = (NOW_NS + AHEAD_NS - there[dst]) + np.rint(since_there * (1 - drift_there[dst])).astype(
        np.int64
    )
    own = _lines(NOW_NS - here, here, drift_here)
    far = _lines(NOW_NS + AHEAD_NS - there, there, drift_there)
    jumped = np.where(dst < wrong, by_ns, 0.0)
    ones = np.ones(len(src))
    fits = EdgeFits(
        ref_ns=local_here,
        offset_ns=local_there - local_here,
        offset_frac_ns=rng.normal(0, SIGMA_NS, len(src)) + jumped,
        slope=(1 - drift_there[dst]) / (1 - drift_here[src]) * (1 + RATE) - 1 + rng.normal(0, 1e-9, len(src)),
        margin_ns=3_000.0 * ones,
        sigma_offset_ns=SIGMA_NS * ones,
        sigma_out_ns=SIGMA_NS * ones,
        sigma_back_ns=SIGMA_NS * ones,
        sigma_slope=1e-8 * ones,
        points=20.0 * ones,
        pure_share=ones,
        reason=np.zeros(len(src), np.uint8),
    )
    return measure(src, dst, fits, own.where(src), far.where(dst))


def _lines(local_ns: np.ndarray, offset_ns: np.ndarray, drift: np.ndarray) -> Lines:
    ones = np.ones(len(local_ns))
    return Lines(local_ns, offset_ns, 0.0 * ones, drift / (1 - drift), 25.0 * ones, 1e-8 * ones)


@given(st.integers(0, 200), st.integers(0, 3), st.sampled_from([-50_000.0, 900.0, 10**8]))
def test_fits_of_many_hosts_tell_it_and_clocks_that_have_jumped_are_set_aside(
    seed: int, wrong: int, by_ns: float
) -> None:
    measured = _measure(seed, wrong, by_ns)
    assert measured is not None
    truth = AHEAD_NS + RATE * (measured.ref_ns - NOW_NS)
    error = (measured.ahead_ns - round(truth)) + measured.frac_ns - (truth - round(truth))
    assert abs(error) < 5 * measured.sigma_ns + 2.0
    assert measured.sigma_ns < 3 * SIGMA_NS
    assert abs(measured.rate - RATE) < 5e-8


def test_where_no_more_than_half_agree_nothing_is_known() -> None:
    assert _measure(1) is not None
    assert _measure(1, HOSTS // 2, 10**9) is None


def _at(time_s: float, ahead_ns: float, sigma_ns: float = SIGMA_NS) -> Measured:
    whole = round(ahead_ns)
    return Measured(round(time_s * NS_PER_S), whole, ahead_ns - whole, sigma_ns, 2.0, RATE, 1e-8)


def test_it_is_followed_at_its_rate_with_less_noise() -> None:
    rng = np.random.default_rng(1)
    truth = [AHEAD_NS + RATE * NS_PER_S * second for second in range(200)]
    followed = AheadFilter(_at(0, truth[0]))
    errors = []
    for second in range(1, 200):
        followed.hear(_at(second, truth[second] + rng.normal(0, SIGMA_NS)))
        ahead_ns, frac_ns = followed.at(round((second + 0.5) * NS_PER_S))
        errors.append((ahead_ns - AHEAD_NS) + frac_ns - RATE * NS_PER_S * (second + 0.5))
        assert abs(errors[-1]) < 5 * np.sqrt(followed.variance) + followed.off_ns
    assert np.std(errors[20:]) < SIGMA_NS
    assert followed.sigma_rate < 1e-7


def test_what_is_found_elsewhere_is_believed_at_the_third_time() -> None:
    followed = AheadFilter(_at(0, 1_000.0))
    for second in range(1, 30):
        followed.hear(_at(second, 1_000.0 + RATE * NS_PER_S * second))
    jump_ns = 10**6
    for number, second in enumerate(range(30, 30 + ROUNDS_TO_BELIEVE), start=1):
        followed.hear(_at(second, jump_ns + RATE * NS_PER_S * second))
        off_ns = jump_ns + RATE * NS_PER_S * second - sum(followed.at(followed.ref_ns))
        if number < ROUNDS_TO_BELIEVE:
            assert followed.is_doubted
            assert abs(off_ns) <= followed.off_ns
    assert not followed.is_doubted
    assert abs(off_ns) < 1


def test_a_measurement_of_no_later_fits_changes_nothing() -> None:
    followed = AheadFilter(_at(5, 1_000.0))
    for again in (5.0, 4.0):
        followed.hear(_at(again, 9_000.0))
    assert followed.at(5 * 10**9) == (1_000, 0.0)


@pytest.mark.parametrize("sigma_ns", [0.0, 1e6])
def test_extreme_errors_are_computed_with(sigma_ns: float) -> None:
    followed = AheadFilter(_at(0, 5.0, sigma_ns))
    followed.hear(_at(1, 5.0 + RATE * NS_PER_S, sigma_ns))
    assert np.isfinite(followed.variance)
