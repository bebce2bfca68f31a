"""What of a soak held: each verdict fails for what it must fail for, and says so in a table that fits a terminal."""

import dataclasses
import json
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from tools.soak import verdicts
from tools.soak.judge import Judgement
from tools.soak.report import render
from tools.soak.traffic import Traffic
from tools.soak.troubles import Trouble
from tools.soak.watches.agents import started
from tools.soak.watches.clocks import ClockWatch
from tools.soak.watches.holdings import HoldingsWatch
from tools.soak.watches.leaders import Led

HOSTS = ["h1", "h2", "h3"]
STARTS = {"h2": [102.0, 131.0]}
MIB = 1 << 20
READINGS = 3000
WELL = Judgement((("silent", 1.0), ("silent", 2.0)), (), (), ())
SENT = Traffic((), (), 1.5, (), (), 0, 10**9, 12)


def clocks(error_ns: float = 20.0, bound_ns: float = 100.0) -> ClockWatch:
    watch = ClockWatch(None, None)
    watch.times_s = [0.1 * n for n in range(READINGS)]
    watch.errors_ns = [np.full(len(HOSTS), error_ns) for _ in range(READINGS)]
    watch.bounds_ns = [np.full(len(HOSTS), bound_ns) for _ in range(READINGS)]
    return watch


def passed(checks: list[verdicts.Check]) -> dict[str, bool]:
    return {check.what: check.passed for check in checks}


def test_clocks_within_their_bounds_pass() -> None:
    checks, figures = verdicts.clock_checks(clocks(), HOSTS, [], STARTS)
    assert all(check.passed for check in checks)
    assert figures["samples"] == READINGS * len(HOSTS)
    assert figures["outside"] == []


def test_one_reading_in_a_thousand_may_be_outside_and_more_may_not() -> None:
    for readings, is_well in ((5, True), (60, False)):
        watch = clocks()
        for row in range(1000, 1000 + readings):
            watch.errors_ns[row][1] = 450.0
        checks, figures = verdicts.clock_checks(watch, HOSTS, [], STARTS)
        assert passed(checks)["clocks within their bounds"] == is_well
        (episode,) = figures["outside"]
        assert (episode["host"], episode["readings"], episode["error_ns"]) == ("h2", readings, 450)


@pytest.mark.parametrize(
    ("kind", "end_s", "is_well"),
    [
        ("agent_stopped", 130.0, True),
        ("host_left", 130.0, True),
        ("agent_killed", 130.0, False),
        ("host_cut_off", 130.0, False),
    ],
)
def test_what_no_agent_follows_is_counted_apart_for_as_long_as_none_runs(
    kind: str, end_s: float, is_well: bool
) -> None:
    watch = clocks()
    for row in range(1150, 1250):
        watch.errors_ns[row][1] = 450.0
    checks, figures = verdicts.clock_checks(watch, HOSTS, [Trouble(kind, "h2", 100.0, end_s)], STARTS)
    assert passed(checks)["clocks within their bounds"] == is_well
    assert (figures["outside_share_without_agent"] > 0) == is_well


@pytest.mark.parametrize(("runs_s", "is_well"), [(102.0, False), (109.0, True), (140.0, True)])
def test_an_agent_that_takes_long_to_start_is_waited_for(runs_s: float, is_well: bool) -> None:
    """For `STARTS_WITHIN_S` at most, as at the last: by then its host must have a bound."""
    watch = clocks()
    for row in range(1010, 1110):
        watch.bounds_ns[row][1] = np.nan
    killed = [Trouble("agent_killed", "h2", 100.0, 112.0)]
    checks, _ = verdicts.clock_checks(watch, HOSTS, killed, {"h2": [3.0, runs_s]})
    assert passed(checks)["clocks without a bound"] == is_well
    watch.bounds_ns[1205][1] = np.nan
    checks, _ = verdicts.clock_checks(watch, HOSTS, killed, {"h2": [3.0, runs_s]})
    assert not passed(checks)["clocks without a bound"]


def test_when_agents_began_to_run_is_read_from_their_logs() -> None:
    log = """\
1970-01-01T00:00:03.500Z INFO cwdp.agent event kind=agent_started nic=- detail=0.1.0
1970-01-01T00:00:04.250Z INFO cwdp.agent running host=h1 nics=nic0
1970-01-01T00:01:00.000Z INFO cwdp.agent running host=h1 nics=nic0
"""
    assert list(started(log)) == [4.25, 60.0]


