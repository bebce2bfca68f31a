"""The graph solve, against an exact oracle and against lies."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cwdp.shared.clocksync import EdgeFits
from cwdp.shared.clocksync._types import F64, I64
from cwdp.shared.clocksync.graph.blame import blame
from cwdp.shared.clocksync.graph.laplacian import Laplacian
from cwdp.shared.clocksync.graph.pairs import PairFloors, Ways, merge_directed
from cwdp.shared.clocksync.graph.solve import GraphEdges, Prediction, solve_graph
from cwdp.shared.clocksync.timeline.track import HostClocks, HostState, Tracks

SIGMA_NS = 2.0
YEAR_NS = 365 * 86_400 * 10**9


def mutual_ring_graph(n: int, rings: int, rng: np.random.Generator) -> tuple[I64, I64]:
    orders = [rng.permutation(n) for _ in range(rings)]
    a, b = np.concatenate(orders), np.concatenate([np.roll(o, 1) for o in orders])
    return np.concatenate((a, b)).astype(np.int64), np.concatenate((b, a)).astype(np.int64)


def measured(g_ns: tuple[I64, I64], drift: tuple[F64, F64], *, at_ns: I64 | int, noise_ns: F64) -> EdgeFits:
    """Fits of clocks, each of (src, dst), with global - local = g at `at_ns`; drift is d(g) / d(global)."""
    zero = np.zeros(len(noise_ns))
    return EdgeFits(
        ref_ns=at_ns - g_ns[0],
        offset_ns=g_ns[0] - g_ns[1],
        offset_frac_ns=noise_ns,
        slope=(1 - drift[1]) / (1 - drift[0]) - 1,
        margin_ns=zero + 500,
        sigma_offset_ns=zero + SIGMA_NS,
        sigma_out_ns=zero + SIGMA_NS * np.sqrt(2),
        sigma_back_ns=zero + SIGMA_NS * np.sqrt(2),
        sigma_slope=zero + 1e-9,
        points=zero + 10,
        pure_share=zero + 1,
        reason=np.zeros(len(noise_ns), np.uint8),
    )


class Fleet:
    """Hosts with true clocks, measured round after round."""

    def __init__(self, n: int = 60, rings: int = 4, seed: int = 0, spread_ns: int = 3 * 10**9) -> None:
        self.rng = np.random.default_rng(seed)
        self.n = n
        self.src, self.dst = mutual_ring_graph(n, rings, self.rng)
        self.path = np.zeros(len(self.src), np.int64)
        self.g0 = self.rng.integers(-spread_ns, spread_ns, n)
        self.drift = self.rng.uniform(-50e-6, 50e-6, n)

    def edges(self, at_s: F64 | float, lie: F64 | float | None = None) -> GraphEdges:
        """Fits with their references at a time, of all or of each."""
        drift = self.drift[self.src], self.drift[self.dst]
        since_ns = np.rint(np.asarray(at_s) * 1e9).astype(np.int64)
        src, dst = (
            self.g0[ends] + np.rint(rate * since_ns).astype(np.int64)
            for ends, rate in zip((self.src, self.dst), drift, strict=True)
        )
        noise = self.rng.normal(0, SIGMA_NS, len(self.src))
        fits = measured((src, dst), drift, at_ns=10**12 + since_ns, noise_ns=noise)
        if lie is not None:
            fits.offset_frac_ns[:] += lie
        return GraphEdges.settled(self.src, self.dst, self.path, fits)

    def error_ns(self, clocks: HostClocks, at_s: float) -> F64:
        """Distance of every host's timeline from the median one."""
        local = 10**12 + int(at_s * 1e9) - (self.g0 + np.rint(self.drift * at_s * 1e9).astype(np.int64))
        ahead = clocks.offset_frac_ns + clocks.drift * (local - clocks.ref_local_ns)
        whole = local + clocks.offset_ns
        error = (whole - whole[0]) + ahead
        return error - np.median(error)


