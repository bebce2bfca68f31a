"""A share of a processor."""

import pytest

from cwdp.agent.ib.budget import Budget


@pytest.mark.parametrize(("each_s", "every_s"), [(0.3, 0.5), (0.01, 0.5), (2.5, 0.1), (0.1, 0.5)])
def test_in_the_long_run_it_is_kept(each_s: float, every_s: float) -> None:
    budget, now_s, used_s = Budget(0.2, 2.0), 0.0, 0.0
    budget.wait_s(now_s, used_s)
    for _ in range(500):
        used_s += each_s
        now_s += each_s
        now_s += max(every_s, budget.wait_s(now_s, used_s))
    assert used_s <= 0.2 * now_s + 2.0 + each_s


def test_a_burst_is_not_waited_for() -> None:
    budget = Budget(0.2, 2.0)
    assert budget.wait_s(0.0, 0.0) == 0.0
    assert budget.wait_s(1.0, 1.5) == 0.0
    assert budget.wait_s(2.0, 3.0) == pytest.approx(4.0)
    assert budget.wait_s(30.0, 3.0) == 0.0
