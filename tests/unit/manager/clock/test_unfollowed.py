"""Hosts whose clocks nobody followed."""

from cwdp.shared.bus.messages import ClockLine, ClockState, Report
from manager.clock.unfollowed import BEFORE_NS, Unfollowed

S = 1_000_000_000
OFFSET_NS = 70 * S


def report(boot_id: str, at_s: int, state: ClockState | None = "synced") -> Report:
    line = None
    if state is not None:
        line = ClockLine(
            ref_local_ns=at_s * S,
            offset_base_ns=OFFSET_NS,
            offset_ns=0.0,
            drift=0.0,
            bound_ns=20.0,
            bound_drift=1e-9,
            state=state,
        )
    return Report(host="h", boot_id=boot_id, seq=1, local_ns=at_s * S, counters={}, clock=line)


def test_another_agent_was_not_there_since_the_last_report_of_the_one_before() -> None:
    unfollowed = Unfollowed()
    assert not unfollowed.hear(report("one", 10))
    assert not unfollowed.hear(report("one", 12))
    assert unfollowed.take() == {}
    assert unfollowed.hear(report("two", 30))
    assert unfollowed.take() == {"h": 12 * S + OFFSET_NS}
    assert unfollowed.take() == {}
    assert not unfollowed.hear(report("two", 31))


def test_a_clock_that_is_set_aside_was_wrong_before() -> None:
    unfollowed = Unfollowed()
    unfollowed.set_aside("h")
    assert unfollowed.take() == {}
    unfollowed.hear(report("one", 10))
    unfollowed.hear(report("one", 11, "set_aside"))
    unfollowed.set_aside("h")
    assert unfollowed.take() == {"h": 10 * S + OFFSET_NS - BEFORE_NS}


def test_a_host_without_a_clock_has_nothing_to_take_back() -> None:
    unfollowed = Unfollowed()
    unfollowed.hear(report("one", 10, None))
    assert unfollowed.hear(report("two", 11, None))
    assert unfollowed.take() == {}


def test_a_host_that_is_forgotten_begins_anew() -> None:
    unfollowed = Unfollowed()
    unfollowed.hear(report("one", 10))
    unfollowed.forget("h")
    assert not unfollowed.hear(report("two", 11))
    assert unfollowed.take() == {}
