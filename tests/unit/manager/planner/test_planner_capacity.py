"""What is taken for the capacity of a link, when it was seen full with less than others carry."""

import numpy as np

from manager.fabric.routes import DirectedLink, Routes
from manager.links.loads import LinkLoads
from manager.planner.capacity import CARRIED_S, DOUBTED_AFTER_S, SURE_S, CapacityEstimator

LINKS = tuple(DirectedLink("l1", f"s{i}") for i in range(5))
ROUTES = Routes(1, LINKS)
SLOW = 2


def _loads(*, shows: bool, sure: bool = True, routes: Routes = ROUTES) -> LinkLoads:
    capacity = np.full(len(routes.links), 100e6)
    capacity[SLOW] = 40e6
    stands = np.zeros(len(routes.links), bool)
    stands[SLOW] = shows
    return LinkLoads(
        routes=routes,
        queue_p99_ns=np.where(stands, 5e6, 0.0),
        load_bps=np.zeros(len(routes.links)),
        is_sure=np.full(len(routes.links), sure),
        capacity_bps=capacity,
        stands=stands,
    )


def _slow_seen_alone() -> LinkLoads:
    """Of no other link is it known what it can carry."""
    loads = _loads(shows=True)
    loads.capacity_bps[:] = np.nan
    loads.capacity_bps[SLOW] = 40e6
    return loads


def _capacity(estimator: CapacityEstimator, now_s: float, *, shows: bool, sure: bool = True) -> float:
    return float(estimator.read(ROUTES, _loads(shows=shows, sure=sure), now_s).capacity_bps[SLOW])


def test_a_link_is_taken_for_slow_once_it_has_been_for_a_while() -> None:
    estimator = CapacityEstimator()
    assert _capacity(estimator, 0.0, shows=True) == 100e6
    assert _capacity(estimator, SURE_S, shows=True) == 40e6


def test_a_slow_link_that_does_not_show_it_is_given_another_chance_and_fewer_each_time() -> None:
    estimator = CapacityEstimator()
    _capacity(estimator, 0.0, shows=True)
    seen_s = SURE_S
    assert _capacity(estimator, seen_s, shows=True) == 40e6
    for doubted_after_s in (DOUBTED_AFTER_S, 2 * DOUBTED_AFTER_S, 4 * DOUBTED_AFTER_S):
        assert _capacity(estimator, seen_s + doubted_after_s - 0.1, shows=False) == 40e6
        seen_s += doubted_after_s + 0.1
        assert _capacity(estimator, seen_s, shows=False) == 100e6
        assert _capacity(estimator, seen_s, shows=True) == 40e6


def test_a_queue_over_which_not_all_is_known_says_nothing_of_a_link() -> None:
    estimator = CapacityEstimator()
    _capacity(estimator, 0.0, shows=True)
    assert _capacity(estimator, DOUBTED_AFTER_S + 1, shows=True, sure=False) == 100e6


def test_what_is_known_of_links_outlives_their_order() -> None:
    other = Routes(2, LINKS[::-1])
    estimator = CapacityEstimator()
    for now_s in (0.0, SURE_S):
        links = estimator.read(other, _loads(shows=True), now_s)
    assert links.capacity_bps[len(LINKS) - 1 - SLOW] == 40e6
    assert links.queueing.tolist() == [i == len(LINKS) - 1 - SLOW for i in range(len(LINKS))]


def test_a_link_that_was_never_seen_full_is_untried_and_counts_as_its_like() -> None:
    loads = _loads(shows=False)
    loads.capacity_bps[0] = np.nan
    links = CapacityEstimator().read(ROUTES, loads, 0.0)
    assert links.untried.tolist() == [True, False, False, False, False]
    assert links.capacity_bps[0] == 100e6


