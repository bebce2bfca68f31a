"""What is done to clocks in the lab and in the simulators, and how a small fleet bears it."""

import functools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tools import clocks
from tools.clocks import KINDS, KINKED, PPM, SLEW, STEP_NS, SWING, UPDATE_S, ClockKind, draw
from tools.sim.clocks import manoeuvres
from tools.sim.clocks.disciplined import as_stamped
from tools.sim.clocks.oscillators import GRID_S, Oscillators
from tools.sim.fleet.probes import FleetOptions
from tools.sim.fleet.simulation import FleetResult, FleetSimulation

CHANGE_S = 20.0
SECONDS = 30.0


@functools.cache
def run(seed: int, ppm: float) -> FleetResult:
    """Eight hosts, host 0 by some ppm faster from a moment on."""
    options = FleetOptions(seed=seed, seconds=SECONDS)
    return FleetSimulation(options, manoeuvres.kinks(ppm, (CHANGE_S,)) if ppm else None).run()


def errors_ns(result: FleetResult, from_s: float, to_s: float) -> NDArray[np.float64]:
    rows = (result.time_s >= from_s) & (result.time_s < to_s)
    return np.abs(result.error_ns[rows])


@pytest.mark.parametrize(("seed", "ppm"), [(0, 10.0), (1, -10.0)])
def test_a_step_of_a_clock_is_found_and_the_others_are_not_disturbed(seed: int, ppm: float) -> None:
    result = run(seed, ppm)
    assert errors_ns(result, CHANGE_S, SECONDS)[:, 0].max() < 10_000
    assert errors_ns(result, CHANGE_S + 3, SECONDS)[:, 0].max() < 300
    before, after = (
        np.quantile(errors_ns(result, *between)[:, 1:], 0.99)
        for between in ((15, CHANGE_S), (CHANGE_S, SECONDS))
    )
    assert after < 1.5 * before + 10
    others = result.synced[result.time_s > 15, 1:]
    assert others.all()


@pytest.mark.parametrize(("seed", "ppm"), [(0, 10.0), (1, -10.0)])
def test_a_clock_that_has_stepped_is_outside_its_bound_for_a_moment_only(seed: int, ppm: float) -> None:
    result = run(seed, ppm)
    outside = (np.abs(result.error_ns) > result.bound_ns) & result.synced
    late = (result.time_s < CHANGE_S) | (result.time_s > CHANGE_S + 0.5)
    assert not outside[late & (result.time_s > 15)].any()
    assert not outside[:, 1:][result.time_s > 15].any()


def test_the_others_go_as_if_nothing_had_happened() -> None:
    result, twin = run(0, 10.0), run(0, 0.0)
    moved = errors_ns(result, 15, SECONDS)[:, 1:] - errors_ns(twin, 15, SECONDS)[:, 1:]
    assert np.abs(moved).max() < 30


def test_a_fleet_in_which_all_step_at_once_is_soon_one_again() -> None:
    options = FleetOptions(seed=2, seconds=SECONDS)
    result = FleetSimulation(options, manoeuvres.kinks(10, (CHANGE_S,), share=1.0)).run()
    assert errors_ns(result, CHANGE_S, SECONDS).max() < 20_000
    assert errors_ns(result, CHANGE_S + 3, SECONDS).max() < 500


def test_a_clock_that_steps_there_and_back_within_a_second_is_found_again() -> None:
    options = FleetOptions(seed=1, seconds=SECONDS)
    result = FleetSimulation(options, manoeuvres.kinks(10, (CHANGE_S, CHANGE_S + 1))).run()
    assert errors_ns(result, CHANGE_S, SECONDS)[:, 0].max() < 10_000
    assert errors_ns(result, CHANGE_S + 5, SECONDS)[:, 0].max() < 300
    outside = (np.abs(result.error_ns) > result.bound_ns) & result.synced
    assert not outside[result.time_s > CHANGE_S + 2].any()


def test_clocks_that_change_again_and_again_stay_within_their_bounds() -> None:
    result = FleetSimulation(FleetOptions(seed=9, seconds=70.0), manoeuvres.everyone(1.0, 16.0)).run()
    late = result.between(50.0, 70.0)
    assert late.outside < 0.01
    assert late.bound_p50_ns < 5000
    assert late.p50_ns < 100


