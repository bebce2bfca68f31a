"""Leaders and queue pairs: two at once, nobody for long, and what stands still without a reason."""

import pytest

from tools.soak.traffic import longest
from tools.soak.watches.leaders import Led, two_at_once, unled


def test_leaders_one_after_the_other_are_one_at_a_time() -> None:
    led = [Led("m1", 1, 0.0, 10.0), Led("m2", 5, 13.6, 30.0), Led("m1", 9, 34.0, 60.0)]
    assert two_at_once(led) == []
    gaps = unled(led, 0.0, 60.0)
    assert gaps == [(10.0, 13.6), (30.0, 34.0)]


def test_two_that_lead_through_the_same_time_are_told() -> None:
    led = [Led("m1", 1, 0.0, 20.0), Led("m2", 5, 13.6, 30.0)]
    assert len(two_at_once(led)) == 1
    assert unled(led, 0.0, 30.0) == []


def test_one_answer_alone_is_no_time_in_which_anybody_led() -> None:
    assert two_at_once([Led("m1", 1, 15.2, 15.0), Led("m2", 5, 13.6, 30.0)]) == []


def test_nobody_at_the_end_counts() -> None:
    assert unled([Led("m1", 1, 0.0, 20.0)], 0.0, 50.0) == [(20.0, 50.0)]


@pytest.mark.parametrize(
    ("excused", "expected"),
    [
        ([], (6.0, 3.0)),
        ([(0.0, 4.0)], (4.5, 4.5)),
        ([(2.0, 20.0)], (0.0, 0.0)),
        ([(30.0, 40.0)], (6.0, 3.0)),
    ],
)
def test_a_queue_pair_stands_still_while_it_delivers_nothing_without_excuse(
    excused: list[tuple[float, float]], expected: tuple[float, float]
) -> None:
    times = [0.5 * n for n in range(40)]
    progress = [(at_s, int(1000 * (at_s if at_s < 3 else 3 if at_s < 9.5 else at_s))) for at_s in times]
    assert longest(progress, excused) == expected