def test_of_links_that_carry_more_than_the_slow_ones_seen_full_nothing_is_known_yet() -> None:
    loads = _slow_seen_alone()
    for load_bps, others_bps in ((40e6, 40e6), (60e6, np.nan)):
        loads.load_bps[SLOW + 1] = load_bps
        estimator = CapacityEstimator()
        for now_s in (0.0, SURE_S, CARRIED_S):
            links = estimator.read(ROUTES, loads, now_s)
        expected = [40e6 if i == SLOW else others_bps for i in range(len(LINKS))]
        assert np.array_equal(links.capacity_bps, expected, equal_nan=True)


def test_what_a_link_has_carried_is_remembered_while_others_are_moved_to_it() -> None:
    loads = _slow_seen_alone()
    loads.load_bps[SLOW + 1] = 60e6
    estimator = CapacityEstimator()
    for now_s in (0.0, CARRIED_S):
        estimator.read(ROUTES, loads, now_s)
    loads.load_bps[:] = 0.0
    later = estimator.read(Routes(2, LINKS[::-1]), loads, 2 * CARRIED_S)
    assert np.isnan(later.capacity_bps).sum() == len(LINKS) - 1


def test_what_a_link_carries_for_a_moment_before_its_queue_shows_says_nothing() -> None:
    loads = _slow_seen_alone()
    estimator = CapacityEstimator()
    for number in range(8):
        loads.load_bps[SLOW + 1] = 60e6 if number % 2 else 40e6
        links = estimator.read(ROUTES, loads, number * CARRIED_S / 3)
    assert links.capacity_bps.tolist() == [40e6] * len(LINKS)


def test_what_a_link_was_thought_to_carry_is_forgotten_once_it_is_seen_full_with_less() -> None:
    loads = _slow_seen_alone()
    loads.load_bps[SLOW + 1] = 60e6
    estimator = CapacityEstimator()
    for now_s in (0.0, CARRIED_S):
        estimator.read(ROUTES, loads, now_s)
    loads.load_bps[:] = 0.0
    loads.capacity_bps[SLOW + 1] = 42e6
    links = estimator.read(ROUTES, loads, 2 * CARRIED_S)
    assert links.capacity_bps[0] == 42e6


def test_what_most_links_were_seen_full_with_is_not_shaken_by_one_that_seems_to_carry_more() -> None:
    loads = _loads(shows=True)
    loads.capacity_bps[4] = np.nan
    loads.load_bps[4] = 150e6
    estimator = CapacityEstimator()
    for now_s in (0.0, CARRIED_S, 2 * CARRIED_S):
        links = estimator.read(ROUTES, loads, now_s)
    assert links.capacity_bps[4] == 100e6


def test_of_few_links_seen_full_one_that_was_seen_so_counts_and_nothing_between() -> None:
    loads = _loads(shows=True)
    loads.capacity_bps[:] = [75e6, np.nan, 72e6, 150e6, np.nan]
    assert CapacityEstimator().read(ROUTES, loads, 0.0).capacity_bps[1] == 150e6


def test_what_a_link_carries_says_nothing_while_that_is_not_sure_or_its_queue_stands() -> None:
    for doubtful in ("is_sure", "stands"):
        loads = _loads(shows=True)
        loads.load_bps[SLOW + 1] = 300e6
        getattr(loads, doubtful)[SLOW + 1] = doubtful == "stands"
        assert CapacityEstimator().read(ROUTES, loads, 0.0).capacity_bps[SLOW + 1] == 100e6


def test_a_link_is_as_capable_as_its_other_direction() -> None:
    both = Routes(3, LINKS + tuple(DirectedLink(b, a) for a, b in LINKS))
    loads = _loads(shows=True, routes=both)
    loads.capacity_bps[len(LINKS) :] = np.nan
    loads.capacity_bps[len(LINKS)] = 100e6
    estimator = CapacityEstimator()
    for now_s in (0.0, SURE_S):
        links = estimator.read(both, loads, now_s)
    assert links.capacity_bps[SLOW] == links.capacity_bps[len(LINKS) + SLOW] == 40e6
    assert not links.untried.any()
