"""What is told of clocks that change unannounced, of what disciplines them, and why one is set aside."""

import math
from typing import Any, get_args

import msgspec
import numpy as np
import pytest
from bus_fakes import manager_bus
from fakes import hello

from cwdp.shared.bus.clocks import Discipline, DisciplineSource
from cwdp.shared.bus.messages import Report
from cwdp.shared.clocksync._types import LONG_AGO
from cwdp.shared.clocksync.timeline.track import HostClocks, HostState
from manager.api.metrics import FleetCollector, Sources
from manager.bus.lease import Claim, Lease
from manager.clock.changes import MANY_CHANGES, ClockEvents
from manager.clock.disciplines import Disciplines
from manager.clock.timeline import Identity
from manager.config import ProbeSettings
from manager.state import FleetState
from manager.view import host_views

S = 10**9
START_NS = 1000 * S
SLOTS = {"a": 0, "b": 1, "c": 2}
OFFSETS_NS = np.array([5 * S, -3 * S, 0])
DRIFTS = np.array([20e-6, -10e-6, 0.0])
STEADY = Discipline(source="adjtimex", frequency_ppb=1204.0, changes=34, changed_s_ago=12.0)


def _clocks(
    at_s: float,
    *,
    changing: str = "",
    since_s: float = 0.0,
    state: HostState = HostState.SYNCED,
    jump_ns: float = 0.0,
    rate: float = 0.0,
    growth: float = 10.0,
) -> HostClocks:
    """A solution `at_s` after the start; host b's clock is ahead by `jump_ns` and faster by `rate` from `since_s` on."""
    n = len(SLOTS)
    instant = START_NS + round(at_s * S)
    since = START_NS + round(since_s * S)
    drift = DRIFTS.copy()
    ref_local = np.full(n, instant) - OFFSETS_NS
    g = OFFSETS_NS + DRIFTS * (ref_local + OFFSETS_NS - START_NS)
    if jump_ns or rate:
        drift[1] = (1 + drift[1]) / (1 + rate) - 1
        at_change = OFFSETS_NS[1] + DRIFTS[1] * (since - START_NS)
        g[1] = at_change - jump_ns + drift[1] * (instant - since)
    whole = np.rint(g).astype(np.int64)
    states = np.full(n, HostState.SYNCED, np.uint8)
    states[1] = state
    is_changing = np.array([name in changing.split() for name in SLOTS])
    return HostClocks(
        instant_ns=instant,
        ref_local_ns=ref_local,
        offset_ns=whole,
        offset_frac_ns=g - whole,
        drift=drift,
        bound_ns=np.full(n, 50.0),
        bound_growth=np.full(n, growth),
        allowance_ns=np.zeros(n),
        settled=~is_changing,
        changed_ns=np.where(is_changing, since, LONG_AGO),
        changing=is_changing,
        state=states,
    )


class _Follower:
    """Feeds solutions to the watch over changes; the manager's clock shows 500 s at the start, when the timeline shows START_NS."""

    def __init__(self, events: ClockEvents | None = None) -> None:
        self.events = events or ClockEvents()

    def see(self, at_s: float, *, timeline: bool = True, **kind: Any) -> list[tuple[str, str, str]]:
        timeline_ns = START_NS + round(at_s * S) if timeline else None
        notes = self.events.follow(_clocks(at_s, **kind), SLOTS, 500.0 + at_s, timeline_ns)
        return [(note.host, note.kind, note.detail) for note in notes]

    def go_through(self, **change: Any) -> list[tuple[str, str, str]]:
        """A whole change of host b's clock that begins 1 s after the start; what was told."""
        told = self.see(0.75) + self.see(1.0)
        told += self.see(1.3, changing="b", since_s=1.0, state=HostState.HOLDOVER)
        for at_s in (1.6, 2.0, 3.0, 4.0):
            told += self.see(at_s, changing="b", since_s=1.0, **change)
        return told + self.see(4.25, since_s=1.0, **change) + self.see(4.5, since_s=1.0, **change)


