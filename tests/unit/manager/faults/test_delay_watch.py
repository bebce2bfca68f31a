"""Links and hosts that are slow, by queues that stand or come and go, and by what links carry."""

from dataclasses import replace
from typing import Any, cast

import numpy as np
import pytest
from standing import LINKS, Events, Queues, Watched, loads_of

from manager.fabric.routes import Routes
from manager.faults.delay_watch import (
    OVER_WINDOWS,
    REMEMBERED_WINDOWS,
    SEEN_NEAR_WINDOWS,
    SEEN_OWN_WINDOWS,
    SEEN_WINDOWS,
    UNKNOWN_WINDOWS,
)
from manager.faults.watch import FaultWatch
from manager.links.busy import WINDOWS
from manager.links.inference import QueueInference
from manager.paths.windows import Window


@pytest.mark.parametrize(
    ("stands", "load_bps", "found"),
    [
        ({6: 5e6}, {6: 40e6}, [("slow", "l1 > s0")]),
        ({6: 5e6, 7: 5e6}, {6: 40e6, 7: 40e6}, [("slow", "l1 - s0")]),
        ({6: 5e6}, {6: 6e6}, [("slow", "l1 > s0")]),
        ({6: 5e6}, {6: 95e6}, []),
        ({6: 5e6, 8: 5e6, 10: 5e6}, {}, []),
        ({0: 3e6}, {0: 20e6}, [("slow", "h0/nic0 > l1")]),
        ({0: 3e6}, {0: 1e6}, [("slow_sender", "h0")]),
        ({1: 3e6}, {1: 1e6}, [("slow_receiver", "h0")]),
        ({0: 50e3}, {0: 1e6}, []),
        ({6: 5e6}, {6: 0.0}, []),
    ],
)
def test_a_queue_that_stands_blames_who_carries_less_than_its_like(
    stands: dict[int, float], load_bps: dict[int, float], found: list[tuple[str, str]]
) -> None:
    watched, needed = Watched(), SEEN_OWN_WINDOWS if 0 in stands or 1 in stands else SEEN_WINDOWS
    for _ in range(2):
        assert watched.see(needed - 1, Queues(stands), loads_of(load_bps)) == []
        assert watched.see(1, Queues({}), loads_of({})) == []
    assert watched.see(needed + 3, Queues(stands), loads_of(load_bps)) == found
    assert watched.see(OVER_WINDOWS + 1, Queues({}), loads_of({})) == []


def test_a_queue_that_only_paths_with_a_longer_one_show_blames_nobody() -> None:
    watched = Watched()
    assert watched.see(50, Queues({6: 5e6}, apart=False), loads_of({6: 40e6})) == []
    assert watched.see(SEEN_WINDOWS, Queues({6: 5e6}), loads_of({6: 40e6})) == [("slow", "l1 > s0")]


def test_a_slow_link_that_was_emptied_is_slow_until_it_carries_more_than_it_did() -> None:
    """The planner takes everything off it; later a little, then more, is put on it again."""
    watched, slow = Watched(), [("slow", "l1 > s0")]
    assert watched.see(SEEN_WINDOWS, Queues({6: 5e6}), loads_of({6: 40e6})) == slow
    for load_bps in (0.0, 30e6, 42e6):
        assert watched.see(3 * OVER_WINDOWS, Queues({}), loads_of({6: load_bps})) == slow
    assert watched.see(SEEN_WINDOWS, Queues({6: 5e6}), loads_of({6: 40e6})) == slow
    assert watched.see(OVER_WINDOWS + 1, Queues({}), loads_of({6: 60e6})) == []
    assert watched.opened == ["slow"]


def test_a_link_that_carries_nearly_what_it_should_is_looked_at_for_longer() -> None:
    """As loads are told late while jobs come and go: a well link seemed slow for some windows, at 70 % of its like."""
    watched = Watched()
    assert watched.see(SEEN_NEAR_WINDOWS - 1, Queues({6: 5e6}), loads_of({6: 65e6})) == []
    assert watched.see(1, Queues({6: 5e6}), loads_of({6: 65e6})) == [("slow", "l1 > s0")]


