"""A fleet in pods on real packets: each has a manager of its own, and what crosses them is steered, kept alive and signed alike."""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import waiting
from conftest import lab_name
from steered_pair import SteeredPair

from cwdp.cli.client import ManagerClient
from cwdp.errors import ManagerError
from manager.config import PlannerSettings, ProbeSettings, RoceConfig
from tools.lab import Lab, LabSpec, faults, lifecycle
from tools.lab.fleet.processes import Fleet
from tools.lab.truth.clocks import Truth
from tools.roce.generator import Generator

pytestmark = [pytest.mark.lab, pytest.mark.timeout(180)]

RATE_BPS = 2_000_000
HOSTS = {"m1": {"h1", "h2"}, "m2": {"h3", "h4"}}
"""Of each pod, by its manager."""


class Running(SteeredPair):
    """A lab of two pods with its services, and a queue pair from one to the other that is steered by both."""

    def __init__(self, lab: Lab, fleet: Fleet, truth: Truth) -> None:
        self.lab, self.fleet = lab, fleet
        self.clients = {name: ManagerClient(f"unix://{fleet.socket_of(name)}") for name in HOSTS}
        until(lambda: all(self.is_synced(name) for name in HOSTS), "all clocks")
        super().__init__(lab, truth)
        self.steer(*self.clients.values())

    def ask(self, manager: str, path: str) -> dict[str, Any]:
        answer: dict[str, Any] = self.clients[manager].get(path)
        return answer

    def is_synced(self, manager: str) -> bool:
        """Whether a manager knows its pod's hosts, no others, and all their clocks."""
        states = {row["host"]: row["state"] for row in self.ask(manager, "/v1/clock")["hosts"]}
        return states == dict.fromkeys(HOSTS[manager], "synced")

    def backed_up(self, manager: str) -> int:
        """How many queue pairs its planner has given another way."""
        return int(self.ask(manager, "/v1/manager")["planner"]["backed_up"])

    def path_events(self, kind: str) -> int:
        """How often h1 has told of its paths."""
        events = self.ask("m1", "/v1/events")["events"]
        return sum((event["host"], event["kind"]) == ("h1", kind) for event in events)


def until(condition: Any, what: str) -> None:
    def holds() -> bool:
        with suppress(ManagerError):
            return bool(condition())
        return False

    waiting.until(holds, what)


@pytest.fixture(scope="module")
def running() -> Iterator[Running]:
    name = lab_name("pods")
    spec = LabSpec(name=name, pods=2, leaves=2, spines=2, cores=2, hosts_per_leaf=1, managers=2, seed=5)
    lifecycle.up(spec)
    roce = RoceConfig(dead_after_ms=50.0, hold_down_ms=200.0, hold_down_max_ms=200.0)
    try:
        lab = Lab.open(name)
        faults.prepare_silence(name, lab.topology)
        probes = ProbeSettings(pairs_per_s=100.0, degree=2)
        planner = PlannerSettings()
        with Fleet(lab, probes, roce=roce, planner=planner, by_pod=True) as fleet, Truth(lab) as truth:
            yield Running(lab, fleet, truth)
    finally:
        lifecycle.down(name)


def test_each_pod_has_a_leader_and_both_know_of_each_other(running: Running) -> None:
    for manager, hosts in HOSTS.items():
        told = running.ask(manager, "/v1/manager")
        assert (told["name"], told["leads"], told["hosts_up"]) == (manager, True, len(hosts))
        assert told["root"] == "p1"
        assert told["pods"] == [
            {"pod": "p1", "leader": "m1", "hosts_up": 2},
            {"pod": "p2", "leader": "m2", "hosts_up": 2},
        ]


def test_a_queue_pair_between_pods_leaves_a_silent_link_and_comes_back(running: Running) -> None:
    (sport, backup_sport, spine), _ = running.ways
    downs, ups = running.path_events("path_down"), running.path_events("path_up")
    with Generator([running.flow(RATE_BPS)], running.lab.popen, running.lab.run_dir) as generator:
        generator.start()
        time.sleep(1.0)
        faults.drop(running.lab.name, f"p1l1-{spine}", 1.0)
        try:
            until(lambda: running.path_events("path_down") > downs, "the path given up")
            time.sleep(0.5)
        finally:
            faults.heal(running.lab.name, f"p1l1-{spine}")
        until(lambda: running.path_events("path_up") > ups, "the path used again")
        time.sleep(0.5)
        result = generator.stop()
    (flow,) = result["flows"]
    assert {port["port"] for port in flow["sports"]} == {sport, backup_sport}
    assert not flow["failed"]
    assert result["total"]["icrc_errors"] == 0


