"""What clocks that change again and again are expected to do before the next change is seen."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cwdp.shared.clocksync._types import F64, NS_PER_S
from cwdp.shared.clocksync.timeline.pastchanges import PastChanges

S = round(NS_PER_S)
PPM_NS = 1000.0
HOSTS = 6


def changed(past: PastChanges, host: int, by_ppm: float, at_s: float) -> None:
    rows = np.arange(HOSTS) == host
    past.note(rows, np.full(HOSTS, by_ppm * PPM_NS), round(at_s * S))


def expected_ns(past: PastChanges, at_s: float) -> F64:
    return past.expected_ns(round(at_s * S))


def test_clocks_at_rest_are_expected_to_stay() -> None:
    past = PastChanges(HOSTS)
    assert not expected_ns(past, 100).any()
    for host in range(HOSTS):
        changed(past, host, 50.0, 100)
    assert not expected_ns(past, 101).any()


def test_a_clock_that_changes_again_and_again_is_expected_to_go_on_so() -> None:
    past = PastChanges(HOSTS)
    for at_s in (100, 116):
        changed(past, 2, 10.0, at_s)
    expected = expected_ns(past, 120)
    assert np.flatnonzero(expected).tolist() == [2]
    # Half a second of what it did, and not many times that.
    assert 10 * PPM_NS * 0.5 < expected[2] < 10 * PPM_NS * 3
    assert not expected_ns(past, 300).any()


@settings(max_examples=20)
@given(st.integers(0, 10**6), st.floats(0.01, 50.0))
def test_the_next_change_is_mostly_within_what_is_expected(seed: int, sigma_ppm: float) -> None:
    rng = np.random.default_rng(seed)
    past, held = PastChanges(200), []
    every = np.ones(200, bool)
    for turn in range(40):
        by_ns = rng.normal(0, sigma_ppm * PPM_NS, 200)
        if turn > 3:
            held.append(np.abs(by_ns) * 0.6 < past.expected_ns(turn * 16 * S))
        past.note(every, by_ns, turn * 16 * S)
    assert np.mean(held) > 0.95
    assert past.expected_ns(40 * 16 * S).max() < 6 * sigma_ppm * PPM_NS


def test_one_that_has_changed_little_so_far_may_do_as_others() -> None:
    past = PastChanges(HOSTS)
    for host, by_ppm in ((0, 1.0), (1, 1.0), (2, 1.0), (3, 0.01), (3, 0.01)):
        changed(past, host, by_ppm, 100 + host)
        changed(past, host, -by_ppm, 110 + host)
    expected = expected_ns(past, 115)
    assert expected[3] == pytest.approx(expected[0])
    assert not expected[4:].any()


def test_slots_are_cleared_added_and_dropped() -> None:
    past = PastChanges(HOSTS)
    for host in (1, 4):
        changed(past, host, 1.0, 100)
        changed(past, host, 1.0, 101)
    past.clear(np.array([1]))
    assert np.flatnonzero(expected_ns(past, 102)).tolist() == [4]
    assert np.flatnonzero(expected_ns(past.resized(9), 102)).tolist() == [4]
    assert not expected_ns(past.resized(4), 102).any()
