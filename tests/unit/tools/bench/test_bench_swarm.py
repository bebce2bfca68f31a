"""What the swarm's bench makes of a run: which events name a fault, and which figures tell nothing."""

from dataclasses import replace
from typing import Any

import pytest
from click.testing import CliRunner

from tools.bench.__main__ import main
from tools.bench.swarm.figures import growth, of_run
from tools.bench.swarm.runs import Fault, PodRun, Run, misnamed

CABLE = "172.16.0.3 - 172.24.0.1"
POD = PodRun(
    pod="main",
    cores=0.5,
    memory_bytes=600 << 20,
    duties={"hear window": 0.1, "root": 0.05},
    messages_up_per_s=100.0,
    bytes_up_per_s=64_000.0,
    messages_down_per_s=10.0,
    bytes_down_per_s=6_400.0,
    loop_lag_s=0.2,
    backlog_s=0.3,
    lost_on_the_way=0,
    moves=1,
    times_led=1,
    misnamed=[],
)
SECOND = replace(POD, pod="p2", cores=0.4, duties={"hear window": 0.1, "root": 0.0})


def fault(**changes: Any) -> Fault:
    known = {"cable": CABLE, "pod": 0, "to_core": False, "began_s": 100.0, "lasted_s": 5.0}
    return Fault(**known | changes)


def run_of(*pods: PodRun, **changes: Any) -> Run:
    known: dict[str, Any] = {
        "nics": 64 * len(pods),
        "slowed": 4,
        "pods": list(pods),
        "swarm_cores": 0.3,
        "bus_cores": 0.02,
        "bus_bytes": 50 << 20,
        "swarm_late_s": 0.1,
        "unsent": 0,
        "faults": [fault(named_s={0: 1.0}), fault(pod=1, named_s={1: 1.5}), fault(to_core=True)],
        "root": "main",
        "between_pods": {"main": 100.0, "p2": 120.0},
        "counting_lost": 0,
        "probes_between_pods": 0,
    }
    return Run(**known | changes)


def event(detail: str, kind: str = "link_lossy", time_s: float = 101.0) -> dict[str, Any]:
    return {"kind": kind, "detail": detail, "time_s": time_s}


def found(run: Run) -> dict[str, dict[str, Any]]:
    return {each["name"]: each for each in of_run(run)}


@pytest.mark.parametrize(
    ("said", "named_s"),
    [
        (event(f"{CABLE}: 12 probes lost; confidence 99%"), 1.0),
        (event(f"10.0.0.1 - 172.16.0.3: lost (or {CABLE}); confidence 50%", time_s=103.0), 3.0),
        (event(f"{CABLE}4: 12 probes lost"), None),
        (event(f"1{CABLE}: 12 probes lost"), None),
        (event(f"{CABLE}: over", kind="link_lossy_over"), None),
        (event(f"{CABLE}: lost", time_s=99.0), None),
        (event(f"{CABLE}: lost", time_s=106.0), None),
    ],
)
def test_a_link_is_named_by_an_event_that_begins_while_it_loses_packets(
    said: dict[str, Any], named_s: float | None
) -> None:
    one = fault()
    one.read(3, [said])
    assert one.named_s == ({} if named_s is None else {3: named_s})


def test_what_was_not_at_fault_is_misnamed() -> None:
    events = [
        event(f"{CABLE}: lost"),
        event("172.24.0.1 > 172.16.0.3: lost"),
        event(f"{CABLE}7: lost"),
        event("172.16.0.9 - 172.24.0.2: over", kind="link_lossy_over"),
        event("172.24.0.2: lost", kind="switch_silent"),
    ]
    assert misnamed([fault()], events) == ["172.16.0.3 - 172.24.0.17", "172.24.0.2"]


