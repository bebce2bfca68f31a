"""What the planner remembers of queue pairs."""

import numpy as np
import pytest

from manager.placement.flows import QpName
from manager.planner.entries import CALM_RESTS, CLEAR_S, FRESH, MOST_RESTS, Entries, unused
from manager.planner.steering_state import SteeringState

HOLD_S = 2.0


def _entry() -> Entries:
    entry = Entries(unused(1), 0)
    entry.begin(nic=0, now_s=0.0)
    return entry


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


def test_queue_pairs_known_together_stand_as_those_known_one_by_one() -> None:
    """More of them each time, some let go of in between: each has a row of its own, of which nothing of before is left."""
    draw, together, apart = np.random.default_rng(3), SteeringState(), SteeringState()
    for turn in range(12):
        now_s = float(turn)
        names = [
            QpName(f"h{draw.integers(3)}", "eth0", f"10.0.0.{draw.integers(9)}", i)
            for i in range(draw.integers(90))
        ]
        rows = together.know(names, now_s)
        one_by_one = np.array([apart.know([name], now_s)[0] for name in names], np.intp)
        np.testing.assert_array_equal(rows, one_by_one)
        assert [*together.names(rows)] == names
        for name in FRESH:
            np.testing.assert_array_equal(together.at(rows).rows[name], apart.at(rows).rows[name])
        np.testing.assert_array_equal(together.generation, apart.generation)
        for state in (together, apart):
            state.at(rows).move(now_s, HOLD_S)
        if draw.random() < 0.3:
            together.keep_only([("h1", "eth0")])
            apart.keep_only([("h1", "eth0")])
    assert len(together.generation) > 64
