"""The edge fit, coded pairs and what an agent remembers of its edges."""

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cwdp.shared.clocksync import (
    EdgeFits,
    EdgeMemory,
    EdgePrior,
    Exchanges,
    FitReason,
    fit_edges,
    group_by_edge,
    pair_purity,
)
from cwdp.shared.clocksync._types import F64, I64

STAMPS = ("t1_ns", "t2_ns", "t3_ns", "t4_ns")
YEAR_NS = 365 * 86_400 * 10**9


def exchanges(
    seed: int,
    *,
    edges: int = 3,
    probes: int = 200,
    seconds: float = 2.0,
    offset_ns: int = 0,
    slope: float = 20e-6,
    noise_ns: float = 0.0,
    queued: float = 0.0,
) -> Exchanges:
    rng = np.random.default_rng(seed)
    shape = (edges, probes)
    t1 = np.sort(rng.uniform(0, seconds * 1e9, shape), axis=1)

    def delay() -> F64:
        return 5000 + rng.exponential(5, shape) + (rng.random(shape) < queued) * rng.exponential(20e3, shape)

    t2 = t1 + delay()
    t3 = t2 + 1000
    t4 = t3 + delay()

    def a(t: F64) -> I64:
        return np.rint(t + noise_ns * rng.standard_normal(shape)).astype(np.int64).ravel()

    def b(t: F64) -> I64:
        return a(t * (1 + slope)) + offset_ns

    one = np.ones(edges * probes)
    return Exchanges(a(t1), b(t2), b(t3), a(t4), np.arange(edges + 1) * probes, one, one)


def error_ns(fits: EdgeFits, offset_ns: int, slope: float = 20e-6) -> F64:
    return (fits.offset_ns - offset_ns) + fits.offset_frac_ns - slope * fits.ref_ns


@pytest.mark.parametrize("seconds", [0.3, 2.0])
@pytest.mark.parametrize(("noise_ns", "queued"), [(0, 0), (5, 0), (0, 0.9), (5, 0.4)])
def test_fit_is_as_good_as_it_says(seconds: float, noise_ns: float, queued: float) -> None:
    data = exchanges(1, edges=200, seconds=seconds, offset_ns=10**9, noise_ns=noise_ns, queued=queued)
    fits = fit_edges(data)
    assert fits.valid.all()
    score = error_ns(fits, 10**9) / fits.sigma_offset_ns
    assert np.sqrt(np.mean(score**2)) < 1.6
    slope_score = (fits.slope - 20e-6) / fits.sigma_slope
    assert np.sqrt(np.mean(slope_score**2)) < 1.6
    if noise_ns == 5 and queued == 0:
        assert abs(np.mean(error_ns(fits, 10**9))) < 0.5


@settings(max_examples=20)
@given(st.integers(0, 1000), st.integers(-100 * YEAR_NS, 100 * YEAR_NS))
def test_offset_of_a_clock_shifts_the_fit_and_nothing_else(seed: int, shift: int) -> None:
    data = exchanges(seed)
    moved = Exchanges(
        data.t1_ns,
        data.t2_ns + shift,
        data.t3_ns + shift,
        data.t4_ns,
        data.starts,
        data.weight_out,
        data.weight_back,
    )
    plain, shifted = fit_edges(data), fit_edges(moved)
    assert np.array_equal(shifted.offset_ns - plain.offset_ns, np.full(3, shift))
    assert np.allclose(shifted.offset_frac_ns, plain.offset_frac_ns, atol=1e-6)
    assert np.array_equal(plain.slope, shifted.slope)


def test_a_young_edge_is_fitted_beside_old_ones_as_it_is_alone() -> None:
    old, young = exchanges(1, probes=600), exchanges(2, edges=20, probes=20, seconds=0.15)
    alone = fit_edges(young)
    both = Exchanges(
        *(np.concatenate((getattr(old, name), getattr(young, name))) for name in STAMPS),
        np.concatenate((old.starts, old.starts[-1] + young.starts[1:])),
        np.ones(old.starts[-1] + young.starts[-1]),
        np.ones(old.starts[-1] + young.starts[-1]),
    )
    beside = fit_edges(both)
    assert beside.valid.all()
    for name in ("sigma_offset_ns", "sigma_out_ns", "sigma_back_ns", "margin_ns"):
        assert getattr(beside, name)[3:] == pytest.approx(getattr(alone, name), rel=0.05), name


@settings(max_examples=60)
@given(
    st.lists(st.integers(0, 20), min_size=0, max_size=5),
    st.integers(0, 2**31),
    st.sampled_from([10, 10**6, 10**12, 10**17]),
)
def test_no_input_makes_a_nan(counts: list[int], seed: int, size: int) -> None:
    rng = np.random.default_rng(seed)
    starts = np.concatenate(([0], np.cumsum(counts))).astype(np.int64)
    stamps = [rng.integers(-size, size, starts[-1]) for _ in range(4)]
    fits = fit_edges(Exchanges(*stamps, starts, np.ones(starts[-1]), np.ones(starts[-1])))
    for name in ("offset_frac_ns", "slope", "margin_ns", "points", "pure_share"):
        assert np.isfinite(getattr(fits, name)).all(), name
    for name in ("sigma_offset_ns", "sigma_out_ns", "sigma_back_ns", "sigma_slope"):
        assert not np.isnan(getattr(fits, name)).any(), name