@settings(max_examples=25)
@given(st.integers(0, 10**6), st.integers(3, 25), st.booleans())
def test_least_squares_is_the_projection(seed: int, n: int, weighted: bool) -> None:
    rng = np.random.default_rng(seed)
    src, dst = mutual_ring_graph(n, 2, rng)
    y = rng.normal(0, 1000, len(src))
    weight = rng.uniform(0.1, 10, len(src)) if weighted else np.ones(len(src))
    x = Laplacian(n, src, dst).solve(y, weight, tolerance_ns=1e-9)
    incidence = np.zeros((len(src), n))
    incidence[np.arange(len(src)), src] += 1
    incidence[np.arange(len(src)), dst] -= 1
    root = np.sqrt(weight)[:, None]
    oracle = incidence @ np.linalg.pinv(root * incidence) @ (root[:, 0] * y)
    assert np.allclose(incidence @ x, oracle, atol=1e-5)


@settings(max_examples=15)
@given(st.integers(0, 10**6), st.sampled_from([10**3, 10**10, 20 * YEAR_NS]))
def test_clocks_are_found_whatever_their_offsets(seed: int, spread_ns: int) -> None:
    fleet = Fleet(seed=seed, spread_ns=spread_ns)
    fleet.drift[:] = 0
    solution = solve_graph(fleet.edges(0), Prediction.nothing(fleet.n))
    error = (solution.g_ns - fleet.g0) - (solution.g_ns - fleet.g0)[0] + solution.g_frac_ns
    assert np.ptp(error) < 8 * SIGMA_NS
    assert solution.reached.all()
    assert not solution.rejected.any()


@settings(max_examples=15)
@given(st.integers(0, 10**6))
def test_the_order_of_hosts_and_edges_does_not_matter(seed: int) -> None:
    fleet = Fleet(n=30, seed=seed)
    fleet.drift[:] = 0
    edges = fleet.edges(0)
    host, row = (
        np.random.default_rng(seed).permutation(30),
        np.random.default_rng(seed).permutation(len(fleet.src)),
    )
    known = Prediction.of_offsets(10**12, fleet.g0, np.ones(30, bool))
    plain = solve_graph(edges, known)
    renamed = np.empty(30, np.int64)
    renamed[host] = fleet.g0
    shuffled = edges.where(row)
    shuffled = GraphEdges.settled(host[shuffled.src], host[shuffled.dst], shuffled.path, shuffled.fits)
    other = solve_graph(shuffled, Prediction.of_offsets(10**12, renamed, np.ones(30, bool)))
    a = (plain.g_ns - fleet.g0) + plain.g_frac_ns
    b = ((other.g_ns - renamed) + other.g_frac_ns)[host]
    assert np.allclose(a - a.mean(), b - b.mean(), atol=0.01)


def test_a_stamping_bias_common_to_all_cancels() -> None:
    fleet = Fleet()
    edges = fleet.edges(0, lie=12_345.0)
    solution = solve_graph(edges, Prediction.of_offsets(10**12, fleet.g0, np.ones(fleet.n, bool)))
    error = (solution.g_ns - fleet.g0) + solution.g_frac_ns
    assert np.ptp(error) < 8 * SIGMA_NS
    assert not solution.liar.any()


def _one_direction(fleet: Fleet, liar: int, size: float) -> F64:
    return np.where(fleet.dst == liar, size, 0.0)


def _every_peer_another(fleet: Fleet, liar: int, size: float) -> F64:
    rng = np.random.default_rng(1)
    return np.where((fleet.dst == liar) | (fleet.src == liar), size * rng.normal(0, 1, len(fleet.src)), 0.0)


@pytest.mark.parametrize("lie", [_one_direction, _every_peer_another])
@pytest.mark.parametrize("size_ns", [1e6, 2e3])
def test_a_liar_is_named_and_harms_nobody(lie: Callable[[Fleet, int, float], F64], size_ns: float) -> None:
    fleet = Fleet()
    tracks, honest = Tracks(fleet.n), Tracks(fleet.n)
    for number in range(20):
        edges = fleet.edges(number * 0.5)
        honest.step(edges)
        wrong = lie(fleet, 7, size_ns) if number >= 12 else 0.0
        edges.fits.offset_frac_ns[:] += wrong
        tracks.step(edges)
        if number >= 14:
            assert np.flatnonzero(tracks.clocks().state == HostState.SET_ASIDE).tolist() == [7]
    others = np.arange(fleet.n) != 7
    error = fleet.error_ns(tracks.clocks(), 9.5)[others]
    assert np.abs(error).max() < 2 * np.abs(fleet.error_ns(honest.clocks(), 9.5)[others]).max()