def test_of_several_pods_the_worst_counts_and_the_factor_is_told() -> None:
    figures = found(run_of(POD, SECOND))
    cores = figures["swarm.128.2.cores"]
    assert (cores["value"], cores["met"]) == (0.5, True)
    assert cores["reference"]["slowed"] == 4
    assert cores["reference"]["unattributed"] == pytest.approx(0.35)
    assert cores["reference"]["pods"] == {"main": 0.5, "p2": 0.4}
    assert figures["swarm.128.2.bytes_up_a_nic"]["value"] == 1000
    assert figures["swarm.128.2.named_p99"]["reference"]["faults"] == 2
    assert figures["swarm.128.2.named_p99"]["met"]
    root = figures["swarm.128.2.root"]
    assert (root["value"], root["target"], root["met"]) == (0.05, 0.3, True)
    assert root["reference"]["more_than_others_cores"] == pytest.approx(0.1)
    assert figures["swarm.128.2.bytes_between_pods"]["value"] == 220


def test_a_link_between_pods_is_named_by_the_first_pod_and_missed_where_none_names_it() -> None:
    named = run_of(POD, SECOND, faults=[fault(to_core=True, named_s={0: 3.0, 1: 1.0})])
    figure = found(named)["swarm.128.2.core_named_p99"]
    assert (figure["value"], figure["met"]) == (1.0, True)
    assert figure["reference"]["named_by_pods"] == [2]
    assert found(named)["swarm.128.2.named_p99"]["value"] is None
    figure = found(run_of(POD, SECOND))["swarm.128.2.core_named_p99"]
    assert (figure["value"], figure["met"]) == (180.0, False)


def test_a_link_within_a_pod_is_named_by_the_manager_of_that_pod() -> None:
    figure = found(run_of(POD, SECOND, faults=[fault(pod=1, named_s={0: 1.0})]))["swarm.128.2.named_p99"]
    assert (figure["value"], figure["met"]) == (180.0, False)


def test_the_share_of_links_that_were_named_is_told() -> None:
    faults = [fault(named_s={0: 1.0}), fault(), fault(named_s={0: 4.0}), fault(named_s={0: 0.5})]
    reference = found(run_of(POD, SECOND, faults=faults))["swarm.128.2.named_p99"]["reference"]
    assert (reference["faults"], reference["not_named"], reference["named_share"]) == (4, 1, 0.75)


@pytest.mark.parametrize("root", [None, "p9"])
def test_a_root_that_nobody_knew_is_not_measured(root: str | None) -> None:
    figure = found(run_of(POD, SECOND, root=root))["swarm.128.2.root"]
    assert (figure["value"], figure["met"]) == (None, None)


def test_a_manager_that_has_no_duty_as_the_root_yet_spends_nothing_on_it() -> None:
    figure = found(run_of(replace(POD, duties={"plan": 0.1}), SECOND))["swarm.128.2.root"]
    assert (figure["value"], figure["met"]) == (0.0, True)


def test_times_that_a_manager_led_are_not_told_from_a_part_of_its_events() -> None:
    figure = found(run_of(POD, replace(SECOND, times_led=None)))["swarm.128.2.times_led"]
    assert (figure["value"], figure["met"]) == (None, None)
    assert found(run_of(POD, replace(SECOND, times_led=2)))["swarm.128.2.times_led"]["met"] is False


def test_growth_is_not_measured_where_reports_were_lost() -> None:
    small, large = run_of(POD), replace(run_of(replace(POD, cores=4.4)), nics=512)
    figure = growth([small, large])
    assert (figure["value"], figure["met"]) == (1.1, True)
    large.pods[0].lost_on_the_way = 1
    figure = growth([small, large])
    assert (figure["value"], figure["target"], figure["met"]) == (None, None, None)


@pytest.mark.parametrize("nics", [[], ["--nics", "100"], ["--nics", "16"]])
def test_pods_that_cannot_be_made_are_refused(nics: list[str]) -> None:
    result = CliRunner().invoke(main, ["swarm", "--pods", "2", *nics])
    assert result.exit_code == 2
    assert "two hosts a pod" in result.output
