"""The period of a job's iterations, from its bursts."""

import numpy as np
import pytest
from burst_fakes import MS, bursts
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from manager.jobs.rhythm import Rhythm, activity, rhythm

BINS, BIN_NS = 15_000, 2_000_000

LEAST_SEEN = 7
"""Iterations in the window: fewer are no rhythm yet."""


def rhythm_of(sent: NDArray[np.float64]) -> Rhythm | None:
    return rhythm(sent[np.newaxis])


def iterations(
    rng: np.random.Generator, compute_ms: float, send_ms: float, jitter: float, count: int
) -> list[tuple[float, float]]:
    """Bursts of iterations whose computing varies."""
    computed = compute_ms * (1 + rng.uniform(-jitter, jitter, count))
    starts = np.cumsum(computed + send_ms) - send_ms
    return [(start, start + send_ms) for start in starts.tolist()]


def test_bytes_are_spread_over_a_burst() -> None:
    sent = activity(bursts([(0, 8), (1, 1)], size=1000), 20 * MS, 10, BIN_NS)
    assert sent[:4] == pytest.approx([250 + 1000, 250, 250, 250])
    assert sent[4:] == pytest.approx(0.0)
    assert sent.sum() == pytest.approx(2000)


def test_what_lies_before_does_not_count() -> None:
    sent = activity(bursts([(0, 20)], size=1000), 20 * MS, 5, BIN_NS)
    assert sent == pytest.approx(100.0)
    assert activity(bursts([]), 0, 5, BIN_NS) == pytest.approx(np.zeros(5))


@settings(deadline=None, max_examples=100)
@given(
    st.floats(60, 1200),
    st.floats(0.1, 3.0),
    st.floats(0, 0.1),
    st.integers(0, 2**32),
)
def test_a_period_is_found_within_a_hundredth(
    compute_ms: float, ratio: float, jitter: float, seed: int
) -> None:
    spans = iterations(np.random.default_rng(seed), compute_ms, ratio * compute_ms, jitter, 600)
    seen = [span for span in spans if span[1] < BINS * BIN_NS / MS]
    assume(len(seen) >= LEAST_SEEN)
    found = rhythm_of(activity(bursts(seen), round(seen[-1][1] * MS), BINS, BIN_NS))
    starts = np.array([begin for begin, _ in seen])
    assert found is not None
    assert BIN_NS * found.period / MS == pytest.approx(np.diff(starts).mean(), rel=0.01)


def test_two_bursts_of_an_iteration_are_one_period() -> None:
    spans = []
    for i in range(40):
        spans += [(700.0 * i, 700.0 * i + 60), (700.0 * i + 300, 700.0 * i + 500)]
    found = rhythm_of(activity(bursts(spans), 28_000 * MS, 13_500, BIN_NS))
    assert found is not None
    assert BIN_NS * found.period / MS == pytest.approx(700, rel=0.01)


def test_what_has_no_rhythm_has_no_period() -> None:
    rng = np.random.default_rng(1)
    starts = np.cumsum(rng.exponential(200.0, 150))
    assert (
        rhythm_of(activity(bursts([(start, start + 20) for start in starts]), 30_000 * MS, BINS, BIN_NS))
        is None
    )
    assert rhythm_of(np.zeros(BINS)) is None
    assert rhythm_of(np.full(BINS, 7.0)) is None


@settings(deadline=None, max_examples=300)
@given(
    st.integers(1, 400), st.integers(0, 400), st.integers(0, 2**32), st.sampled_from([0.0, 0.01, 0.2, 1.0])
)
def test_whatever_was_sent_does_no_harm(bins: int, silent: int, seed: int, share: float) -> None:
    """Short, sparse, silent for long before, between or after."""
    rng = np.random.default_rng(seed)
    sent = np.where(rng.random((3, bins + silent)) < share, rng.exponential(1e6, (3, bins + silent)), 0.0)
    sent[:, : silent // 2] = 0.0
    sent[:, bins + silent // 2 :] = 0.0
    found = rhythm(sent)
    if found is not None:
        assert found.period >= 1
        assert (np.diff(found.starts) > 0).all()


def test_a_job_that_has_just_begun_and_pauses() -> None:
    spans = iterations(np.random.default_rng(1), 200, 60, 0.03, 120)
    begun_ms = [
        (a + 12_000 + (6_000 if a > 8_000 else 0), b + 12_000 + (6_000 if a > 8_000 else 0)) for a, b in spans
    ]
    found = rhythm_of(
        activity(bursts([span for span in begun_ms if span[1] < 30_000]), 30_000 * MS, BINS, BIN_NS)
    )
    assert found is not None
    assert float(np.median(np.diff(found.starts))) * BIN_NS / MS == pytest.approx(260, rel=0.02)


@pytest.mark.parametrize("new", [2, 3, 5, 8, 13, 20, 25])
@pytest.mark.parametrize("send_ms", [100, 405, 540, 810])
def test_iterations_of_another_length_are_seen_as_soon_as_they_are_over(send_ms: float, new: int) -> None:
    rng = np.random.default_rng(new)
    before = iterations(rng, 300, 270, 0.03, 60)
    after = iterations(rng, 300, send_ms, 0.03, new)
    later_ms = before[-1][1]
    both = [*before, *((begin + later_ms, end + later_ms) for begin, end in after)]
    until_ms = both[-1][1] + 20
    found = rhythm_of(activity(bursts(both), round(until_ms * MS), BINS, BIN_NS))
    assert found is not None
    begun_ms = until_ms + (found.starts - BINS) * BIN_NS / MS
    assert begun_ms[-new:] == pytest.approx([begin for begin, _ in both[-new:]], abs=3 * BIN_NS / MS)
