"""Hosts whose clocks have changed are placed against those that go on as before."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cwdp.shared.clocksync import EdgeFits, FitReason
from cwdp.shared.clocksync._types import F64, NS_PER_S, Bool
from cwdp.shared.clocksync.graph.pairs import PairFloors, pair_names
from cwdp.shared.clocksync.graph.solve import GraphEdges, OwnFits, Prediction
from cwdp.shared.clocksync.timeline.changed_hosts import Fused, Placed, fuse, place
from cwdp.shared.clocksync.timeline.hostlines import HostLines

S = 1_000_000_000
INSTANT_NS = 10**12
FLOOR_NS = 4_000.0


class World:
    """Hosts of which the changed ones are elsewhere, and drift otherwise, than their prediction says.

    Attributes:
        g_ns, drift: where all are predicted, global - local at the instant.
        changed: bool [hosts].
        ahead_ns, faster: by how much the changed ones are off that, ns and dimensionless.
        src, dst: every pair in one direction.
    """

    def __init__(self, n: int, changed: int, seed: int) -> None:
        self.rng = rng = np.random.default_rng(seed)
        self.n = n
        self.g_ns = rng.integers(-10 * S, 10 * S, n)
        self.drift = rng.uniform(-50e-6, 50e-6, n)
        self.changed = np.isin(np.arange(n), rng.permutation(n)[:changed])
        self.ahead_ns = np.where(self.changed, rng.uniform(-9e3, 9e3, n), 0.0)
        self.faster = np.where(self.changed, rng.uniform(-20e-6, 20e-6, n), 0.0)
        # Everybody has an edge to the host before it in some order, and there are some more.
        order = rng.permutation(n)
        pairs = {tuple(sorted(pair)) for pair in zip(order[1:], order[:-1], strict=True)}
        pairs |= {tuple(sorted(rng.choice(n, 2, replace=False))) for _ in range(2 * n)}
        a, b = np.array(sorted(pairs), np.int64).T
        self.a, self.b = a, b
        forward = rng.random(len(a)) < 0.5
        self.src, self.dst = np.where(forward, a, b), np.where(forward, b, a)
        self.path = np.zeros(len(a), np.int64)

    def prediction(self) -> Prediction:
        known = np.ones(self.n, bool)
        return Prediction(INSTANT_NS, self.g_ns, known, self.drift, np.full(self.n, np.inf))

    def before(self) -> HostLines:
        """As predicted, to within a nanosecond."""
        one = np.ones(self.n)
        return HostLines(
            np.full(self.n, INSTANT_NS), self.g_ns, 0 * one, self.drift * NS_PER_S, one, 0 * one, one
        )

    def fits(self, bias_ns: F64 | float = 0.0, *, age_s: float = 0.5) -> GraphEdges:
        """What the edges measure without noise, off by what stamping points differ by."""
        drift = self.drift + self.faster
        frac_ns = self.ahead_ns - drift * age_s * NS_PER_S
        src, dst = self.src, self.dst
        rest = np.rint(frac_ns)
        zero = np.zeros(len(src))
        fits = EdgeFits(
            ref_ns=INSTANT_NS - round(age_s * S) - (self.g_ns + rest.astype(np.int64))[src],
            offset_ns=self.g_ns[src] - self.g_ns[dst],
            offset_frac_ns=frac_ns[src] - frac_ns[dst] + bias_ns,
            slope=(1 - drift[dst]) / (1 - drift[src]) - 1,
            margin_ns=zero + FLOOR_NS,
            sigma_offset_ns=zero + 3.0,
            sigma_out_ns=zero + 4.0,
            sigma_back_ns=zero + 4.0,
            sigma_slope=zero + 1e-8,
            points=zero + 10,
            pure_share=zero + 1,
            reason=np.zeros(len(src), np.uint8),
        )
        edges = GraphEdges.settled(src, dst, self.path, fits)
        return edges.where(self.changed[src] | self.changed[dst])

    def place(
        self, edges: GraphEdges, floors: PairFloors | None = None, own: OwnFits | None = None
    ) -> Placed | None:
        return place(
            edges,
            own or OwnFits.nothing(),
            self.changed,
            prediction=self.prediction(),
            before=self.before(),
            floors=floors or PairFloors(),
        )


def floors_of(world: World, bias_ns: F64) -> PairFloors:
    """Learnt from requests and replies, when nothing had changed yet."""
    floors = PairFloors()
    name = pair_names(world.path, world.a, world.b)
    order = np.argsort(name)
    margins = np.stack((FLOOR_NS + bias_ns, FLOOR_NS - bias_ns))[:, order]
    floors.update(name[order], margins, np.full(margins.shape, 2.0), INSTANT_NS - 5 * S)
    return floors


def own_fits(world: World, hosts: Bool, *, age_s: float = 0.2) -> OwnFits:
    """What changed hosts know of themselves: a clock that is ahead of the timeline has a smaller g."""
    host = np.flatnonzero(hosts)
    one = np.ones(len(host))
    rate = -world.faster[host]
    return OwnFits(
        host=host,
        ref_ns=INSTANT_NS - world.g_ns[host] - round(age_s * S),
        ahead_ns=-world.ahead_ns[host] - rate * age_s * NS_PER_S,
        sigma_ns=20 * one,
        rate=rate,
        sigma_rate=100e-9 * one,
    )


@settings(max_examples=40)
@given(st.integers(0, 10**6), st.integers(3, 25), st.floats(0, 1))
def test_changed_hosts_are_found_exactly_where_nothing_disturbs(seed: int, n: int, share: float) -> None:
    world = World(n, 1 + round(share * (n - 2)), seed)
    bias_ns = world.rng.uniform(-1e3, 1e3, len(world.a))
    placed = world.place(world.fits(bias_ns), floors_of(world, bias_ns))
    assert np.array_equal(placed.found, world.changed)
    changed = world.changed
    assert placed.ahead_ns[changed] == pytest.approx(world.ahead_ns[changed], abs=2)
    drift_ns = (world.drift + world.faster)[changed] * NS_PER_S
    assert placed.drift_ns[changed] == pytest.approx(drift_ns, abs=2)
    for sigma in (placed.sigma_ns, placed.sigma_drift_ns):
        assert np.isfinite(sigma[changed]).all()
        assert (sigma[changed] >= 1).all()


@pytest.mark.parametrize("seed", range(5))
def test_a_pair_of_which_no_floor_is_known_has_the_fleets(seed: int) -> None:
    world = World(10, 4, seed)
    common = np.full(len(world.a), 700.0)
    floors = floors_of(world, common)
    stranger = replace(world.fits(common), path=np.full(len(world.fits().src), 3))
    placed = world.place(stranger, floors)
    assert placed.ahead_ns[world.changed] == pytest.approx(world.ahead_ns[world.changed], abs=2)


@settings(max_examples=20)
@given(st.integers(0, 10**6), st.integers(2, 15))
def test_where_all_have_changed_they_keep_their_median(seed: int, n: int) -> None:
    world = World(n, n, seed)
    placed = world.place(world.fits())
    assert placed.found.all()
    expected_ns = world.ahead_ns - np.median(world.ahead_ns)
    assert np.median(placed.ahead_ns) == pytest.approx(0, abs=1e-6)
    assert placed.ahead_ns == pytest.approx(expected_ns, abs=4)
    faster = -np.log1p(-(world.drift + world.faster)) + np.log1p(-world.drift)
    here = -np.log1p(-placed.drift_ns / NS_PER_S) + np.log1p(-world.drift)
    assert here - np.median(here) == pytest.approx(faster - np.median(faster), abs=2e-9)
    assert np.isfinite(placed.sigma_ns).all()
    assert np.isfinite(placed.sigma_drift_ns).all()


@settings(max_examples=20)
@given(st.integers(0, 10**6), st.integers(1, 8))
def test_what_hosts_say_of_themselves_places_them_alone(seed: int, changed: int) -> None:
    world = World(8, changed, seed)
    nothing = world.fits().where(np.zeros(len(world.fits().src), bool))
    placed = world.place(nothing, own=own_fits(world, world.changed))
    assert np.array_equal(placed.found, world.changed)
    assert placed.ahead_ns[world.changed] == pytest.approx(world.ahead_ns[world.changed], abs=2)
    drift_ns = (world.drift + world.faster)[world.changed] * NS_PER_S
    assert placed.drift_ns[world.changed] == pytest.approx(drift_ns, abs=3)
    assert (placed.sigma_ns[world.changed] >= 20).all()


def test_the_words_of_hosts_and_their_edges_count_by_their_errors() -> None:
    world = World(8, 2, 1)
    own = own_fits(world, world.changed)
    wrong = replace(own, ahead_ns=own.ahead_ns + 30, sigma_ns=np.full(2, 300.0))
    placed = world.place(world.fits(), own=wrong)
    assert placed.ahead_ns[world.changed] == pytest.approx(world.ahead_ns[world.changed], abs=3)
    alone = world.place(world.fits())
    assert (placed.sigma_ns[world.changed] <= alone.sigma_ns[world.changed] * 1.001).all()


def test_a_fit_that_lies_moves_nobody() -> None:
    world = World(12, 3, 2)
    world.ahead_ns[:] = 0
    edges = world.fits()
    edges.fits.offset_frac_ns[0] += 20_000
    placed = world.place(edges)
    tied_twice = np.bincount(edges.src[1:], minlength=12) + np.bincount(edges.dst[1:], minlength=12) > 2
    assert np.abs(placed.ahead_ns[world.changed & tied_twice]).max() < 5


def test_who_is_not_tied_to_the_others_is_not_found() -> None:
    world = World(8, 3, 3)
    lonely = np.flatnonzero(world.changed)[0]
    edges = world.fits()
    edges.fits.reason[(edges.src == lonely) | (edges.dst == lonely)] = FitReason.CUT
    placed = world.place(edges)
    others = world.changed & (np.arange(8) != lonely)
    assert not placed.found[lonely]
    assert np.isinf(placed.sigma_ns[lonely])
    assert placed.ahead_ns[others & placed.found] == pytest.approx(
        world.ahead_ns[others & placed.found], abs=2
    )


def test_without_a_timeline_or_a_fit_nobody_is_placed() -> None:
    world = World(4, 1, 4)
    edges = world.fits()
    no_timeline = Prediction.nothing(4)
    nobody = place(
        edges,
        OwnFits.nothing(),
        world.changed,
        prediction=no_timeline,
        before=world.before(),
        floors=PairFloors(),
    )
    assert nobody is None
    edges.fits.reason[:] = FitReason.CUT
    assert world.place(edges) is None


def test_errors_grow_with_what_the_others_are_not_known_by() -> None:
    world = World(6, 1, 5)
    host = world.changed
    vague = replace(world.before(), var=np.full(6, 1e4))
    plain = world.place(world.fits())
    among = place(
        world.fits(),
        OwnFits.nothing(),
        world.changed,
        prediction=world.prediction(),
        before=vague,
        floors=PairFloors(),
    )
    assert among.sigma_ns[host] > 5 * plain.sigma_ns[host]


def fused(
    ahead_ns: float, sigma_ns: float, *, since_s: float, drift_ns: float = 0.0, sigma_drift_ns: float = 1e5
) -> Fused:
    """Of one host, known to within 20 ns when it changed, by up to some 20 ppm."""

    def one(value: float) -> F64:
        return np.array([value])

    placed = Placed(np.ones(1, bool), one(ahead_ns), one(sigma_ns), one(drift_ns), one(sigma_drift_ns))
    return fuse(placed, one(0.0), one(400.0), one(since_s), one(20_000.0))


def test_a_place_that_is_well_known_is_kept() -> None:
    found = fused(5_000.0, 2.0, since_s=0.5)
    assert found.ahead_ns[0] == pytest.approx(5_000, abs=1)
    assert np.sqrt(found.var[0]) == pytest.approx(2, rel=0.01)


def test_the_line_goes_through_where_the_clock_changed() -> None:
    """Ten ppm for half a second: neither the place nor the rate is known well, both together are."""
    found = fused(5_000.0, 30.0, since_s=0.5)
    assert found.drift_ns[0] == pytest.approx(10_000, rel=0.05)
    assert np.sqrt(found.var_drift[0]) < 500
    rated = fused(0.0, 5_000.0, since_s=0.5, drift_ns=10_000.0, sigma_drift_ns=20.0)
    assert rated.ahead_ns[0] == pytest.approx(5_000, rel=0.05)
    assert np.sqrt(rated.var[0]) < 250
    assert found.cov[0] > 0
    assert rated.cov[0] > 0


def test_a_clock_that_has_jumped_is_where_it_is_placed() -> None:
    jumped = fused(1e6, 200.0, since_s=0.1, drift_ns=0.0, sigma_drift_ns=100.0)
    assert jumped.ahead_ns[0] == pytest.approx(1e6, abs=1)
    assert abs(jumped.drift_ns[0]) < 1
    assert np.sqrt(jumped.var[0]) == pytest.approx(200, rel=0.01)
    assert jumped.cov[0] == 0


@pytest.mark.parametrize("jump_ns", [3e3, 1e5, 1e6])
def test_a_jump_that_may_have_been_a_change_of_rate_is_told_by_the_rate_since(jump_ns: float) -> None:
    """The edges saw it as a rate: all of it within a tenth of a second. Since then the clock goes on at its old one."""

    def one(value: float) -> F64:
        return np.array([value])

    wildest_ns = 2 * jump_ns / 0.1
    placed = Placed(np.ones(1, bool), one(jump_ns), one(20.0), one(0.0), one(500.0))
    found = fuse(placed, one(0.0), one(400.0), one(0.5), one(wildest_ns))
    assert found.ahead_ns[0] == pytest.approx(jump_ns, abs=100)
    assert abs(found.drift_ns[0]) < 2_500


positive = st.floats(1.0, 1e6) | st.just(np.inf)


@settings(max_examples=100)
@given(
    ahead_ns=st.floats(-1e9, 1e9),
    sigma_ns=positive,
    drift_ns=st.floats(-1e6, 1e6),
    sigma_drift_ns=positive,
    known=st.tuples(st.floats(0, 1e12), st.floats(-5, 30), st.floats(1e-3, 1e6)),
)
def test_what_is_fused_has_a_proper_covariance(
    ahead_ns: float, sigma_ns: float, drift_ns: float, sigma_drift_ns: float, known: tuple[float, ...]
) -> None:
    numbers = (np.array([value]) for value in (ahead_ns, sigma_ns, drift_ns, sigma_drift_ns))
    found = fuse(Placed(np.ones(1, bool), *numbers), np.zeros(1), *(np.array([value]) for value in known))
    for value in (found.ahead_ns, found.drift_ns, found.var, found.cov, found.var_drift):
        assert np.isfinite(value).all()
    assert found.var[0] > 0
    assert found.var_drift[0] > 0
    assert found.cov[0] ** 2 <= found.var[0] * found.var_drift[0]