def test_nics_of_other_pods_are_probed_and_their_one_way_delays_told_on_the_pods_timeline(
    running: Running,
) -> None:
    def far(manager: str) -> list[dict[str, Any]]:
        paths = running.ask(manager, "/v1/owd")["paths"]
        return [path for path in paths if path["dst"].partition("/")[0] not in HOSTS[manager]]

    def told(manager: str) -> list[dict[str, Any]]:
        return [path for path in far(manager) if path["bound_ns"] is not None]

    until(lambda: all(len(told(name)) > 3 for name in HOSTS), "delays")
    for name in HOSTS:
        for path in told(name):
            assert path["bound_ns"] < 1_000_000
            for way in ("fwd", "rev"):
                least_ns, bound_ns = path[f"{way}_min_ns"], path["bound_ns"]
                assert -bound_ns < least_ns < path["rtt_min_ns"] + bound_ns
        assert running.is_synced(name)


def test_a_queue_pair_between_pods_that_nobody_has_steered_gets_a_backup(running: Running) -> None:
    """Its data by the manager of one pod, what acknowledges them by that of the other."""
    flow = replace(running.flow(RATE_BPS), id=1, qpn=2000, remote_qpn=2001)
    with Generator([flow], running.lab.popen, running.lab.run_dir) as generator:
        generator.start()
        backed_up = [partial(running.backed_up, name) for name in HOSTS]
        until(lambda: all(count() > 0 for count in backed_up), "backups")
        result = generator.stop()
    assert not any(each["failed"] for each in result["flows"])
    assert result["total"]["icrc_errors"] == 0


def silent_links(running: Running, since: dict[str, int]) -> dict[str, list[str]]:
    """The links that each manager has called silent since, by the lab's names."""
    addresses = ((at, running.lab.topology.router_addresses(at)) for at in running.lab.topology.switches)
    names = {str(address): at for at, both in addresses for address in both}
    return {
        name: [
            "-".join(sorted(names.get(end, end) for end in event["detail"].partition(": ")[0].split(" - ")))
            for event in running.ask(name, "/v1/events")["events"][since[name] :]
            if event["kind"] == "link_silent"
        ]
        for name in HOSTS
    }


def findings(running: Running) -> dict[str, list[dict[str, Any]]]:
    """What each manager finds to lose probes now."""
    return {
        name: [
            each for each in running.ask(name, "/v1/link")["findings"] if each["kind"] in ("silent", "lossy")
        ]
        for name in HOSTS
    }


@pytest.mark.parametrize(
    ("link", "by", "names"),
    [
        ("p1s1-c1", "m1", ["c1-p1s1"]),
        ("p2s2-c1", "m1", ["c1-p2s2"]),
        ("p2l1-p2s1", "m2", ["p2l1-p2s1", "p2l2-p2s1"]),
    ],
    ids=["to a core", "to a core from the other pod", "inside a pod"],
)
def test_a_silent_link_is_named_once_by_the_root_between_pods_and_by_its_own_pod_inside(
    running: Running, link: str, by: str, names: list[str]
) -> None:
    other = next(name for name in HOSTS if name != by)
    until(lambda: not any(findings(running).values()), "nothing from before")
    known = {name: len(running.ask(name, "/v1/events")["events"]) for name in HOSTS}
    faults.drop(running.lab.name, link, 1.0)
    try:
        until(lambda: silent_links(running, known)[by], "its name")
        time.sleep(4.0)
        told = silent_links(running, known)
    finally:
        faults.heal(running.lab.name, link)
    assert told[other] == []
    assert len(told[by]) == 1
    assert told[by][0] in names
    until(lambda: not any(findings(running).values()), "its end")
    assert silent_links(running, known) == told


def test_the_keys_are_rotated_in_all_pods_without_refusing_a_pulse_between_them(running: Running) -> None:
    def have(ids: list[int]) -> bool:
        rows = [row for name in HOSTS for row in running.ask(name, "/v1/host")["hosts"]]
        return all(row["key_ids"] == ids for row in rows)

    refused = ("request_unknown_key", "reply_unknown_key", "request_bad_mac", "reply_bad_mac")
    before = {host.name: running.truth.counters(host.name) for host in running.lab.hosts}
    running.clients["m2"].put("/v1/credential/keys", {})
    until(lambda: have([1, 2]), "both keys everywhere")
    until(lambda: have([2]), "the new key alone")
    time.sleep(1)
    for host, counters in before.items():
        now = running.truth.counters(host)
        assert now["reply_accepted"] > counters["reply_accepted"]
        assert all(now[reason] == counters[reason] for reason in refused)
    assert running.is_steered()


def test_a_pods_manager_that_is_killed_is_missed_by_its_pod_only(running: Running) -> None:
    epoch = running.ask("m1", "/v1/manager")["epoch"]
    before = running.fleet.process("m2").pid
    os.kill(before, signal.SIGKILL)
    until(lambda: running.fleet.process("m2").pid != before, "another process")
    until(lambda: running.ask("m2", "/v1/manager")["leads"] and running.is_synced("m2"), "it leads again")
    told = running.ask("m1", "/v1/manager")
    assert (told["leads"], told["epoch"]) == (True, epoch)
    assert running.is_steered()
    until(lambda: len(running.ask("m1", "/v1/manager")["pods"]) == 2, "its word")
