"""Growth is told from noise, robustly, and what cannot be told is not claimed."""

import numpy as np
import pytest
from numpy.typing import NDArray

from tools.soak.trend import trend

Floats = NDArray[np.float64]
HALF_H = 1800.0
MIB = 2.0**20


def held(
    per_h: float, seconds: float, *, seed: int, noise: float = 0.001, level: float = 80 * MIB
) -> tuple[Floats, Floats]:
    """Memory of a process that grows by a share an hour, sampled every 5 s."""
    rng = np.random.default_rng(seed)
    times_s = np.arange(0.0, seconds, 5.0)
    values = level * (1 + per_h * times_s / 3600.0 + noise * rng.standard_normal(len(times_s)))
    return times_s, values


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(
    ("per_h", "verdict"), [(0.0, "flat"), (-0.2, "flat"), (0.1, "grows"), (0.5, "grows")]
)
def test_growth_is_told_from_noise(per_h: float, verdict: str, seed: int) -> None:
    found = trend([held(per_h, HALF_H, seed=seed)])
    assert found is not None
    assert found.verdict == verdict
    assert found.low_per_h <= found.per_h <= found.high_per_h
    of_median = per_h / (1 + per_h * HALF_H / 2 / 3600.0)
    assert found.per_h == pytest.approx(of_median, abs=0.006)


@pytest.mark.parametrize("seed", range(5))
def test_a_few_peaks_are_no_growth(seed: int) -> None:
    times_s, values = held(0.0, HALF_H, seed=seed)
    values[-40:-28] *= 1.5
    found = trend([(times_s, values)])
    assert found is not None
    assert found.verdict == "flat"


def test_what_is_constant_is_flat() -> None:
    times_s = np.arange(0.0, 900.0, 5.0)
    found = trend([(times_s, np.full(len(times_s), 17.0)), (times_s, np.full(len(times_s), 21.0))])
    assert found is not None
    assert (found.per_h, found.low_per_h, found.high_per_h) == (0.0, 0.0, 0.0)
    assert found.verdict == "flat"


def test_processes_of_different_sizes_are_one_role() -> None:
    series = [held(0.1, HALF_H, seed=1, level=50 * MIB), held(0.1, HALF_H, seed=2, level=200 * MIB)]
    alone, together = trend(series[:1]), trend(series)
    assert alone is not None
    assert together is not None
    assert together.per_h == pytest.approx(0.1, abs=0.005)
    assert together.high_per_h - together.low_per_h < alone.high_per_h - alone.low_per_h


def test_too_short_a_time_tells_nothing() -> None:
    found = trend([held(0.05, 100.0, seed=3)])
    assert found is not None
    assert found.verdict == "open"
    brief = trend([held(0.0, 10.0, seed=3)])
    assert brief is not None
    assert brief.verdict == "open"
    assert trend([(np.zeros(0), np.zeros(0))]) is None


def test_a_process_that_has_taken_another_ones_place_is_not_its_growth() -> None:
    times_s, values = held(0.0, 900.0, seed=4)
    found = trend([(times_s, values), (times_s + 900.0, values * 1.3)])
    assert found is not None
    assert found.verdict == "flat"