def test_too_little_to_go_on_is_said() -> None:
    short = exchanges(1, probes=40, seconds=0.01)
    assert set(fit_edges(short).reason) == {FitReason.TOO_SHORT}
    assert set(fit_edges(exchanges(1, probes=4)).reason) == {FitReason.TOO_FEW}
    nothing = Exchanges(
        *(np.zeros(0, np.int64) for _ in range(4)), np.zeros(3, np.int64), np.zeros(0), np.zeros(0)
    )
    assert set(fit_edges(nothing).reason) == {FitReason.TOO_FEW}


def test_a_step_within_the_window_is_seen() -> None:
    data = exchanges(3)
    late = data.t1_ns > 10**9
    data.t2_ns[late] += 10**6
    data.t3_ns[late] += 10**6
    assert set(fit_edges(data).reason) <= {FitReason.TORN, FitReason.WILD_SLOPE}


def test_a_known_slope_survives_heavy_queueing() -> None:
    memory = EdgeMemory(20)
    memory.update(fit_edges(exchanges(1, edges=20, queued=0.1)))
    data = exchanges(2, edges=20, probes=60, queued=0.95)
    blind, told = fit_edges(data), fit_edges(data, memory.prior(2 * 10**9))
    assert np.std(told.slope - 20e-6) < np.std(blind.slope - 20e-6) / 10


def test_memory_starts_anew_after_a_step_and_forgets() -> None:
    memory = EdgeMemory(3)
    for offset in (0, 10**9):
        data = exchanges(4, offset_ns=offset)
        later = [t + (offset > 0) * 2 * 10**9 for t in (data.t1_ns, data.t2_ns, data.t3_ns, data.t4_ns)]
        memory.update(fit_edges(Exchanges(*later, data.starts, data.weight_out, data.weight_back)))
    prior = memory.prior(4 * 10**9)
    assert np.allclose(prior.slope, 20e-6, atol=1e-8)
    memory.forget(np.array([True, False, False]))
    assert np.isinf(memory.prior(4 * 10**9).sigma_slope).tolist() == [True, False, False]


def test_a_floor_that_is_hardly_known_makes_no_fit_worse() -> None:
    data = exchanges(5)
    blind = fit_edges(data)
    for below_ns, sigma_ns, shows in ((4000.0, 2000.0, False), (4000.0, 20.0, True)):
        floor_ns = blind.margin_ns - below_ns
        prior = replace(EdgePrior.unknown(3), floor_ns=floor_ns, sigma_floor_ns=np.full(3, sigma_ns))
        told = fit_edges(data, prior)
        assert (told.sigma_offset_ns > 1000).all() == shows
        assert np.array_equal(told.sigma_offset_ns, blind.sigma_offset_ns) != shows


def test_margins_from_just_before_a_change_was_noticed_set_no_floor() -> None:
    memory, clean = EdgeMemory(3), fit_edges(exchanges(6))
    for second in range(12):
        bent_ns, sigma_ns = (400.0, 90.0) if second >= 9 else (0.0, 100.0)
        moved = replace(clean, ref_ns=clean.ref_ns + second * 10**9, margin_ns=clean.margin_ns - bent_ns)
        memory.update(replace(moved, sigma_offset_ns=np.full(3, sigma_ns)))
    memory.let_go(np.array([True, True, False]))
    assert np.allclose(memory.lines().floor_ns, clean.margin_ns - [0, 0, 400])


def test_an_edge_that_was_forgotten_keeps_the_few_margins_that_it_has_since() -> None:
    memory, clean, everywhere = EdgeMemory(3), fit_edges(exchanges(6)), np.ones(3, bool)
    for second in range(14):
        if second == 11:
            memory.forget(everywhere)
        memory.update(replace(clean, ref_ns=clean.ref_ns + second * 10**9))
    memory.let_go(everywhere)
    assert np.allclose(memory.lines().floor_ns, clean.margin_ns)


def test_grouping_keeps_the_order_of_time() -> None:
    order, starts = group_by_edge(np.array([2, 0, 2, 0]), 4)
    assert order.tolist() == [1, 3, 0, 2]
    assert starts.tolist() == [0, 2, 2, 4, 4]


def test_purity_tells_queued_pairs() -> None:
    rng = np.random.default_rng(1)
    tx = np.full(1000, 10_000)
    rx = tx + np.rint(rng.normal(0, 10, 1000)).astype(np.int64)
    rx[:300] += 5000
    purity = pair_purity(tx, rx)
    assert 0.28 < purity.queued_share < 0.34
    assert purity.weight[:300].max() < 0.3 < purity.weight[300:].mean()
    assert np.isnan(pair_purity(tx[:0], rx[:0]).queued_share)


def test_hosts_need_no_scipy() -> None:
    code = "import sys, cwdp.shared.clocksync; sys.exit('scipy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
