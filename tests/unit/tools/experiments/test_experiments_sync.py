"""What is made of a sync run's samples."""

import numpy as np
import pytest

from tools.experiments.sync import summary


def test_what_is_claimed_in_holdover_is_told_from_what_is_claimed_while_synced() -> None:
    error = np.array([10.0, -30.0, 500.0, 40.0, np.nan])
    bound = np.array([20.0, 20.0, 400.0, 400.0, np.nan])
    synced = np.array([True, True, False, True, False])
    found = summary(error, bound, synced)
    assert found["samples"] == 4
    assert found["unsynced_share"] == pytest.approx(0.2)
    assert found["outside_share"] == 0.5
    assert found["synced_share"] == pytest.approx(0.6)
    assert found["synced_outside_share"] == pytest.approx(1 / 3)


@pytest.mark.parametrize("seed", range(5))
def test_a_host_that_is_always_synced_is_outside_as_often_as_it_claims(seed: int) -> None:
    rng = np.random.default_rng(seed)
    samples = int(rng.integers(1, 1000))
    error, bound = rng.normal(0, 50, samples), rng.uniform(1, 200, samples)
    found = summary(error, bound, np.ones(samples, bool))
    assert (found["samples"], found["synced_share"]) == (samples, 1)
    assert found["synced_outside_share"] == found["outside_share"]


def test_a_host_that_is_never_synced_is_never_wrong_while_synced() -> None:
    found = summary(np.array([10.0, 30.0]), np.array([20.0, 20.0]), np.zeros(2, bool))
    assert (found["synced_share"], found["synced_outside_share"]) == (0, None)
    assert found["outside_share"] == 0.5


def test_what_a_host_without_a_clock_is_said_to_be_claims_no_bound() -> None:
    nothing = np.full(3, np.nan)
    found = summary(nothing, nothing, np.ones(3, bool))
    assert (found["samples"], found["synced_share"], found["synced_outside_share"]) == (0, 0, None)