def test_a_clock_without_a_bound_fails() -> None:
    watch = clocks()
    watch.bounds_ns[500][2] = np.nan
    checks, figures = verdicts.clock_checks(watch, HOSTS, [], STARTS)
    assert not passed(checks)["clocks without a bound"]
    assert [(each["host"], round(each["at_s"])) for each in figures["without_bound_of"]] == [("h3", 50)]


@pytest.mark.parametrize(
    ("kind", "at_s", "is_well"),
    [
        ("agent_killed", 101.0, True),
        ("host_left", 129.0, True),
        ("host_left", 134.0, True),
        ("host_revoked", 132.0, True),
        ("host_left", 150.0, False),
        ("agent_killed", 120.0, False),
        ("dataplane_upgraded", 110.0, False),
    ],
)
def test_a_clock_without_a_bound_is_counted_apart_where_no_agent_runs_or_the_host_joins(
    kind: str, at_s: float, is_well: bool
) -> None:
    watch = clocks()
    watch.bounds_ns[round(10 * at_s)][1] = np.nan
    done = [Trouble(kind, "h2", 100.0, 130.0)]
    checks, figures = verdicts.clock_checks(watch, HOSTS, done, STARTS)
    assert passed(checks)["clocks without a bound"] == is_well
    assert figures["without_bound_without_agent"] == is_well
    watch.bounds_ns[round(10 * at_s)][0] = np.nan
    assert not passed(verdicts.clock_checks(watch, HOSTS, done, STARTS)[0])["clocks without a bound"]


def test_leaderless_for_long_and_without_cause_fail() -> None:
    led = [Led("m1", 1, 0.0, 100.0), Led("m2", 5, 104.0, 300.0)]
    killed = [Trouble("manager_killed", "m1", 99.0, 110.0)]
    checks, figures = verdicts.leader_checks(led, killed, 300.0)
    assert all(check.passed for check in checks)
    assert figures["longest_without_s"] == 4.0
    assert not passed(verdicts.leader_checks(led, [], 300.0)[0])["no leader without cause"]
    late = [led[0], dataclasses.replace(led[1], begin_s=115.0)]
    assert not passed(verdicts.leader_checks(late, killed, 300.0)[0])[verdicts.NO_LEADER]


@pytest.mark.parametrize(
    ("kind", "lasts_s", "is_well"),
    [
        ("manager_killed", 5.5, True),
        ("manager_cut_off", 7.0, False),
        ("server_killed", 9.5, True),
        ("server_stopped", 10.5, False),
        ("server_away", 9.5, True),
    ],
)
def test_nobody_may_lead_for_longer_where_a_bus_server_was_in_trouble(
    kind: str, lasts_s: float, is_well: bool
) -> None:
    led = [Led("m1", 1, 0.0, 100.0), Led("m2", 5, 100.0 + lasts_s, 300.0)]
    done = [Trouble(kind, "s1", 99.0, 110.0)]
    checks, figures = verdicts.leader_checks(led, done, 300.0)
    assert all(check.passed for check in checks) == is_well
    assert figures["longest_without_s"] == lasts_s
    both = [*done, Trouble("server_stopped", "s2", 90.0, 95.0)]
    assert all(check.passed for check in verdicts.leader_checks(led, both, 300.0)[0]) == (lasts_s < 10.0)


@pytest.mark.parametrize("wrong", ["missed", "false", "stale"])
def test_each_wrong_finding_fails(wrong: str) -> None:
    assert all(check.passed for check in verdicts.finding_checks(WELL)[0])
    checks, figures = verdicts.finding_checks(dataclasses.replace(WELL, **{wrong: ("silent l1-s2",)}))
    assert [check.passed for check in checks].count(False) == 1
    assert figures[f"{wrong}_count"] == 1