def test_a_stepped_clock_is_set_aside_then_taken_back() -> None:
    fleet = Fleet()
    tracks = Tracks(fleet.n)
    states = []
    for number in range(24):
        if number == 12:
            fleet.g0[5] += 10**6
        tracks.step(fleet.edges(number * 0.5))
        states.append(tracks.clocks().state[5])
    assert states[11:15] == [HostState.SYNCED] + [HostState.SET_ASIDE] * 3
    assert states[-1] == HostState.SYNCED
    assert np.abs(fleet.error_ns(tracks.clocks(), 11.5)).max() < 10


@pytest.mark.parametrize("hosts", [slice(5, 6), slice(1, 4), slice(0, None)])
@pytest.mark.parametrize("n", [4, 60])
def test_clocks_that_are_a_little_elsewhere_keep_one_whose_bound_holds(n: int, hosts: slice) -> None:
    """As after a manager was missed for long: no host is without a clock, and the timeline is not begun anew."""
    fleet, instants = Fleet(n), []
    tracks = Tracks(fleet.n)
    for number in range(20):
        if number == 12:
            fleet.g0[hosts] += np.linspace(1_000, 3_000, len(fleet.g0[hosts])).astype(np.int64)
        tracks.step(fleet.edges(number * 0.5))
        clocks = tracks.clocks()
        assert clocks is not None
        assert HostState.SET_ASIDE not in clocks.state
        errors = fleet.error_ns(clocks, number * 0.5)
        common = 0.0 if number < 12 else 3_000.0
        assert (np.abs(errors) <= clocks.bound_ns + common).all()
        instants.append(clocks.instant_ns)
    assert np.ptp(errors) < 20
    assert np.abs(np.diff(instants[8:]) - 500_000_000).max() < 10_000


@pytest.mark.parametrize(("step_ns", "unmeasured"), [(10**3, 0), (10**6, 5)])
def test_a_step_of_a_host_whose_agent_was_away_is_believed_at_once(step_ns: int, unmeasured: int) -> None:
    """However long it takes until it is measured again; a later step is no longer expected."""
    fleet = Fleet()
    tracks, states = Tracks(fleet.n), []
    for number in range(32):
        if number in (12, 24):
            fleet.g0[5] += step_ns
        if number == 12:
            tracks.expect_steps(np.array([5]))
        edges = fleet.edges(number * 0.5)
        away = 12 <= number < 12 + unmeasured
        tracks.step(edges.where((edges.src != 5) & (edges.dst != 5)) if away else edges)
        states.append(tracks.clocks().state[5])
    assert HostState.SET_ASIDE not in states[:24]
    assert states[12 + unmeasured : 24] == [HostState.SYNCED] * (12 - unmeasured)
    assert states[24:27] == [HostState.HOLDOVER if step_ns < 50_000 else HostState.SET_ASIDE] * 3
    assert np.abs(fleet.error_ns(tracks.clocks(), 15.5)).max() < 10


def test_an_asymmetric_path_is_rejected() -> None:
    fleet = Fleet()
    one = (fleet.src == fleet.src[0]) & (fleet.dst == fleet.dst[0])
    other = (fleet.src == fleet.dst[0]) & (fleet.dst == fleet.src[0])
    edges = fleet.edges(0, lie=500.0 * one - 500.0 * other)
    solution = solve_graph(edges, Prediction.of_offsets(10**12, fleet.g0, np.ones(fleet.n, bool)))
    assert np.array_equal(solution.rejected, one | other)
    assert not solution.liar.any()


def test_cold_start_with_drifts_is_right_at_once() -> None:
    fleet = Fleet(n=300)
    tracks = Tracks(fleet.n)
    tracks.step(fleet.edges(0))
    assert np.abs(fleet.error_ns(tracks.clocks(), 3.0)).max() < 1000
    for at_s in np.arange(0.5, 8, 0.5):
        tracks.step(fleet.edges(at_s))
    clocks = tracks.clocks()
    error = np.abs(fleet.error_ns(clocks, 7.5))
    assert error.max() < 6
    assert (error <= clocks.bound_ns).all()


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("wild", "scatter"), [(0.1, 1.0), (0.0, 6.0)])
def test_slopes_that_say_too_little_of_their_errors_deceive_nobody(
    seed: int, wild: float, scatter: float
) -> None:
    """Some are far off, or all by more than they say: the others' disagreement shows it."""
    fleet = Fleet(n=12, rings=2, seed=seed)
    fleet.drift[:] = 0
    edges = fleet.edges(0)
    claimed = edges.fits.sigma_slope
    edges.fits.slope[:] += scatter * claimed * fleet.rng.normal(0, 1, len(claimed))
    edges.fits.slope[fleet.rng.random(len(claimed)) < wild] += 1e-6
    solution = solve_graph(edges, Prediction.of_offsets(10**12, fleet.g0, np.ones(12, bool)), with_drift=True)
    error = solution.drift - np.median(solution.drift)
    assert np.abs(error).max() < 5e-9 * scatter
    assert (np.abs(error) <= 5 * solution.sigma_drift).all()


