"""The manager keeps hosts whose clocks have changed apart from the others until they have settled."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from changed_fleet import BEGIN_NS, CUT_S, NOTICED_S, YOUNG_S, ChangedFleet, S
from hypothesis import given, settings
from hypothesis import strategies as st

from cwdp.shared.clocksync._types import LONG_AGO, NS_PER_S, Bool
from cwdp.shared.clocksync.graph.pairs import PairFloors
from cwdp.shared.clocksync.graph.solve import GraphEdges, OwnFits, Solution
from cwdp.shared.clocksync.timeline.changes import Changes
from cwdp.shared.clocksync.timeline.hostlines import HostLines
from cwdp.shared.clocksync.timeline.track import BOUND_SIGMAS, HostClocks, HostState, Tracks

CHANGE_S = 10.0
TICK_S = 0.25
PPM = 1e-6


def run(
    fleet: ChangedFleet, tracks: Tracks, to_s: float, from_s: float = 0.0
) -> Iterator[tuple[float, Solution | None, HostClocks]]:
    """Four solutions a second."""
    for tick in range(round(from_s / TICK_S), round(to_s / TICK_S)):
        now_s = tick * TICK_S
        solution = tracks.step(fleet.edges(now_s))
        clocks = tracks.clocks()
        assert clocks is not None
        yield now_s, solution, clocks


def lines_of(fleet: ChangedFleet, now_s: float) -> HostLines:
    """Where all would be had they not changed, to within 3 ns."""
    one = np.ones(fleet.n)
    instant_ns = BEGIN_NS + round(now_s * NS_PER_S)
    g_ns = fleet.g0_ns + np.rint(fleet.drift * now_s * NS_PER_S).astype(np.int64)
    return HostLines(
        np.full(fleet.n, instant_ns), g_ns, 0 * one, fleet.drift * NS_PER_S, 9 * one, 0 * one, one
    )


def noted(fleet: ChangedFleet, edges: GraphEdges, now_s: float, known: Bool | None = None) -> Changes:
    changes = Changes(fleet.n)
    changes.note(edges, lines_of(fleet, now_s), np.ones(fleet.n, bool) if known is None else known)
    changes.begin(edges, lines_of(fleet, now_s))
    return changes


def without_own_word(edges: GraphEdges) -> GraphEdges:
    return replace(edges, own=np.zeros(len(edges.src), bool))


@settings(max_examples=25)
@given(st.integers(0, 10**6), st.integers(0, 11), st.booleans())
def test_a_host_most_of_whose_edges_are_young_is_named(seed: int, host: int, own_word: bool) -> None:
    fleet = ChangedFleet(seed=seed)
    fleet.change([host], CHANGE_S, 10 * PPM)
    edges = fleet.edges(CHANGE_S + 0.15)
    changes = noted(fleet, edges if own_word else without_own_word(edges), CHANGE_S)
    assert np.flatnonzero(changes.now).tolist() == [host]
    assert abs(changes.since_ns[host] - BEGIN_NS - CHANGE_S * S) < 0.1 * S
    assert (np.delete(changes.since_ns, host) == LONG_AGO).all()
    assert np.array_equal(changes.touches(edges), fleet.touching(host))


def test_a_host_is_named_by_its_own_word_before_its_peers_notice() -> None:
    fleet = ChangedFleet()
    fleet.change([5], CHANGE_S, 10 * PPM)
    fleet.noticed_s[fleet.dst == 5] = 1.0
    edges = fleet.edges(CHANGE_S + 0.3)
    assert edges.young[fleet.src == 5].all()
    assert not edges.young[fleet.src != 5].any()
    assert np.flatnonzero(noted(fleet, edges, CHANGE_S).now).tolist() == [5]


def test_edges_of_hosts_that_say_so_themselves_accuse_nobody_else() -> None:
    """Two of the three edges of host 2 are young, but each of the other ends says that it was its own clock."""
    ends = np.array([(0, 2), (1, 2), (2, 3), (3, 4), (4, 3), (3, 0), (4, 0), (3, 1), (4, 1)])
    fleet = ChangedFleet(n=5)
    fleet.src, fleet.dst = ends.T
    fleet.noticed_s = np.where(np.arange(len(ends)) < 2, NOTICED_S, 1.0)
    fleet.change([0, 1], CHANGE_S, 10 * PPM)
    edges = fleet.edges(CHANGE_S + 0.3)
    assert np.flatnonzero(edges.young).tolist() == [0, 1]
    assert np.flatnonzero(noted(fleet, edges, CHANGE_S).now).tolist() == [0, 1]


def test_a_host_that_no_edge_ties_to_steady_ones_counts_as_changed() -> None:
    fleet = ChangedFleet(n=12, rings=1)
    alone = fleet.src[0]
    peers = fleet.dst[fleet.src == alone]
    fleet.change(peers, CHANGE_S, 10 * PPM)
    edges = fleet.edges(CHANGE_S + 0.15)
    assert np.array_equal(np.flatnonzero(noted(fleet, edges, CHANGE_S).now), np.sort([alone, *peers]))


def test_a_young_edge_between_steady_hosts_names_nobody() -> None:
    fleet = ChangedFleet()
    edges = fleet.edges(CHANGE_S)
    edges.young[:2] = True
    assert not noted(fleet, edges, CHANGE_S).now.any()


def test_hosts_without_a_track_are_not_named() -> None:
    fleet = ChangedFleet()
    fleet.change([5], CHANGE_S, 10 * PPM)
    edges = fleet.edges(CHANGE_S + 0.15)
    assert not noted(fleet, edges, CHANGE_S, known=np.arange(12) != 5).now.any()


def test_who_has_settled_is_told_once() -> None:
    fleet = ChangedFleet()
    fleet.change([5], CHANGE_S, 10 * PPM)
    changes, known = Changes(12), np.ones(12, bool)
    told = []
    for now_s in np.arange(CHANGE_S, CHANGE_S + 5, TICK_S):
        over = changes.note(fleet.edges(now_s), lines_of(fleet, now_s), known)
        changes.begin(fleet.edges(now_s), lines_of(fleet, now_s))
        told += [(now_s, host) for host in np.flatnonzero(over)]
        assert changes.now[5] == (CHANGE_S + NOTICED_S <= now_s < CHANGE_S + YOUNG_S)
    assert told == [(CHANGE_S + YOUNG_S, 5)]


def test_fits_that_rest_on_what_was_before_a_change_are_known() -> None:
    fleet = ChangedFleet()
    fleet.change([5], CHANGE_S, 10 * PPM)
    fleet.noticed_s[fleet.dst == 5] = 1.0
    changes = noted(fleet, fleet.edges(CHANGE_S + 0.3), CHANGE_S)
    early, late = fleet.edges(CHANGE_S + 0.5), fleet.edges(CHANGE_S + 1.25)
    lines = lines_of(fleet, CHANGE_S + 0.5)
    assert np.array_equal(changes.rests_on_before(early, lines), fleet.dst == 5)
    assert not changes.rests_on_before(late, lines).any()
    assert not changes.rests_on_before(early, lines_of(fleet, CHANGE_S + 9.5)).any()


def test_what_is_kept_of_changes_follows_the_slots() -> None:
    fleet = ChangedFleet()
    fleet.change([5, 9], CHANGE_S, 10 * PPM)
    changes = noted(fleet, fleet.edges(CHANGE_S + 0.15), CHANGE_S)
    since_ns, drift_ns = changes.since_ns.copy(), changes.lines.drift_ns.copy()
    changes.resize(20)
    assert np.flatnonzero(changes.now).tolist() == [5, 9]
    assert changes.since_ns[:12].tolist() == since_ns.tolist()
    assert (changes.since_ns[12:] == LONG_AGO).all()
    assert changes.lines.drift_ns[:12].tolist() == drift_ns.tolist()
    changes.clear(np.array([5]))
    assert np.flatnonzero(changes.now).tolist() == [9]
    assert changes.since_ns[5] == LONG_AGO
    changes.resize(6)
    assert len(changes.lines.g_ns) == len(changes.since_ns) == 6
    assert not changes.now.any()


def test_a_host_of_which_nothing_was_measured_since_is_not_found_but_followed() -> None:
    fleet = ChangedFleet()
    fleet.change([5], CHANGE_S, 10 * PPM)
    now_s = CHANGE_S + NOTICED_S + 0.05
    assert now_s < CHANGE_S + CUT_S
    changes, lines, known = Changes(12), lines_of(fleet, now_s), np.ones(12, bool)
    edges = fleet.edges(now_s)
    changes.note(edges, lines, known)
    changes.begin(edges, lines)
    changes.place(edges, OwnFits.nothing(), lines, known, wander=np.full(12, 2e-9), floors=PairFloors())
    assert not changes.found.any()
    assert changes.lines.g_ns[5] == lines.g_ns[5]
    left_ns = 10 * PPM * (now_s - CHANGE_S) * NS_PER_S
    assert BOUND_SIGMAS * np.sqrt(changes.lines.var[5]) > 3 * left_ns
    later = changes.lines.at(int(lines.ref_ns[5]) + S, np.full(12, 2e-9))
    assert BOUND_SIGMAS * np.sqrt(later.var[5]) > 3 * 10 * PPM * NS_PER_S


@pytest.mark.parametrize("by", [10 * PPM, -3 * PPM, 200 * PPM])
def test_others_do_not_move_while_one_changes_and_it_is_found_soon(by: float) -> None:
    fleet, steady = ChangedFleet(seed=2), ChangedFleet(seed=2)
    fleet.change([5], CHANGE_S, by)
    tracks, twin = Tracks(12), Tracks(12)
    others = np.arange(12) != 5
    for (now_s, _, clocks), (_, _, as_ever) in zip(
        run(fleet, tracks, 16), run(steady, twin, 16), strict=True
    ):
        shown, plain = fleet.shown_ns(clocks, now_s), steady.shown_ns(as_ever, now_s)
        assert shown[others] == pytest.approx(plain[others], abs=3)
        assert (clocks.state[others] == HostState.SYNCED).all()
        if now_s < CHANGE_S:
            continue
        assert clocks.changing.tolist() == (~others & (NOTICED_S <= now_s - CHANGE_S < YOUNG_S)).tolist()
        if now_s > CHANGE_S:
            error_ns = abs(fleet.error_ns(clocks, now_s)[5])
            assert error_ns < clocks.bound_ns[5] + clocks.bound_growth[5]
            assert clocks.state[5] == HostState.SYNCED
            assert not clocks.settled[5] or now_s >= CHANGE_S + YOUNG_S
        if now_s >= CHANGE_S + 1:
            assert error_ns < 10
            assert clocks.bound_ns[5] < 40
    assert clocks.settled.all()


def test_after_it_has_settled_a_host_goes_on_from_where_it_was_found() -> None:
    fleet = ChangedFleet(seed=3)
    fleet.change([5], CHANGE_S, -20 * PPM)
    tracks = Tracks(12)
    before = None
    for now_s, _, clocks in run(fleet, tracks, CHANGE_S + 5):
        if before is not None and now_s >= CHANGE_S + YOUNG_S:
            error_ns = fleet.error_ns(clocks, now_s)[5]
            assert abs(error_ns - fleet.error_ns(before, now_s)[5]) < 6
            assert abs(error_ns) < 6
            assert clocks.drift[5] == pytest.approx(before.drift[5], abs=20e-9)
            assert clocks.state[5] == HostState.SYNCED
            assert clocks.bound_ns[5] < 40
        before = clocks


def test_fits_that_rest_on_what_was_before_are_left_out_until_they_do_no_longer() -> None:
    """A host's peer has learnt of the change, its own window has not: the fit would be of two rates."""
    fleet = ChangedFleet(seed=4)
    fleet.change([5], CHANGE_S, 10 * PPM)
    slow = np.flatnonzero(fleet.dst == 5)[:1]
    fleet.noticed_s[slow] = YOUNG_S + 1.5
    tracks = Tracks(12)
    for now_s, solution, clocks in run(fleet, tracks, CHANGE_S + YOUNG_S + 4):
        if now_s > CHANGE_S + 1:
            assert np.abs(fleet.error_ns(clocks, now_s)).max() < 10
        if CHANGE_S + YOUNG_S <= now_s < CHANGE_S + YOUNG_S + 1.5:
            assert solution is not None
            assert np.flatnonzero(np.isnan(solution.residual_ns)).tolist() == slow.tolist()
            assert not solution.rejected.any()
    assert solution is not None
    assert np.isfinite(solution.residual_ns[fleet.dst != 5]).all()