@pytest.mark.parametrize(
    "changes",
    [
        {"failed": ("h1 > h2",)},
        {"unacknowledged": ("h1 > h2",)},
        {"still": ("h1 > h2 at 9 s",)},
        {"icrc_errors": 1},
        {"strayed": (60_000,)},
    ],
)
def test_each_loss_of_a_queue_pair_fails(changes: dict[str, Any]) -> None:
    assert all(check.passed for check in verdicts.traffic_checks(SENT))
    checks = verdicts.traffic_checks(dataclasses.replace(SENT, **changes))
    assert [check.passed for check in checks].count(False) == 1


def holdings(growth_per_h: float, pins_in_the_end: int = 150) -> HoldingsWatch:
    class Lab:
        hosts = ()

    class Stage:
        lab = Lab()

    watch = HoldingsWatch(Stage())
    rng = np.random.default_rng(1)
    for at_s in np.arange(0.0, 1800.0, 5.0).tolist():
        for which in ("m1:10", "m2:11"):
            held = 80 * MIB * (1 + growth_per_h * at_s / 3600 + 1e-4 * rng.standard_normal())
            for quantity in ("rss_bytes", "private_bytes"):
                watch.processes[quantity, "manager"][which].append((at_s, held))
            for quantity in ("open_files", "threads"):
                watch.processes[quantity, "manager"][which].append((at_s, 13.0))
        watch.stores["history rings"].append((at_s, 65_536.0))
        watch.pins.append((at_s, 150.0))
        watch.namespaces.append((at_s, 18.0))
    watch.pins.append((1800.0, float(pins_in_the_end)))
    return watch


def test_what_grows_fails_by_the_name_of_its_role() -> None:
    assert all(check.passed for check in verdicts.holding_checks(holdings(0.0), 900.0)[0])
    checks, rows = verdicts.holding_checks(holdings(0.2), 900.0)
    failed = [check for check in checks if not check.passed]
    assert {check.what for check in failed} == {"rss bytes of processes", "private bytes of processes"}
    assert all("manager +" in check.found for check in failed)
    assert {row["verdict"] for row in rows if row["quantity"] == "open_files"} == {"flat"}


def test_of_processes_whose_tables_still_fill_nothing_is_said() -> None:
    watch = holdings(0.2)
    for series in watch.processes.values():
        for which, samples in series.items():
            series[which] = [pair for pair in samples if pair[0] >= 1300.0]
    checks, rows = verdicts.holding_checks(watch, 900.0)
    assert all(check.passed for check in checks)
    assert {(row["quantity"], row["verdict"]) for row in rows} == {
        ("rss_bytes", "open"),
        ("private_bytes", "open"),
        ("open_files", "flat"),
        ("threads", "flat"),
    }
    assert all(row["level"] > 80 * MIB for row in rows if row["quantity"].endswith("bytes"))


def test_pins_that_are_left_and_stores_of_no_known_bound_fail() -> None:
    assert all(check.passed for check in verdicts.store_checks(holdings(0.0), 900.0)[0])
    watch = holdings(0.0, pins_in_the_end=152)
    watch.stores["stream of somebody"] += [(0.0, 0.0), (900.0, 0.0), (1800.0, 1e6)]
    failed = [check.what for check in verdicts.store_checks(watch, 900.0)[0] if not check.passed]
    assert failed == ["stores on disk", "pins in bpffs"]


@pytest.mark.parametrize("failed", [[], ["false alarms"]])
def test_the_tables_fit_a_terminal_and_the_result_is_json(failed: list[str]) -> None:
    watch = holdings(0.2)
    of_processes, rows = verdicts.holding_checks(watch, 900.0)
    of_stores, stores = verdicts.store_checks(watch, 900.0)
    of_findings, findings = verdicts.finding_checks(WELL)
    result = {
        "troubles": [dataclasses.asdict(Trouble("silent", "l1-s2", 20.0, 35.0))],
        "checks": [dataclasses.asdict(check) for check in (*of_processes, *of_stores, *of_findings)],
        "findings": findings,
        "holdings": rows,
        "stores": stores,
        "minutes": 30.0,
        "seed": 1,
        "lab": "6 hosts",
        "idle_share": 0.3,
        "failed": failed,
    }
    assert json.loads(json.dumps(result)) == result
    console = Console(width=100)
    with console.capture() as shown:
        console.print(render(result))
    text = shown.get()
    assert max(map(len, text.splitlines())) <= 100
    assert "FAILED" in text
    assert ("failed: false alarms" if failed else "everything held") in text