@pytest.mark.parametrize(
    ("every", "load_bps", "found"),
    [
        (2, 20e6, [("slow", "l1 > s0")]),
        (3, 16e6, [("slow", "l1 > s0")]),
        (2, 45e6, []),
        (3, 30e6, []),
        (5, 1e6, []),
        (2, 4e6, []),
    ],
)
def test_a_link_that_is_idle_now_and_then_is_slow_where_it_is_busier_than_its_load_explains(
    every: int, load_bps: float, found: list[tuple[str, str]]
) -> None:
    """Where what waits comes in bursts, no five windows in a row may see a queue that never was empty."""
    watched, loads = Watched(), loads_of({6: load_bps})
    for window in range(4 * WINDOWS):
        watched.see(1, Queues({6: 5e6} if window % every == 0 else {}, of_late=False), loads)
    assert watched.held == found
    assert watched.see(OVER_WINDOWS + 1, Queues({}), loads_of({})) == []


@pytest.mark.parametrize("late", [5, 12, 20])
@pytest.mark.parametrize(("on", "off"), [(40, 60), (60, 40), (100, 400), (15, 35)])
def test_a_link_is_not_slow_because_its_load_is_told_late(late: int, on: int, off: int) -> None:
    """Flows at full rate begin and end, as those of an audit do: the queue shows at once, what they send a while later."""
    watched = Watched()
    watched.see(2 * WINDOWS, Queues({}), loads_of({6: 0.0}))
    for window in range(2_000):
        is_busy, is_told = window % (on + off) < on, (window - late) % (on + off) < on and window >= late
        watched.see(
            1, Queues({6: 5e6} if is_busy else {}, of_late=False), loads_of({6: 90e6 if is_told else 0.0})
        )
    assert watched.opened == []


def test_how_busy_a_link_is_outlives_its_routes() -> None:
    watched, loads = Watched(), loads_of({6: 20e6})
    for window in range(4 * WINDOWS):
        number = window // 20
        routes = Routes(number, LINKS if number % 2 else LINKS[::-1])
        told = replace(loads, routes=routes, load_bps=loads.load_bps if number % 2 else loads.load_bps[::-1])
        link = 6 if number % 2 else len(LINKS) - 7
        watched.see(1, Queues({link: 5e6} if window % 2 == 0 else {}, of_late=False), told)
    assert watched.held == [("slow", "l1 > s0")]


def test_a_link_that_nothing_comes_through_is_not_slow_as_well() -> None:
    watch, windows = FaultWatch(Events()), cast("list[Window]", [None] * SEEN_OWN_WINDOWS)

    def found(*, carrier: bool) -> list[str]:
        watch.follow_carriers({"h0/nic0": carrier}, LINKS)
        queues = cast("QueueInference", Queues({0: 5e6}))
        watch.step(windows, queues, loads_of({0: 20e6}), now_s=1.0, lag_s=0.0)
        return [finding.kind for finding in watch.findings.current.values()]

    assert [found(carrier=False), found(carrier=False), found(carrier=True)] == [["dead"], ["dead"], ["slow"]]


def test_a_link_whose_load_is_in_doubt_is_not_seen_to_be_well() -> None:
    watched, doubtful = Watched(), loads_of({})
    doubtful.is_sure[:] = False
    held = watched.see(SEEN_WINDOWS, Queues({6: 5e6}), loads_of({6: 40e6}))
    assert watched.see(3 * OVER_WINDOWS, Queues({}), doubtful) == held != []


@pytest.mark.parametrize(("link", "load_bps"), [(0, 1e6), (1, 1e6), (1, 20e6), (6, 40e6)])
def test_a_queue_blames_nobody_while_what_the_link_carries_is_in_doubt(link: int, load_bps: float) -> None:
    """As while the agent of a host is away whose queue pairs send on."""
    watched, doubtful = Watched(), loads_of({link: load_bps})
    doubtful.is_sure[link] = False
    assert watched.see(3 * SEEN_OWN_WINDOWS, Queues({link: 5e6}), doubtful) == []