def test_a_host_whose_slopes_are_all_at_odds_has_no_drift_from_them() -> None:
    fleet = Fleet(n=30)
    fleet.drift[:] = 0
    edges = fleet.edges(0)
    odd = (fleet.src == 3) | (fleet.dst == 3)
    edges.fits.slope[odd] += fleet.rng.choice([-1, 1], odd.sum()) * fleet.rng.uniform(1e-6, 9e-6, odd.sum())
    known = Prediction.of_offsets(10**12, fleet.g0, np.ones(30, bool))
    solution = solve_graph(edges, known, with_drift=True)
    assert solution.sigma_drift[3] > 50e-9
    assert np.ptp(np.delete(solution.drift, 3)) < 5e-9


def test_cut_off_hosts_are_flagged() -> None:
    fleet = Fleet(n=20)
    fleet.src, fleet.dst = np.concatenate((fleet.src, [20, 21])), np.concatenate((fleet.dst, [21, 20]))
    fleet.path = np.zeros(len(fleet.src), np.int64)
    fleet.g0, fleet.drift, fleet.n = np.arange(23) * 10**9, np.zeros(23), 23
    tracks = Tracks(23)
    tracks.step(fleet.edges(0))
    clocks = tracks.clocks()
    assert (clocks.state[:20] == HostState.SYNCED).all()
    assert (clocks.state[20:] == HostState.UNSYNCED).all()
    assert np.isinf(clocks.bound_ns[20:]).all()


def test_a_host_out_of_touch_holds_over_with_a_growing_bound() -> None:
    fleet = Fleet()
    tracks = Tracks(fleet.n)
    bounds = []
    for number in range(30):
        edges = fleet.edges(number * 0.5)
        tracks.step(edges if number < 15 else edges.where((fleet.src != 3) & (fleet.dst != 3)))
        bounds.append(tracks.clocks().bound_ns[3])
    assert tracks.clocks().state[3] == HostState.HOLDOVER
    assert bounds[15] < bounds[20] < bounds[29]
    assert abs(fleet.error_ns(tracks.clocks(), 14.5)[3]) <= bounds[-1]


def test_the_timeline_goes_on_while_hosts_come_and_go() -> None:
    fleet = Fleet(n=40)
    tracks = Tracks(40)
    present = np.ones(40, bool)
    names = []
    for number in range(40):
        if number >= 15:
            present[fleet.rng.integers(0, 40, 3)] = False
            present[fleet.rng.integers(0, 40, 3)] = True
        keep = present[fleet.src] & present[fleet.dst]
        tracks.step(fleet.edges(number * 0.5).where(keep))
        clocks = tracks.clocks()
        local = (
            10**12 + number * 5 * 10**8 - (fleet.g0 + np.rint(fleet.drift * number * 0.5e9).astype(np.int64))
        )
        ahead = clocks.drift * (local - clocks.ref_local_ns) + clocks.offset_frac_ns
        held = clocks.state == HostState.SYNCED
        names.append(np.median(((local + clocks.offset_ns) - number * 5 * 10**8)[held] + ahead[held]))
    steps = np.diff(names[12:])
    assert np.abs(steps - np.median(steps)).max() < 5


