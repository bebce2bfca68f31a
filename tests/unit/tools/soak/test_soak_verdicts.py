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
from tools.soak.watches.clocks import ClockWatch
from tools.soak.watches.holdings import HoldingsWatch
from tools.soak.watches.leaders import Led

HOSTS = ["h1", "h2", "h3"]
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
    checks, figures = verdicts.clock_checks(clocks(), HOSTS, [])
    assert all(check.passed for check in checks)
    assert figures["samples"] == READINGS * len(HOSTS)
    assert figures["outside"] == []


def test_one_reading_in_a_thousand_may_be_outside_and_more_may_not() -> None:
    for readings, is_well in ((5, True), (60, False)):
        watch = clocks()
        for row in range(1000, 1000 + readings):
            watch.errors_ns[row][1] = 450.0
        checks, figures = verdicts.clock_checks(watch, HOSTS, [])
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
    checks, figures = verdicts.clock_checks(watch, HOSTS, [Trouble(kind, "h2", 100.0, end_s)])
    assert passed(checks)["clocks within their bounds"] == is_well
    assert (figures["outside_share_without_agent"] > 0) == is_well


def test_a_clock_without_a_bound_fails() -> None:
    watch = clocks()
    watch.bounds_ns[500][2] = np.nan
    checks, figures = verdicts.clock_checks(watch, HOSTS, [])
    assert not passed(checks)["clocks without a bound"]
    assert figures["without_bound_s"] == [50]


def test_leaderless_for_long_and_without_cause_fail() -> None:
    led = [Led("m1", 1, 0.0, 100.0), Led("m2", 5, 104.0, 300.0)]
    killed = [Trouble("manager_killed", "m1", 99.0, 110.0)]
    checks, figures = verdicts.leader_checks(led, killed, 300.0)
    assert all(check.passed for check in checks)
    assert figures["longest_without_s"] == 4.0
    assert not passed(verdicts.leader_checks(led, [], 300.0)[0])["no leader without cause"]
    late = [led[0], dataclasses.replace(led[1], begin_s=115.0)]
    assert not passed(verdicts.leader_checks(late, killed, 300.0)[0])[verdicts.NO_LEADER]


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