def test_what_was_seen_of_a_link_before_it_was_emptied_counts_when_it_is_used_again() -> None:
    watched = Watched()
    assert watched.see(SEEN_WINDOWS - 1, Queues({6: 5e6}), loads_of({6: 40e6})) == []
    assert watched.see(100, Queues({}), loads_of({6: 0.0})) == []
    assert watched.see(1, Queues({6: 5e6}), loads_of({6: 40e6})) == [("slow", "l1 > s0")]
    forgetful = Watched()
    forgetful.see(SEEN_WINDOWS - 1, Queues({6: 5e6}), loads_of({6: 40e6}))
    forgetful.see(REMEMBERED_WINDOWS + 1, Queues({}), loads_of({6: 0.0}))
    assert forgetful.see(1, Queues({6: 5e6}), loads_of({6: 40e6})) == []


def test_a_slow_link_of_which_nothing_is_seen_any_more_is_let_go_in_the_end() -> None:
    watched = Watched()
    watched.see(SEEN_WINDOWS, Queues({6: 5e6}), loads_of({6: 40e6}))
    assert watched.see(UNKNOWN_WINDOWS + 1, Queues({}), loads_of({6: 0.0})) == []


def test_a_slow_link_that_no_path_crosses_any_more_is_let_go() -> None:
    watched = Watched()
    watched.see(SEEN_WINDOWS, Queues({6: 5e6}), loads_of({6: 40e6}))
    fewer = replace(loads_of({}), routes=Routes(2, LINKS[:6]), load_bps=np.zeros(6), is_sure=np.ones(6, bool))
    assert watched.see(OVER_WINDOWS + 1, Queues({}, links=6), fewer) == []


@pytest.mark.parametrize("link", [0, 1])
def test_a_host_that_sends_now_a_little_more_now_less_than_an_idle_one_is_found_once(link: int) -> None:
    """Near the share at which a host is told from its link."""
    watched = Watched()
    for number in range(10 * SEEN_OWN_WINDOWS):
        watched.see(1, Queues({link: 3e6}), loads_of({link: 12e6 if number % 20 < 10 else 8e6}))
    assert len(watched.opened) == len(watched.held) == 1


def test_both_directions_of_a_link_that_is_slow_are_one_cause() -> None:
    watched = Watched()
    assert watched.see(SEEN_WINDOWS, Queues({6: 5e6}), loads_of({6: 40e6})) == [("slow", "l1 > s0")]
    assert watched.see(SEEN_WINDOWS, Queues({7: 5e6}), loads_of({6: 0.0, 7: 40e6})) == [("slow", "l1 - s0")]
    assert watched.see(2 * OVER_WINDOWS, Queues({}), loads_of({7: 0.0})) == [("slow", "l1 - s0")]
    assert watched.see(OVER_WINDOWS + 1, Queues({}), loads_of({})) == []
    assert watched.opened == ["slow"]


def test_what_is_slow_is_named_by_whose_it_is_alone() -> None:
    """Another manager does not know all that its links carry."""
    events, queues, loads = Events(), Queues({6: 5e6}), loads_of({6: 40e6})
    watch = FaultWatch(events)
    for is_ours, told in ((False, []), (True, ["link_slow"])):
        watch.losses.decides = lambda named, is_ours=is_ours: is_ours and named.subject.name == "l1 - s0"
        for _ in range(SEEN_WINDOWS):
            watch.step(cast(Any, [None]), cast(Any, queues), loads, now_s=1.0, lag_s=0.0)
        assert [kind for _, kind, _ in events.told] == told


def test_what_is_not_known_for_a_while_is_not_well() -> None:
    """A slow host's clock may not be known well enough to tell the queue, for as long as it is slow."""
    watched, found = Watched(), [("slow_sender", "h0")]
    assert watched.see(SEEN_OWN_WINDOWS, Queues({0: 3e6}), loads_of({0: 1e6})) == found
    unknown = Queues({})
    unknown.queue_ns[:, 0] = np.nan
    assert watched.see(3 * OVER_WINDOWS, unknown, loads_of({0: 1e6})) == found
    assert watched.see(OVER_WINDOWS + 1, Queues({}), loads_of({})) == []


def test_what_one_link_was_once_seen_to_carry_blames_no_other() -> None:
    loads = loads_of({7: 72e6}, others_bps=80e6)
    loads.capacity_bps[[9, 11]] = 145e6, 100e6
    queues = Queues({7: 6e6})
    assert Watched().see(SEEN_OWN_WINDOWS + 1, queues, loads) == []
