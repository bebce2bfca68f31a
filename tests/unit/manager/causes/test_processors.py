"""How much programs of hosts wait for processors, from what agents tell."""

import pytest

from manager.causes.processors import STEP_NS, Processors

S = 10**9


def told(*rows: tuple[float, int | None]) -> Processors:
    processors = Processors()
    for at_s, waits_ns in rows:
        processors.hear("h1", round(at_s * S), waits_ns)
    return processors


def test_a_share_is_of_the_last_seconds() -> None:
    before = [(0.25 * i, 0) for i in range(400)]
    taken = [(100 + 0.25 * i, round(0.25 * i * 0.6 * S)) for i in range(100)]
    assert told(*before).shares() == {"h1": 0.0}
    assert told(*before, *taken[:41]).shares()["h1"] == pytest.approx(0.6, abs=0.01)
    assert told(*before, *taken[:21]).shares()["h1"] > 0.3


def test_of_less_than_some_seconds_nothing_is_known() -> None:
    assert told((0, 0), (STEP_NS / S - 0.1, S)).shares() == {}
    assert told((0, 0), (STEP_NS / S, S)).shares() == {"h1": 0.25}


def test_a_host_that_starts_again_begins_anew() -> None:
    rows = [(float(i), i * S) for i in range(20)]
    assert told(*rows, (3.0, 0)).shares() == {}
    assert told(*rows, (20.0, 0)).shares() == {}


def test_a_host_that_cannot_tell_any_more_or_is_gone_is_forgotten() -> None:
    rows = [(float(i), i * S) for i in range(20)]
    assert told(*rows).shares() == {"h1": 1.0}
    assert told(*rows, (20.0, None)).shares() == {}
    processors = told(*rows)
    processors.forget("h1")
    processors.forget("h2")
    assert processors.shares() == {}
