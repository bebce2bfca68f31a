"""Two pods with clocks of their own: what leaders find of how far their timelines are apart, in the simulator."""

import numpy as np
import pytest

from tools.sim.clocks.manoeuvres import kinks
from tools.sim.fleet.pods import SETTLED_S, ApartResult, PodsSimulation
from tools.sim.fleet.probes import FleetOptions

pytestmark = pytest.mark.timeout(300)

KNOWN_S = 9.5
KINK_S, TAKEOVER_S, OTHER_S, SECONDS = 15.3, 20.0, 26.0, 38.0
BACK_S = 10.0
WITHIN_NS = 100.0


@pytest.fixture(scope="module", params=[1, 2])
def result(request: pytest.FixtureRequest) -> ApartResult:
    """A clock of the first pod changes its rate; the second one's leader changes, and then also its timeline."""
    options = FleetOptions(hosts=5, seconds=SECONDS, seed=request.param)
    takeovers = {"takeovers_s": (TAKEOVER_S,), "others_s": (OTHER_S,)}
    return PodsSimulation(options, kinks(5.0, (KINK_S,)), **takeovers).run()


def test_it_is_within_its_bound_always(result: ApartResult) -> None:
    """Timelines are seconds apart and drift apart, hosts' queues are busy for most of the time."""
    known = ~np.isnan(result.error_ns)
    assert np.abs(np.diff(result.apart_ns[known.all(axis=1)])).max() > 0
    assert np.all(np.abs(result.error_ns[known]) <= result.bound_ns[known])


def test_it_is_right_to_a_hundred_nanoseconds_through_changes_of_clocks_and_leaders(
    result: ApartResult,
) -> None:
    settled = (result.time_s > SETTLED_S) & (result.time_s < OTHER_S)
    errors = np.abs(result.error_ns[settled])
    assert np.nanquantile(errors, 0.99) < WITHIN_NS
    assert np.nanmedian(result.bound_ns[settled]) < 5 * WITHIN_NS


def test_it_is_known_soon_by_both_leaders_and_a_new_one_finds_it_anew(result: ApartResult) -> None:
    known = ~np.isnan(result.error_ns)
    first = (result.time_s > KNOWN_S) & (result.time_s < TAKEOVER_S)
    assert known[first].all()
    goes_on = (result.time_s > TAKEOVER_S) & (result.time_s < OTHER_S)
    assert known[goes_on, 0].all(), "the timeline is the same"
    assert not known[goes_on, 1].all()


def test_of_another_timeline_nothing_is_known_until_it_has_been_seen(result: ApartResult) -> None:
    known = ~np.isnan(result.error_ns)
    after = (result.time_s > OTHER_S) & (result.time_s < OTHER_S + BACK_S)
    assert not known[after, 0].all()
    later = result.time_s > OTHER_S + BACK_S
    assert known[later].all()


def test_figures_are_of_all_that_was_claimed(result: ApartResult) -> None:
    figures = result.settled()
    assert figures.outside == 0.0
    assert 0.5 < figures.known < 1.0
    assert figures.p50_ns <= figures.p99_ns <= min(figures.max_ns, WITHIN_NS)
    assert abs(figures.drift_us_per_s) > 1.0