def test_a_clock_that_changes_is_told_of_once_and_once_when_it_has_settled() -> None:
    follower = _Follower()
    told = follower.go_through(rate=10e-6)
    assert told == [
        ("b", "clock_changed", "its clock has changed unannounced 0.3 s ago and is being found anew"),
        (
            "b",
            "clock_found",
            "it runs 10.0 ppm faster than before; found again after 0.6 s; settled after 3.2 s",
        ),
    ]
    assert (follower.events.changes, follower.events.changing) == (1, 0)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"rate": 10e-6}, "it runs 10.0 ppm faster than before"),
        ({"rate": -1e-6}, "it runs 1.000 ppm slower than before"),
        ({"jump_ns": 25_000.0}, "it jumped ahead by 25 us"),
        ({"jump_ns": -3e6}, "it jumped back by 3 ms"),
        ({"jump_ns": 4.2e9}, "it jumped ahead by 4.2 s"),
        (
            {"rate": 50e-6, "jump_ns": 1e6},
            "it runs 50.0 ppm faster than before and it jumped ahead by 1 ms",
        ),
        ({"rate": 50e-6, "jump_ns": 14_000.0}, "it runs 50.0 ppm faster than before"),
        ({"jump_ns": 900.0}, "it goes as before, as far as can be told"),
        ({"rate": 5e-9, "growth": 20.0}, "it goes as before, as far as can be told"),
    ],
)
def test_how_the_clock_goes_since(change: dict[str, float], text: str) -> None:
    detail = _Follower().go_through(**change)[-1][2]
    assert detail == f"{text}; found again after 0.6 s; settled after 3.2 s"


def test_two_clocks_that_change_at_once_are_two_pairs() -> None:
    follower = _Follower()
    follower.see(1.0)
    told = follower.see(1.3, changing="a b", since_s=1.0) + follower.see(2.0, changing="a b", since_s=1.0)
    assert follower.events.changing == 2
    told += follower.see(4.0, changing="a", since_s=1.0) + follower.see(4.3)
    assert [(host, kind) for host, kind, _ in told] == [
        ("a", "clock_changed"),
        ("b", "clock_changed"),
        ("b", "clock_found"),
        ("a", "clock_found"),
    ]


def test_what_was_not_known_before_is_not_compared_with() -> None:
    follower = _Follower()
    follower.see(1.0, state=HostState.UNSYNCED)
    follower.see(1.3, changing="b", since_s=1.0, timeline=False)
    (told,) = follower.see(4.0, rate=10e-6, since_s=1.0)
    assert told == ("b", "clock_found", "found again after 0.0 s; settled after 2.7 s")


def test_a_clock_that_ends_up_set_aside_is_not_found() -> None:
    follower = _Follower()
    follower.see(1.0)
    follower.see(1.3, changing="b", since_s=1.0)
    assert follower.see(4.0, state=HostState.SET_ASIDE) == []
    assert follower.events.changing == 0


def test_the_same_solution_again_is_nothing_new() -> None:
    events, clocks = ClockEvents(), _clocks(1.3, changing="b", since_s=1.0)
    assert len(events.follow(clocks, SLOTS, 1.0, None)) == 1
    assert events.follow(clocks, SLOTS, 2.0, None) == []
    assert events.follow(None, SLOTS, 3.0, None) == []


def test_a_host_that_is_gone_and_clocks_that_begin_anew_leave_nothing_open() -> None:
    for let_go in (lambda events: events.forget("b"), lambda events: events.begin_anew()):
        follower = _Follower()
        follower.see(1.0)
        follower.see(1.3, changing="b", since_s=1.0)
        let_go(follower.events)
        assert follower.see(4.0) == []
        assert (follower.events.changes, follower.events.changing) == (1, 0)


def test_a_discipline_that_has_just_changed_is_named_with_the_change() -> None:
    follower = _Follower()
    told = msgspec.structs.replace(STEADY, changed_s_ago=0.2)
    follower.events.disciplines.hear("b", "x", told, 500.9)
    follower.see(1.0)
    ((_, _, detail),) = follower.see(1.3, changing="b", since_s=1.0)
    assert detail.endswith("is being found anew; its discipline changed 0.6 s ago")


def _telling(disciplines: Disciplines, *, every_s: float, changes: int, moved_ppb: float) -> None:
    """A minute and a half of reports, each with so many changes more, and a rate that goes up and down by so much."""
    for i in range(round(90 / every_s)):
        rate_ppb = moved_ppb * (i % 2)
        told = Discipline(
            source="adjtimex", frequency_ppb=rate_ppb, changes=i * changes, changed_s_ago=every_s
        )
        assert disciplines.hear("b", "x", told, 410.0 + i * every_s)


