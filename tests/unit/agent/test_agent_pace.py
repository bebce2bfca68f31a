"""What is told how often."""

import pytest

from cwdp.agent.pace import Pace
from manager.probing.pace import Pace as ManagerPace
from manager.probing.pace import paths_of_pair, report_interval_s

LOOK_S = 0.125


@pytest.mark.parametrize("interval_s", [0.25, 0.5, 1.0, 2.0])
@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize("jitter_s", [0.0, 0.04])
def test_as_often_as_wanted_in_the_mean_and_the_first_time_at_once(
    interval_s: float, parts: int, jitter_s: float
) -> None:
    now_s = 0.0
    pace = Pace(interval_s, lambda: now_s)
    told = []
    for look in range(800):
        now_s = look * LOOK_S + (jitter_s if look % 3 else -jitter_s)
        if pace.is_due("windows", parts=parts):
            told.append(now_s)
    assert told[0] == -jitter_s
    assert len(told) == pytest.approx(800 * LOOK_S * parts / interval_s, abs=2)


def test_what_has_a_least_interval_is_told_no_more_often() -> None:
    now_s = 0.0
    pace = Pace(0.25, lambda: now_s)
    told = 0
    for look in range(81):
        now_s = look * LOOK_S
        told += pace.is_due("in full", 1.0)
    assert told == 11


def test_what_was_missed_is_not_made_up_for() -> None:
    now_s = 0.0
    pace = Pace(1.0, lambda: now_s)
    assert pace.is_due("report")
    now_s = 60.0
    assert [pace.is_due("report") for _ in range(3)] == [True, False, False]


def test_sums_of_windows_are_told_where_the_manager_looks_at_several_together() -> None:
    told = {nics: Pace(report_interval_s(nics, 0.25)).tells_sums for nics in (4, 1_024, 1_025, 10_000)}
    assert told == {4: False, 1_024: False, 1_025: True, 10_000: True}


def test_a_large_fleet_reports_less_often_and_does_not_go_to_and_fro() -> None:
    assert [report_interval_s(nics, 0.25) for nics in (4, 256, 257, 1_024, 1_025, 10_000)] == [
        0.25,
        0.25,
        0.5,
        0.5,
        1.0,
        1.0,
    ]
    assert [report_interval_s(nics, 1.0) for nics in (1_020, 900, 800, 250, 200)] == [
        1.0,
        1.0,
        0.5,
        0.5,
        0.25,
    ]


def test_agents_report_more_seldom_while_the_manager_is_behind_and_not_for_a_moment_of_it() -> None:
    pace = ManagerPace()
    pace.follow(2_048)

    def turned(waits_s: float, seconds: range) -> list[int]:
        return [second for second in seconds if pace.keep_up(waits_s, float(second))]

    assert turned(0.1, range(10)) == []
    assert turned(2.0, range(10, 15)) == []
    assert turned(0.9, range(15, 16)) == []
    assert turned(2.0, range(16, 100)) == [21]
    assert pace.interval_s == 1.5
    pace.follow(10)
    assert pace.interval_s == 0.375
    assert turned(0.5, range(100, 300)) == []
    assert turned(0.1, range(300, 350)) == []
    assert turned(0.3, range(350, 351)) == []
    assert turned(0.1, range(351, 500)) == [411]
    assert pace.interval_s == 0.25


def test_a_pair_of_a_large_fleet_probes_over_fewer_paths_and_does_not_go_to_and_fro() -> None:
    assert [paths_of_pair(nics, 8, 8) for nics in (2, 1_024, 1_025, 10_000)] == [8, 8, 2, 2]
    assert [paths_of_pair(nics, 8, 2) for nics in (1_024, 900, 819, 10)] == [2, 2, 8, 8]
    assert [paths_of_pair(nics, 1, 1) for nics in (10, 2_000)] == [1, 1]
