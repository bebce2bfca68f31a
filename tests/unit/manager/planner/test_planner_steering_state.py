"""What the planner remembers of queue pairs."""

import pytest

from manager.planner.steering_state import CALM_RESTS, CLEAR_S, MOST_RESTS, Entry

HOLD_S = 2.0


def _entry() -> Entry:
    return Entry(first_s=0.0, active_s=0.0)


def test_one_that_was_never_moved_is_free_to_be() -> None:
    assert _entry().is_rested(0.0)


def test_each_move_that_does_not_last_doubles_the_rest_up_to_a_limit() -> None:
    entry, now_s, rests = _entry(), 100.0, []
    for _ in range(8):
        entry.move(now_s, HOLD_S)
        rests.append(entry.rest_s)
        assert not entry.is_rested(now_s + entry.rest_s - 0.01)
        now_s += entry.rest_s
        assert entry.is_rested(now_s)
    assert rests == [HOLD_S * min(2**n, MOST_RESTS) for n in range(8)]


@pytest.mark.parametrize("moves", [1, 3, 10])
def test_after_a_calm_while_it_is_moved_as_freely_as_at_first(moves: int) -> None:
    entry, now_s = _entry(), 100.0
    for _ in range(moves):
        entry.move(now_s, HOLD_S)
        now_s += entry.rest_s
    now_s += CALM_RESTS * entry.rest_s
    entry.move(now_s, HOLD_S)
    assert entry.rest_s == HOLD_S


def test_without_a_hold_time_nothing_rests() -> None:
    entry = _entry()
    for now_s in (1.0, 1.0, 1.25):
        entry.move(now_s, 0.0)
        assert entry.is_rested(now_s)


def test_a_rate_tells_what_is_wanted_only_a_while_after_the_last_queue() -> None:
    entry = _entry()
    assert entry.may_queue(True, 1.0)
    assert entry.may_queue(False, 2.0)
    assert entry.may_queue(False, 2.0 + CLEAR_S - 0.1)
    assert not entry.may_queue(False, 2.0 + CLEAR_S)
    assert entry.may_queue(True, 10.0)
    assert entry.may_queue(False, 10.1)


def test_after_a_move_the_while_begins_anew() -> None:
    entry = _entry()
    entry.may_queue(False, 1.0)
    assert not entry.may_queue(False, 9.0)
    entry.move(9.0, HOLD_S)
    assert entry.may_queue(False, 9.5)