def test_a_host_with_no_fit_since_its_change_holds_over() -> None:
    fleet = ChangedFleet()
    fleet.change([5], CHANGE_S, 10 * PPM)
    tracks = Tracks(12)
    for _ in run(fleet, tracks, CHANGE_S + 0.1):
        pass
    tracks.step(fleet.edges(CHANGE_S + NOTICED_S + 0.05))
    clocks = tracks.clocks()
    assert clocks is not None
    assert clocks.state[5] == HostState.HOLDOVER
    assert (np.delete(clocks.state, 5) == HostState.SYNCED).all()
    assert clocks.bound_growth[5] > 10 * PPM * NS_PER_S


def test_what_a_host_says_of_itself_finds_it_before_its_edges_do() -> None:
    fleet = ChangedFleet()
    fleet.change([5], CHANGE_S, 10 * PPM)
    tracks = Tracks(12)
    for _ in run(fleet, tracks, CHANGE_S + 0.1):
        pass
    now_s = CHANGE_S + NOTICED_S + 0.05
    since_s = now_s - CHANGE_S - 0.05
    one = np.ones(1)
    own = OwnFits(
        host=np.array([5]),
        ref_ns=fleet.local_ns(np.array([5]), np.array([CHANGE_S + since_s])),
        ahead_ns=-10 * PPM * since_s * NS_PER_S * one,
        sigma_ns=20 * one,
        rate=-10 * PPM * one,
        sigma_rate=1 * PPM * one,
    )
    tracks.step(fleet.edges(now_s), own)
    clocks = tracks.clocks()
    assert clocks is not None
    assert clocks.state[5] == HostState.SYNCED
    assert abs(fleet.error_ns(clocks, now_s)[5]) < 100


