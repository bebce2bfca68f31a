"""Hosts whose agents were away, and what they then say of their clocks."""

import numpy as np
import pytest
from test_clocksync_graph import Fleet

from cwdp.shared.bus.messages import ClockLine
from cwdp.shared.clocksync.timeline.track import HostClocks, HostState, Tracks
from manager.clock.timeline import ContinuedTracks


def _word(clocks: HostClocks, host: int) -> tuple[int, ClockLine]:
    """What a host says that follows what it was told last."""
    local_ns = int(clocks.ref_local_ns[host])
    line = ClockLine(
        ref_local_ns=local_ns,
        offset_base_ns=int(clocks.offset_ns[host]),
        offset_ns=float(clocks.offset_frac_ns[host]),
        drift=float(clocks.drift[host]),
        bound_ns=float(clocks.bound_ns[host]),
        bound_drift=1e-8,
        state="holdover",
    )
    return local_ns, line


@pytest.mark.parametrize("off_ns", [0, 800, 1_000_000])
def test_a_host_whose_agent_was_away_goes_on_as_it_says_where_it_was_followed_elsewhere(off_ns: int) -> None:
    """Its stamps were off while nobody freed them of the discipline; fits that rest on them are left out."""
    fleet = Fleet()
    tracks, states, before = ContinuedTracks(fleet.n), [], None
    for number in range(44):
        if number == 12:
            before = tracks.clocks()
            fleet.g0[5] += off_ns
            tracks.expect_steps(np.array([5]))
        if number == 16:
            fleet.g0[5] -= off_ns
            tracks.take_word({5: _word(before, 5)})
        tracks.step(fleet.edges(number * 0.5))
        clocks = tracks.clocks()
        states.append(clocks.state[5])
        if number >= 16:
            errors_ns = np.abs(fleet.error_ns(clocks, number * 0.5))
            assert errors_ns[5] <= clocks.bound_ns[5]
            assert errors_ns.max() < 100
    if off_ns > 50:
        assert states[16:30] == [HostState.HOLDOVER] * 14
    assert states[40:] == [HostState.SYNCED] * 4


@pytest.mark.parametrize("until", [14, 80])
def test_a_host_whose_peers_measured_it_elsewhere_for_a_while_is_set_aside_no_longer(until: int) -> None:
    """What it measured itself was from before: the two ends of its pairs disagreed, as if it lied."""
    fleet = Fleet()
    tracks, aside = Tracks(fleet.n), []
    for number in range(100):
        lie = np.where(fleet.dst == 5, 20_000.0, 0.0) if 12 <= number < until else 0.0
        tracks.step(fleet.edges(number * 0.5, lie))
        aside.append(tracks.clocks().state[5] == HostState.SET_ASIDE)
    assert all(aside[12:until])
    assert not any(aside[until + 6 :])


def test_a_host_that_joins_behind_a_queue_knows_how_far_off_it_may_be_and_is_never_set_aside() -> None:
    """All that it sends waits 100 ms: it seems to be off by half of that, again and again, until the queue is gone."""
    fleet, queue_ns, joins, drained = Fleet(), 100_000_000, 10, 30
    tracks = Tracks(fleet.n)
    for number in range(50):
        is_queued = joins <= number < drained
        fleet.g0[5] += is_queued * queue_ns // 2
        edges = fleet.edges(number * 0.5)
        fleet.g0[5] -= is_queued * queue_ns // 2
        mine = (edges.src == 5) | (edges.dst == 5)
        edges.fits.margin_ns[mine & is_queued] += queue_ns / 2
        tracks.step(edges.where(~mine) if number < joins else edges)
        clocks = tracks.clocks()
        if number >= joins:
            assert abs(fleet.error_ns(clocks, number * 0.5)[5]) <= clocks.bound_ns[5]
            assert clocks.state[5] == HostState.SYNCED
    assert clocks.bound_ns[5] < 1_000


def test_the_word_of_a_host_that_was_never_placed_is_not_taken() -> None:
    fleet = Fleet()
    tracks = ContinuedTracks(fleet.n)
    edges = fleet.edges(0.0)
    tracks.step(edges.where((edges.src != 5) & (edges.dst != 5)))
    tracks.take_word({5: _word(tracks.clocks(), 4)})
    assert tracks.clocks().state[5] == HostState.UNSYNCED