@pytest.mark.parametrize(
    ("changes", "moved_ppb", "cause"),
    [
        (0, 0.0, "its clock lies or steps"),
        (1, 100.0, "its clock lies or steps"),
        (2, 100.0, "its discipline changed 120 times in the last minute"),
        (1, 5000.0, "its discipline moved by 300 ppm in all in the last minute"),
    ],
)
def test_why_a_clock_is_set_aside_by_its_discipline(changes: int, moved_ppb: float, cause: str) -> None:
    events = ClockEvents()
    _telling(events.disciplines, every_s=1.0, changes=changes, moved_ppb=moved_ppb)
    assert events.explain("b", "set_aside", 499.5) == cause
    assert MANY_CHANGES == 60


def test_why_a_clock_is_set_aside_by_its_changes() -> None:
    follower = _Follower()
    follower.see(0.0)
    for i in range(3):
        follower.see(40.0 * i + 1.0, changing="b", since_s=40.0 * i)
        follower.see(40.0 * i + 5.0)
    events = follower.events
    assert (
        events.explain("b", "set_aside", 582.0) == "its clock changed unannounced 2 times in the last minute"
    )
    assert events.explain("b", "set_aside", 630.0) == "its clock changed unannounced once in the last minute"
    assert events.explain("b", "set_aside", 650.0) == "its clock lies or steps"
    assert events.view("b", "set_aside", 10.0, 0.0, 700.0)["cause"] == "its clock lies or steps"
    assert events.explain("b", "synced", 701.0) is None
    assert events.view("b", "synced", 10.0, 0.0, 702.0)["cause"] is None


@pytest.mark.parametrize(
    ("state", "bound_ns", "allowance_ns", "widened"),
    [
        ("synced", 10.0, 0.0, None),
        ("synced", 10.0, 5.0, "allowance"),
        ("holdover", 10.0, 5.0, "out_of_touch"),
        ("unsynced", None, 5.0, None),
        ("set_aside", 10.0, 0.0, None),
    ],
)
def test_why_a_bound_is_wide(state: Any, bound_ns: float | None, allowance_ns: float, widened: str) -> None:
    assert ClockEvents().widened("b", state, bound_ns, allowance_ns) == widened


def test_a_bound_is_wide_for_a_change_before_anything_else() -> None:
    follower = _Follower()
    follower.see(1.0)
    follower.see(1.3, changing="b", since_s=1.0)
    view = follower.events.view("b", "holdover", 10.0, 5.0, 502.0)
    assert (view["widened"], view["clock_changed_s"]) == ("clock_changed", 1.0)


def test_a_discipline_grows_old_while_nothing_is_heard() -> None:
    disciplines = Disciplines()
    assert disciplines.of("b") is None
    assert disciplines.changed_s_ago("b", 0.0) is None
    disciplines.hear("b", "x", STEADY, 100.0)
    assert disciplines.changed_s_ago("b", 103.5) == 15.5
    disciplines.hear("b", "x", msgspec.structs.replace(STEADY, changes=35, changed_s_ago=None), 104.0)
    assert disciplines.changed_s_ago("b", 105.0) is None


def test_an_agent_that_starts_again_begins_to_count_anew() -> None:
    disciplines = Disciplines()
    for boot_id, changes in (("x", 10), ("x", 12), ("y", 500), ("y", 501), ("y", 3), ("y", 4)):
        disciplines.hear("b", boot_id, msgspec.structs.replace(STEADY, changes=changes), 100.0)
    assert disciplines.lately("b", 100.0).changes == 1


@pytest.mark.parametrize(
    "changes",
    [
        {"frequency_ppb": math.nan},
        {"frequency_ppb": math.inf},
        {"frequency_ppb": 1e9},
        {"changes": -1},
        {"changes": 2**60},
        {"changed_s_ago": math.nan},
        {"changed_s_ago": -1.0},
    ],
)
def test_a_discipline_that_cannot_be_is_counted_and_not_taken(changes: dict[str, Any]) -> None:
    state = _state()
    state.hear_report(_report(msgspec.structs.replace(STEADY, **changes)), 1.0)
    assert state.reports["discipline_not_sane"] == 1
    assert state.clock_events.disciplines.of("b") is None


