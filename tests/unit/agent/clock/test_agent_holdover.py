"""How far a clock goes off its line while nobody measures it: the truth stays within what is allowed for."""

import numpy as np
import pytest

from cwdp.agent.clock.holdover import KEPT_NS, LASTS_S, LEAST, MEASURED_S, SURCHARGE, UNKNOWN, RateChanges
from tools import clocks

S = 1_000_000_000
STEP_S = 0.25
TOLD_EVERY = 2
AWAY_S = (5.0, 10.0, 20.0, 40.0, 90.0)


def told(rates: np.ndarray, steps: int) -> RateChanges:
    """What a host knows that was told its rate twice a second until a step."""
    known = RateChanges()
    for step in range(0, steps, TOLD_EVERY):
        known.hear(round(step * STEP_S * S), float(rates[step]))
    return known


@pytest.mark.parametrize("kind", ["steady", "wander"])
@pytest.mark.parametrize("followed_s", [5.0, 200.0, 1_000.0])
def test_a_clock_that_is_heated_and_cooled_stays_within(kind: clocks.ClockKind, followed_s: float) -> None:
    outside = 0
    cases = 0
    for seed in range(200):
        steps = round((followed_s + max(AWAY_S)) / STEP_S) + 1
        rates = clocks.draw(kind, 1 << 13, STEP_S, np.random.default_rng((7, seed))).oscillator[:steps]
        begin = round(followed_s / STEP_S)
        known = told(rates, begin)
        gone_ns = (rates[begin:] - rates[begin - 1]).cumsum() * STEP_S * S
        for away_s in AWAY_S:
            cases += 1
            off_ns, _ = known.off_ns(round(away_s * S))
            outside += abs(gone_ns[round(away_s / STEP_S) - 1]) > off_ns + 30.0
    assert outside <= 0.01 * cases


def test_nothing_is_added_while_a_line_is_fresh() -> None:
    assert RateChanges().off_ns(round(MEASURED_S * S)) == (0.0, 0.0)


def test_what_is_added_grows_as_it_says_and_ever_faster_until_a_rate_changes_no_more() -> None:
    known = RateChanges()
    ages_ns = [round((MEASURED_S + after_s) * S) for after_s in (1, 2, 10, LASTS_S, 2 * LASTS_S)]
    for age_ns in ages_ns:
        before, now = known.off_ns(age_ns - S // 1000), known.off_ns(age_ns)
        assert now[0] - before[0] == pytest.approx(now[1] * S / 1000, rel=1e-2)
    growth = [known.off_ns(age_ns)[1] for age_ns in ages_ns]
    assert growth == sorted(growth)
    assert growth[-1] == growth[-2] == pytest.approx(UNKNOWN * LASTS_S)


def test_a_steady_clock_is_trusted_once_it_has_been_seen_for_long() -> None:
    known = RateChanges()
    for second in range(KEPT_NS // S):
        known.hear(second * S, 1e-5)
        assert known.fastest == UNKNOWN
    known.hear(KEPT_NS, 1e-5)
    assert known.fastest == LEAST


def test_the_fastest_change_of_late_counts_and_is_forgotten() -> None:
    known = RateChanges()
    for second in range(2 * KEPT_NS // S):
        known.hear(second * S, 1e-6 if 300 <= second < 310 else 0.0)
        if 310 <= second < 800:
            assert known.fastest == pytest.approx(SURCHARGE * 1e-7)
    assert known.fastest == LEAST
