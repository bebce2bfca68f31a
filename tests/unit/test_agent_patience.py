"""Answers that come late after all are waited for longer, and for a while only."""

from cwdp.agent.patience import LONG_NS, REMEMBERED_NS, USUAL_NS, Patience

START_NS = 10**12


def test_a_host_without_late_answers_waits_no_longer_than_usual() -> None:
    patience = Patience()
    for step in range(10):
        patience.learn(7, START_NS + step)
    assert patience.timeout_ns == USUAL_NS


def test_late_answers_make_it_wait_longer_until_none_have_come_for_a_while() -> None:
    patience = Patience()
    patience.learn(7, START_NS)
    patience.learn(9, START_NS + 1)
    assert patience.timeout_ns == LONG_NS
    patience.learn(10, START_NS + REMEMBERED_NS)
    patience.learn(10, START_NS + 2 * REMEMBERED_NS)
    assert patience.timeout_ns == LONG_NS
    patience.learn(10, START_NS + 2 * REMEMBERED_NS + 1)
    assert patience.timeout_ns == USUAL_NS


def test_counters_that_begin_anew_are_no_late_answers() -> None:
    patience = Patience()
    patience.learn(7, START_NS)
    patience.learn(0, START_NS + 1)
    assert patience.timeout_ns == USUAL_NS
    patience.learn(1, START_NS + 2)
    assert patience.timeout_ns == LONG_NS