@pytest.mark.parametrize("sigma", [1 * PPM, 10 * PPM, 100 * PPM])
def test_a_fleet_in_which_all_change_keeps_its_timeline(sigma: float) -> None:
    """The median host goes on; a timeline begun anew would be that host's own clock, seconds away."""
    fleet = ChangedFleet(seed=5)
    by = np.random.default_rng(5).normal(0, sigma, 12)
    fleet.change(np.arange(12), CHANGE_S, by)
    tracks = Tracks(12)
    shown, times, instants = [], [], []
    for now_s, _, clocks in run(fleet, tracks, CHANGE_S + 5):
        shown.append(np.median(fleet.shown_ns(clocks, now_s)))
        times.append(now_s)
        instants.append(clocks.instant_ns)
        assert (clocks.state != HostState.SET_ASIDE).all()
        if now_s >= CHANGE_S + 1:
            assert np.abs(fleet.error_ns(clocks, now_s)).max() < 12
    assert (np.diff(instants) >= 0).all()
    rate = np.diff(shown) / (np.diff(times) * NS_PER_S)
    old = np.median(rate[20:40])
    assert np.abs(rate[20:] - old).max() < np.abs(by).max() + 0.1 * PPM
    assert np.ptp(rate[-16:]) < 0.1 * PPM