def _state() -> FleetState:
    state = FleetState(Identity(timeline="t", starts=1), ProbeSettings(), continued=False)
    state.hear_hello(hello("b"), 0.0)
    return state


def _report(told: Discipline | None) -> Report:
    return Report(
        host="b",
        boot_id="x",
        seq=1,
        local_ns=START_NS,
        counters={},
        clock=None,
        discipline=told,
    )


def test_the_view_of_clocks_tells_of_disciplines() -> None:
    state = _state()
    keys = ("discipline_source", "discipline_ppb", "discipline_changes", "discipline_changed_s", "widened")
    state.hear_report(_report(None), 1.0)
    (row,) = host_views.clock(state, 1.5)["hosts"]
    assert [row[key] for key in keys] == [None] * 5
    state.hear_report(_report(STEADY), 2.0)
    state.clock.allowance_ns = 250.04
    answer = host_views.clock(state, 2.5)
    assert [answer["hosts"][0][key] for key in keys] == ["adjtimex", 1204.0, 34, 12.5, None]
    assert answer["allowance_ns"] == 250.0
    unreadable = Discipline(source="none", frequency_ppb=0.0, changes=0, changed_s_ago=None)
    state.hear_report(_report(unreadable), 3.0)
    (row,) = host_views.clock(state, 3.0)["hosts"]
    assert [row[key] for key in keys] == ["none", None, 0, None, None]
    assert state.clock_events.disciplines.sources() == {"adjtimex": 0, "raw": 0, "none": 1}


def test_the_metrics_of_clocks_that_change() -> None:
    state = _state()
    state.hear_report(_report(STEADY), 1.0)
    state.clock.allowance_ns = 250.0
    follower = _Follower(state.clock_events)
    follower.see(1.0)
    follower.see(1.3, changing="a b", since_s=1.0)
    follower.see(4.3, changing="a", since_s=1.0)
    bus = manager_bus("nats://127.0.0.1:1")
    lease = Lease([bus], Claim(manager="1", name="m"), lambda _leads: None)
    collector = FleetCollector(Sources(state=state, bus=bus, server=None, lease=lease))
    found = {
        (s.name, *s.labels.values()): s.value
        for metric in collector.scrape({}).collect()
        for s in metric.samples
    }
    assert found["cwdp_clock_changes_total",] == 2
    assert found["cwdp_clock_changing",] == 1
    assert found["cwdp_clock_allowance_seconds",] == pytest.approx(250e-9)
    by_source = {
        source: found["cwdp_clock_discipline_hosts", source] for source in get_args(DisciplineSource)
    }
    assert by_source == {"adjtimex": 1, "raw": 0, "none": 0}


def test_a_host_that_is_gone_is_forgotten_with_its_discipline() -> None:
    state = _state()
    state.hear_report(_report(STEADY), 1.0)
    for now_s in (10.0, 10_000.0):
        state.expire(now_s)
    assert "b" not in state.members.hosts
    assert state.clock_events.disciplines.of("b") is None


def test_events_tell_of_changes_and_of_causes() -> None:
    state = _state()
    state.clock.fits.slot("a")
    state.clock.fits.slot("b")
    state.clock.changes += [("b", "set_aside"), ("b", "synced")]
    before = len(state.events)
    state.take_clock_changes(5.0)
    assert [(e.host, e.kind, e.detail) for e in list(state.events)[before:]] == [
        ("b", "clock_set_aside", "clock is set aside: its clock lies or steps"),
        ("b", "clock_synced", "clock is synced"),
    ]
    assert state.clock.changes == []


def test_a_solution_in_which_a_clock_changes_becomes_an_event(monkeypatch: pytest.MonkeyPatch) -> None:
    state = _state()
    for host in SLOTS:
        state.clock.fits.slot(host)
    monkeypatch.setattr(type(state.clock), "clocks", _clocks(1.3, changing="b", since_s=1.0))
    state.take_clock_changes(5.0)
    assert state.events[-1].kind == "clock_changed"
    assert state.clock_events.changes == 1