@pytest.mark.parametrize("kind", KINDS)
def test_a_drawn_clock_is_the_same_for_the_same_seed(kind: ClockKind) -> None:
    one, other, third = (draw(kind, 4000, 0.1, np.random.default_rng(seed)) for seed in (1, 1, 2))
    for name in ("oscillator", "discipline", "steps_ns"):
        assert getattr(one, name).shape == (4000,)
        assert np.array_equal(getattr(one, name), getattr(other, name))
    assert not np.array_equal(one.oscillator, third.oscillator)


@settings(max_examples=20)
@given(st.integers(0, 10**6), st.floats(0, 100))
def test_a_steady_clock_is_constant(seed: int, drift_ppm: float) -> None:
    drawn = draw("steady", 1000, 0.1, np.random.default_rng(seed), drift_ppm=drift_ppm)
    assert np.ptp(drawn.oscillator) == 0
    assert abs(drawn.oscillator[0]) <= drift_ppm * PPM
    assert not drawn.discipline.any()
    assert not drawn.steps_ns.any()


def test_a_wandering_clock_neither_jumps_nor_is_disciplined() -> None:
    drawn = draw("wander", 20_000, 0.1, np.random.default_rng(3))
    assert not drawn.discipline.any()
    assert not drawn.steps_ns.any()
    assert np.ptp(drawn.oscillator) > 0.1 * PPM
    assert np.abs(np.diff(drawn.oscillator)).max() < 0.01 * PPM


@settings(max_examples=20)
@given(st.integers(0, 10**6), st.sampled_from([(6000, 0.1), (30_000, 0.05), (1200, 1.0)]))
def test_a_walk_leads_on_to_its_beginning(seed: int, grid: tuple[int, float]) -> None:
    steps, step_s = grid
    walk = clocks.walk(steps, step_s, np.random.default_rng(seed), 2e-9)
    assert walk[-1] == pytest.approx(0, abs=1e-18)
    one_step = 2e-9 * np.sqrt(step_s)
    assert np.std(np.diff(walk)) == pytest.approx(one_step, rel=0.1)
    assert abs(walk[0] - walk[-1]) < 6 * one_step


@settings(max_examples=20)
@given(st.integers(0, 10**6))
def test_a_swing_leads_on_to_its_beginning(seed: int) -> None:
    swing = clocks.swing(12_000, 0.1, np.random.default_rng(seed))
    assert SWING[0] * 0.99 <= np.abs(swing).max() <= SWING[1]
    assert abs(swing[0] - swing[-1]) <= 1.01 * np.abs(np.diff(swing)).max()


@settings(max_examples=20)
@given(st.integers(0, 10**6))
def test_a_disciplined_clock_is_set_anew_every_8_to_64_s(seed: int) -> None:
    step_s = 0.1
    updates = clocks.updates(20_000, step_s, np.random.default_rng(seed))
    gaps_s = np.diff(np.flatnonzero(np.diff(updates))) * step_s
    assert len(gaps_s) > 20
    assert gaps_s.min() >= UPDATE_S[0] - step_s
    assert gaps_s.max() <= UPDATE_S[1] + step_s


def test_a_discipline_takes_off_the_oscillators_mean_and_slews_now_and_then() -> None:
    step_s = 0.1
    drawn = draw("disciplined", 36_000, step_s, np.random.default_rng(4), drift_ppm=50.0)
    assert not drawn.steps_ns.any()
    assert np.abs(np.diff(drawn.oscillator)).max() < 0.01 * PPM
    total = drawn.oscillator + drawn.discipline
    slewing = np.abs(total) > 10 * PPM
    assert 0.005 < slewing.mean() < 0.15
    assert np.abs(total[~slewing]).mean() < 1.5 * PPM
    lengths_s = np.diff(np.flatnonzero(np.diff(np.concatenate(([False], slewing, [False])))))[::2] * step_s
    assert lengths_s.min() >= 2 - step_s
    assert np.abs(total).max() < SLEW[1] + 10 * PPM


def test_a_rough_clock_jumps_and_kinks_unannounced() -> None:
    drawn = draw("rough", 36_000, 0.1, np.random.default_rng(5), drift_ppm=0.0)
    jumps = drawn.steps_ns[drawn.steps_ns != 0]
    assert 8 < len(jumps) < 35
    assert np.abs(jumps).max() <= STEP_NS
    kinks = np.abs(np.diff(drawn.oscillator))
    kinks = kinks[kinks > 0.5 * PPM]
    assert 20 < len(kinks) < 65
    assert kinks.min() >= 0.99 * PPM
    assert kinks.max() <= KINKED + 0.01 * PPM
    assert np.abs(drawn.oscillator).max() <= KINKED + 0.5 * PPM
    assert drawn.discipline.any()