def test_hosts_that_join_while_all_others_change_begin_no_new_timeline() -> None:
    """What is measured between them is all that rests on steady clocks."""
    fleet = ChangedFleet(seed=5, n=14)
    joined = np.array([12, 13])
    fleet.src, fleet.dst = np.append(fleet.src, joined), np.append(fleet.dst, joined[::-1])
    fleet.noticed_s = np.append(fleet.noticed_s, [NOTICED_S, NOTICED_S])
    from_old, to_old = fleet.src < 12, fleet.dst < 12
    fleet.change(np.arange(12), CHANGE_S, np.random.default_rng(5).normal(0, 10 * PPM, 12))
    tracks = Tracks(14)
    before = None
    for tick in range(round((CHANGE_S + 6) / TICK_S)):
        now_s = tick * TICK_S
        edges = fleet.edges(now_s)
        changing = CHANGE_S < now_s < CHANGE_S + 2
        tracks.step(
            edges.where(from_old & to_old | (~from_old & ~to_old & changing) | (now_s > CHANGE_S + 4))
        )
        clocks = tracks.clocks()
        assert clocks is not None
        shown = fleet.shown_ns(clocks, now_s)[:12]
        if before is not None:
            assert np.abs(shown - before).max() < 60_000
        before = shown
    assert (clocks.state == HostState.SYNCED).all()
    assert np.abs(fleet.error_ns(clocks, now_s)).max() < 60


