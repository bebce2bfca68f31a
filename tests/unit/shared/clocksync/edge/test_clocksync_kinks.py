"""Probes that arrive earlier than any can: which edges have bent, and whether it was the own clock."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
from clocks import ChangingClock
from hypothesis import given, settings
from hypothesis import strategies as st

from cwdp.shared.clocksync import BEFORE_FLOOR_NS, EdgePrior, Lines, against_before, find_bent, fit_edges
from cwdp.shared.clocksync._types import F64, I64, Bool

S = 1_000_000_000
MS = 1_000_000
FLOOR_NS = 5_000.0
TURNAROUND_NS = 1_000.0
BEGIN_NS = 1_000 * S
CHANGE_NS = BEGIN_NS + 500 * MS
OFFSETS_NS = 7 * S * np.arange(-10, 10)
RATES = 3e-6 * np.arange(-10, 10)


@dataclass(frozen=True)
class Probing:
    """A second of probes of some edges; every edge has a line that was right at its beginning.

    Attributes:
        edge: the edge of each probe.
        stamps_ns: int64 [4, probes].
    """

    edge: I64
    stamps_ns: I64

    def where(self, keep: Bool) -> "Probing":
        return Probing(self.edge[keep], self.stamps_ns[:, keep])

    def until(self, last_ns: int) -> "Probing":
        return self.where(self.stamps_ns[0] < last_ns)


def probing(
    edges: int,
    *,
    own_rate: float = 0.0,
    peer_rates: dict[int, float] | None = None,
    own_jump_ns: float = 0.0,
    wait_ns: F64 | None = None,
    jitter_ns: float = 20.0,
    shorter_ns: float = 0.0,
    per_s: int = 100,
) -> Probing:
    """Probes by clocks that change their rates half a second after the beginning.

    `wait_ns` is float64 [2, edges * per_s], on top of jitter; `shorter_ns` is taken off every way after the change.
    """
    rng = np.random.default_rng(edges)
    n = edges * per_s
    edge = np.tile(np.arange(edges), per_s)
    sent = BEGIN_NS + np.sort(rng.uniform(0, S, n))
    there, back = rng.exponential(jitter_ns, (2, n)) + FLOOR_NS + (0.0 if wait_ns is None else wait_ns)
    shorter = np.where(sent >= CHANGE_NS, shorter_ns, 0.0)
    arrived = sent + there - shorter
    returned = arrived + TURNAROUND_NS
    answered = returned + back - shorter

    own = ChangingClock(changes=[(CHANGE_NS, own_rate, own_jump_ns)])

    def peer(at: F64) -> I64:
        more = np.zeros(edges)
        for which, rate in (peer_rates or {}).items():
            more[which] = rate
        elapsed = RATES[:edges][edge] * (at - BEGIN_NS) + more[edge] * np.maximum(at - CHANGE_NS, 0.0)
        return np.rint(at + elapsed).astype(np.int64) + OFFSETS_NS[:edges][edge]

    return Probing(edge, np.stack((own.at(sent), peer(arrived), peer(returned), own.at(answered))))


def lines(edges: int) -> Lines:
    one = np.ones(edges)
    return Lines(
        ref_ns=np.full(edges, BEGIN_NS),
        offset_ns=OFFSETS_NS[:edges],
        frac_ns=0 * one,
        slope=RATES[:edges],
        var_offset=4 * one,
        covariance=0 * one,
        var_slope=4 * one,
        wander_ns=2 * one,
        floor_ns=FLOOR_NS * one,
        sigma_floor_ns=2 * one,
        known=np.ones(edges, bool),
    )


def never(edges: int) -> Bool:
    return np.zeros((2, edges), bool)


@pytest.mark.parametrize("rate", [1e-6, -1e-6, 10e-6, -10e-6, 300e-6])
@pytest.mark.parametrize("edges", [2, 3, 8])
def test_a_step_of_the_own_rate_bends_all_edges_to_one_side(edges: int, rate: float) -> None:
    data = probing(edges, own_rate=rate)
    bent = find_bent(data.edge, data.stamps_ns, lines(edges), never(edges))
    assert bent.own
    early, late = (bent.out, bent.back) if rate > 0 else (bent.back, bent.out)
    assert early.all()
    assert not late.any()
    assert 0 <= bent.own_since_ns - CHANGE_NS < 150 * MS
    assert 0.5 < bent.rate / abs(rate) < 2
    assert not bent.lone.any()


@pytest.mark.parametrize("rate", [10e-6, -10e-6])
def test_half_of_the_edges_are_enough_to_know_the_own_clock(rate: float) -> None:
    """The others lie in queues."""
    wait_ns = np.zeros((2, 800))
    wait_ns[:, np.tile(np.arange(8), 100) >= 4] = 50_000.0
    data = probing(8, own_rate=rate, wait_ns=wait_ns)
    bent = find_bent(data.edge, data.stamps_ns, lines(8), never(8))
    assert bent.own
    assert np.flatnonzero(bent.out | bent.back).tolist() == [0, 1, 2, 3]


def test_less_than_half_of_the_edges_are_not() -> None:
    data = probing(8, peer_rates=dict.fromkeys(range(3), -10e-6))
    bent = find_bent(data.edge, data.stamps_ns, lines(8), never(8))
    assert not bent.own
    assert np.flatnonzero(bent.out).tolist() == [0, 1, 2]


@pytest.mark.parametrize("rate", [10e-6, -10e-6])
def test_of_a_single_edge_nobody_can_tell(rate: float) -> None:
    data = probing(1, own_rate=rate)
    bent = find_bent(data.edge, data.stamps_ns, lines(1), never(1))
    assert not bent.own
    assert (bent.out | bent.back).all()


@pytest.mark.parametrize("edges", [2, 3, 8])
@pytest.mark.parametrize("rate", [1e-6, -1e-6, 10e-6, -10e-6])
def test_a_step_of_a_peers_rate_bends_its_edge_alone(edges: int, rate: float) -> None:
    data = probing(edges, peer_rates={1: rate})
    bent = find_bent(data.edge, data.stamps_ns, lines(edges), never(edges))
    early, late = (bent.back, bent.out) if rate > 0 else (bent.out, bent.back)
    assert (
        np.flatnonzero(early).tolist() == np.flatnonzero(bent.suspect_out | bent.suspect_back).tolist() == [1]
    )
    assert not late.any()
    assert not bent.own
    assert 0 <= bent.since_ns[1] - CHANGE_NS < 150 * MS
    assert 0.5 < bent.rate / abs(rate) < 2


def test_a_jump_of_the_own_clock_is_found_as_its_own() -> None:
    for jump_ns in (500.0, -500.0):
        data = probing(4, own_jump_ns=jump_ns)
        bent = find_bent(data.edge, data.stamps_ns, lines(4), never(4))
        assert bent.own
        assert 0 <= bent.own_since_ns - CHANGE_NS < 50 * MS


@settings(max_examples=60)
@given(st.integers(1, 6), st.data())
def test_whatever_waits_in_queues_bends_nothing(edges: int, data: st.DataObject) -> None:
    n = edges * 20
    delays = st.floats(0, 1e9) | st.just(0.0)
    wait_ns = np.array(data.draw(st.lists(delays, min_size=2 * n, max_size=2 * n))).reshape(2, n)
    seen = probing(edges, wait_ns=wait_ns, per_s=20)
    bent = find_bent(seen.edge, seen.stamps_ns, lines(edges), never(edges))
    for none in (bent.out, bent.back, bent.suspect_out, bent.suspect_back, bent.lone):
        assert not none.any()
    assert not bent.own
    assert bent.rate == 0


def test_wrong_stamps_of_a_short_stretch_bend_nothing_and_are_lone_later() -> None:
    data = probing(4)
    wrong = (data.stamps_ns[0] >= CHANGE_NS) & (data.stamps_ns[0] < CHANGE_NS + 35 * MS)
    data.stamps_ns[0, wrong] += 20_000
    data.stamps_ns[3, wrong] += 20_000
    for after_ms, lone in ((40, False), (200, False), (400, True)):
        seen = data.until(CHANGE_NS + after_ms * MS)
        bent = find_bent(seen.edge, seen.stamps_ns, lines(4), never(4))
        assert not bent.own
        assert not (bent.out | bent.back).any()
        assert bent.suspect_out.all()
        assert np.array_equal(bent.lone, wrong[: len(seen.edge)] & lone)


def test_probes_of_a_bent_edge_are_not_lone() -> None:
    data = probing(4, own_rate=10e-6)
    late = data.stamps_ns[0] > CHANGE_NS + 150 * MS
    data.stamps_ns[1:3, late] += 100_000  # queues hide the rest of it
    bent = find_bent(data.edge, data.stamps_ns, lines(4), never(4))
    assert bent.out.all()
    assert not bent.lone.any()


@pytest.mark.parametrize("edges", [1, 2, 8])
def test_a_shorter_way_bends_edges_both_ways_and_is_no_change_of_the_own_clock(edges: int) -> None:
    data = probing(edges, shorter_ns=300.0)
    bent = find_bent(data.edge, data.stamps_ns, lines(edges), never(edges))
    assert bent.out.all()
    assert bent.back.all()
    assert not bent.own


def test_edges_of_which_nothing_is_known_are_not_judged() -> None:
    data = probing(6, own_rate=10e-6)
    some = replace(lines(6), known=np.arange(6) < 3, floor_ns=np.where(np.arange(6) < 3, FLOOR_NS, np.nan))
    bent = find_bent(data.edge, data.stamps_ns, some, never(6))
    assert np.flatnonzero(bent.suspect_out | bent.suspect_back).tolist() == [0, 1, 2]
    assert bent.own
    nothing = replace(some, known=np.zeros(6, bool))
    bent = find_bent(data.edge, data.stamps_ns, nothing, never(6))
    assert not bent.own
    assert not (bent.suspect_out | bent.suspect_back).any()
    assert bent.rate == 0


def test_edges_that_bent_a_moment_before_count_towards_the_own_clock() -> None:
    """Their lines were let go of at once, so nothing shows on them any more."""
    data = probing(4, own_rate=10e-6)
    known = np.array([False, True, False, False])
    only = data.where(data.edge < 2)
    alone = find_bent(only.edge, only.stamps_ns, replace(lines(4), known=known), never(4))
    assert not alone.own
    lately = never(4)
    lately[0, [0, 2]] = True
    bent = find_bent(only.edge, only.stamps_ns, replace(lines(4), known=known), lately)
    assert bent.own
    assert 0 <= bent.own_since_ns - CHANGE_NS < 50 * MS
    lately[1, [0, 2]] = True
    assert not find_bent(only.edge, only.stamps_ns, replace(lines(4), known=known), lately).own


def test_a_line_that_is_hardly_known_allows_for_more() -> None:
    data = probing(4, own_rate=1e-6)
    vague = replace(lines(4), var_slope=np.full(4, 1e6))
    bent = find_bent(data.edge, data.stamps_ns, vague, never(4))
    assert not (bent.suspect_out | bent.suspect_back).any()


def test_no_probes_are_no_change() -> None:
    data = probing(3).until(0)
    bent = find_bent(data.edge, data.stamps_ns, lines(3), never(3))
    assert not bent.own
    assert len(bent.lone) == 0


@pytest.mark.parametrize("rate", [1e-6, -10e-6, 300e-6])
@pytest.mark.parametrize("queued", [0.0, 0.6])
def test_against_what_was_before_all_edges_tell_the_own_change_together(rate: float, queued: float) -> None:
    rng = np.random.default_rng(5)
    wait_ns = (rng.random((2, 600)) < queued) * rng.exponential(50_000, (2, 600))
    data = probing(6, own_rate=rate, wait_ns=wait_ns)
    since = data.where((data.stamps_ns[0] >= CHANGE_NS) & (data.stamps_ns[0] < CHANGE_NS + 300 * MS))
    one = np.ones(len(since.edge))
    fit = fit_edges(
        against_before(since.edge, since.stamps_ns, one, one, lines(6)), EdgePrior.of_floor(BEFORE_FLOOR_NS)
    )
    assert fit.valid.all()
    ahead_ns = -(fit.offset_ns[0] + fit.offset_frac_ns[0])
    truth_ns = rate / (1 + rate) * (fit.ref_ns[0] - CHANGE_NS)
    assert ahead_ns == pytest.approx(truth_ns, abs=max(5 * fit.sigma_offset_ns[0], 10))
    assert -fit.slope[0] == pytest.approx(rate / (1 + rate), abs=5 * fit.sigma_slope[0])
    assert fit.sigma_offset_ns[0] < 100
    assert fit.margin_ns[0] == pytest.approx(BEFORE_FLOOR_NS, abs=200)


def test_against_what_was_before_leaves_out_unknown_edges() -> None:
    data = probing(4, own_rate=10e-6)
    weight = np.arange(len(data.edge), dtype=np.float64)
    known = np.array([True, False, True, False])
    exchanges = against_before(data.edge, data.stamps_ns, weight, -weight, replace(lines(4), known=known))
    kept = known[data.edge]
    assert exchanges.starts.tolist() == [0, kept.sum()]
    assert np.array_equal(exchanges.t1_ns, data.stamps_ns[0, kept])
    assert np.array_equal(exchanges.t4_ns, data.stamps_ns[3, kept])
    assert np.array_equal(exchanges.weight_out, weight[kept])
    assert np.array_equal(exchanges.weight_back, -weight[kept])