def test_a_lone_kink_is_one_hosts_and_a_share_is_that_of_many() -> None:
    rng = np.random.default_rng(6)
    one = manoeuvres.kinks(10, (1.0, 2.0))(4, 100, GRID_S, rng).oscillator
    assert not one[1:].any()
    assert one[0, [19, 20, 39, 40]] == pytest.approx([0, 10 * PPM, 10 * PPM, 0], abs=1e-12)
    many = manoeuvres.kinks(10, (1.0,), share=0.5)(8, 100, GRID_S, rng).oscillator
    assert np.flatnonzero(many[:, -1]).tolist() == [0, 1, 2, 3]
    assert len(set(many[:4, -1])) == 4


def test_what_happens_is_on_top_of_the_clocks_own_drift() -> None:
    plain = Oscillators.random(3, 10.0, np.random.default_rng(7))
    steps = plain.phase_ns.shape[1] - 1
    happens = manoeuvres.kinks(10, (5.0,))(3, steps, GRID_S, np.random.default_rng(8))
    happens.steps_ns[1, 100] = 500.0
    moved = plain.with_frequencies(happens.oscillator, happens.steps_ns)
    for at_s, expected in ((4.9, [0, 0, 0]), (8.0, [30_000, 500, 0])):
        there, here = (sum(each.local(np.arange(3), np.full(3, at_s * 1e9))) for each in (moved, plain))
        assert there - here == pytest.approx(np.array(expected, np.float64), abs=2)


def test_a_clock_that_jumps_does_so_at_once() -> None:
    plain = Oscillators.random(1, 10.0, np.random.default_rng(7))
    steps_ns = np.zeros((1, plain.phase_ns.shape[1] - 1))
    steps_ns[0, 100] = 1e6
    moved = plain.with_frequencies(0 * steps_ns, steps_ns)
    for at_s, expected in ((100 * GRID_S - 1e-4, 0), (100 * GRID_S + 1e-4, 1e6)):
        there, here = (each.stamp(np.array([0]), np.array([at_s * 1e9]))[0] for each in (moved, plain))
        assert there - here == pytest.approx(expected, abs=2)


@pytest.mark.parametrize("ppm", [-300.0, 50.0, 500.0])
def test_probes_that_were_stamped_while_a_clock_was_off_are_known_once_that_is_found(ppm: float) -> None:
    rng = np.random.default_rng(10)
    plain = Oscillators.random(3, 10.0, rng)
    clocks = as_stamped(plain, manoeuvres.disciplined(0.0, ppm, 4.0), 11, rng)
    sent_ns = np.tile(np.linspace(1e9, 9e9, 4001), (3, 1))
    hosts = np.arange(3)
    t1_ns, t4_ns = (clocks.stamp(hosts[:, None], when_ns) for when_ns in (sent_ns, sent_ns + 1e4))
    stamps_ns = np.stack((t1_ns, t1_ns, t4_ns, t4_ns))
    off_ns = np.abs(t1_ns - plain.stamp(hosts[:, None], sent_ns))
    right = clocks.right(hosts, stamps_ns, 10.0)
    assert off_ns[0].max() > 100
    assert (off_ns[right] < 20).all()
    assert right.mean() > 0.99
    assert clocks.right(hosts, stamps_ns, 3.9).all()
    assert plain.right(hosts, stamps_ns, 10.0).all()


@pytest.mark.parametrize(
    ("happens", "changes"),
    [
        (manoeuvres.everyone(5.0, 2.0), True),
        (manoeuvres.temperature(1e-8, 2.0, 60.0), True),
        (manoeuvres.disciplined(1.0, 100.0, 3.0), False),
        (manoeuvres.of_kind("steady"), False),
        (manoeuvres.of_kind("rough"), True),
    ],
)
def test_only_what_is_not_announced_touches_the_oscillator(
    happens: manoeuvres.Manoeuvre, changes: bool
) -> None:
    drawn = happens(5, 8000, GRID_S, np.random.default_rng(9))
    for value in (drawn.oscillator, drawn.discipline, drawn.steps_ns):
        assert value.shape == (5, 8000)
    assert bool((np.ptp(drawn.oscillator, axis=1) > 0).all()) == changes