def test_slots_can_be_added_cleared_and_dropped() -> None:
    fleet = Fleet(n=20)
    tracks = Tracks(10)
    tracks.resize(20)
    tracks.step(fleet.edges(0))
    tracks.clear(np.array([4]))
    assert tracks.clocks().state[4] == HostState.UNSYNCED
    tracks.resize(5)
    assert tracks.n_hosts == 5
    assert len(tracks.clocks().state) == 5


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("claimed", [15e-6, 1e-6])
def test_the_first_fits_of_a_restarted_agent_set_no_host_aside(seed: int, claimed: float) -> None:
    """They rest on a short window: newer than the others, their slopes far off, and more than they say."""
    fleet = Fleet(n=8, seed=seed)
    tracks = Tracks(fleet.n)
    first = fleet.src == 3
    for number in range(30):
        young = first & (number == 10)
        edges = fleet.edges(number * 0.25 + 1.0 * young)
        edges.fits.slope[young] += fleet.rng.normal(0, 15e-6, young.sum())
        edges.fits.sigma_slope[young] = claimed
        tracks.step(edges)
        assert (tracks.clocks().state == HostState.SYNCED).all()
    clocks = tracks.clocks()
    error = np.abs(fleet.error_ns(clocks, 7.25))
    assert (error <= np.minimum(clocks.bound_ns, 20)).all()


def test_a_fit_that_can_hardly_be_carried_to_the_instant_is_no_restart() -> None:
    fleet = Fleet(n=20)
    edges = fleet.edges(1.0)
    edges.fits.slope[:] += fleet.rng.normal(0, 100e-6, len(fleet.src))
    edges.fits.sigma_slope[:] = 100e-6
    solution = solve_graph(edges, Prediction.of_offsets(10**12, fleet.g0, np.ones(fleet.n, bool)))
    assert not solution.restarted.any()


def test_a_margin_that_is_hardly_known_sets_no_floor() -> None:
    floors, pairs, of_both = PairFloors(), np.array([3, 8]), np.ones((2, 2))
    floors.update(pairs, 500 * of_both, 5 * of_both, YEAR_NS)
    poor = np.array([[-4000.0, 480.0], [5000.0, 520.0]])
    floor, sigma = floors.update(pairs, poor, of_both * [5000.0, 1.0], YEAR_NS + 1)
    assert floor.tolist() == [[500, 480], [500, 500]]
    assert sigma.tolist() == [[5, 1], [5, 5]]


def test_floors_stay_with_their_pairs_when_the_fleet_grows() -> None:
    floors = PairFloors()

    def sigma_ns(a: int, b: int, margin_ns: float, n_nodes: int) -> float:
        ends, one = np.array([a, b]), np.ones(2)
        ways = Ways(margin_ns * one, SIGMA_NS * one, SIGMA_NS * one, floors, YEAR_NS)
        merged = merge_directed(
            ends, ends[::-1], ends * 0, y_ns=0 * one, sigma_ns=one, n_nodes=n_nodes, ways=ways
        )
        return float(merged.sigma_ns[0])

    alone = sigma_ns(1, 2, 500.0, n_nodes=7)
    assert sigma_ns(0, 10, 5000.0, n_nodes=20) == alone
    assert sigma_ns(0, 10, 6000.0, n_nodes=40) > 100


def test_a_margin_above_a_floor_that_is_hardly_known_is_no_queue() -> None:
    ends, one = np.array([1, 2]), np.ones(2)

    def sigma_ns(sigma_floor_ns: float) -> float:
        floors = PairFloors()
        for margin_ns in (-4000.0, 6000.0):
            error_ns = sigma_floor_ns * one
            ways = Ways(margin_ns * one, error_ns, error_ns, floors, YEAR_NS)
            merged = merge_directed(
                ends, ends[::-1], ends * 0, y_ns=0 * one, sigma_ns=one, n_nodes=7, ways=ways
            )
        return float(merged.sigma_ns[0])

    assert sigma_ns(2000.0) < 0.7 * sigma_ns(10.0)


def test_no_valid_fit_moves_nothing() -> None:
    fleet = Fleet(n=10)
    tracks = Tracks(10)
    edges = fleet.edges(0)
    edges.fits.reason[:] = 1
    assert tracks.step(edges) is None
    assert tracks.clocks() is None


def test_blame_falls_on_the_worst_only() -> None:
    a, b = np.array([0, 0, 0, 1, 2]), np.array([1, 2, 3, 2, 3])
    assert np.flatnonzero(blame(4, a, b, np.array([1, 1, 1, 0, 0], bool))).tolist() == [0]
    assert not blame(4, a, b, np.array([1, 0, 0, 0, 0], bool)).any()