@pytest.mark.parametrize("apart_ns", [2_000, 200_000])
def test_two_steady_hosts_that_fall_out_begin_no_new_timeline_while_all_others_change(apart_ns: int) -> None:
    fleet = ChangedFleet(seed=7)
    pair = np.array([0, 1])
    fleet.src, fleet.dst = np.append(fleet.src, pair), np.append(fleet.dst, pair[::-1])
    fleet.noticed_s = np.append(fleet.noticed_s, [NOTICED_S, NOTICED_S])
    fleet.change(np.arange(2, 12), CHANGE_S, np.random.default_rng(7).normal(0, 10 * PPM, 10))
    tracks = Tracks(12)
    before = None
    for now_s in np.arange(0, CHANGE_S + 6, TICK_S):
        if now_s == CHANGE_S + 1:
            fleet.g0_ns[0] += apart_ns
        tracks.step(fleet.edges(now_s))
        clocks = tracks.clocks()
        assert clocks is not None
        shown = fleet.shown_ns(clocks, now_s)[2:]
        if before is not None:
            assert np.abs(shown - before).max() < 300_000
            assert np.isfinite(clocks.bound_ns).all()
        before = shown


def test_half_of_a_fleet_changes_and_the_others_do_not_move() -> None:
    fleet, steady = ChangedFleet(seed=6, n=16, rings=4), ChangedFleet(seed=6, n=16, rings=4)
    some = np.arange(0, 16, 3)
    fleet.change(some, CHANGE_S, np.random.default_rng(6).normal(0, 10 * PPM, len(some)))
    tracks, twin = Tracks(16), Tracks(16)
    others = ~np.isin(np.arange(16), some)
    for (now_s, _, clocks), (_, _, as_ever) in zip(
        run(fleet, tracks, 15), run(steady, twin, 15), strict=True
    ):
        shown, plain = fleet.shown_ns(clocks, now_s), steady.shown_ns(as_ever, now_s)
        assert shown[others] == pytest.approx(plain[others], abs=6)
        if now_s >= CHANGE_S + 1:
            assert np.abs(fleet.error_ns(clocks, now_s)).max() < 12


def test_slots_that_are_cleared_or_dropped_while_a_clock_changes() -> None:
    fleet = ChangedFleet()
    fleet.change([5], CHANGE_S, 10 * PPM)
    tracks = Tracks(12)
    for _ in run(fleet, tracks, CHANGE_S + 1):
        pass
    tracks.resize(14)
    clocks = tracks.clocks()
    assert clocks is not None
    assert np.flatnonzero(clocks.changing).tolist() == [5]
    tracks.clear(np.array([5]))
    clocks = tracks.clocks()
    assert clocks is not None
    assert not clocks.changing.any()
    assert clocks.changed_ns[5] == LONG_AGO
    assert np.isinf(clocks.bound_ns[5])
    assert clocks.state[5] == HostState.UNSYNCED
