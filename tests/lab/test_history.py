"""The past of a fleet on real packets: it outlives the manager, and tells how links and fabric were."""

import os
import signal
import time
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from click.testing import CliRunner, Result
from conftest import lab_name
from waiting import until

from cwdp.cli import main
from cwdp.cli.client import ManagerClient
from manager.config import ProbeSettings
from tools.lab import Lab, LabSpec, faults, lifecycle
from tools.lab.fleet.control import MANAGER
from tools.lab.fleet.processes import Fleet
from tools.lab.fleet.session import wait_for_lock
from tools.lab.truth.clocks import Truth

pytestmark = [pytest.mark.lab, pytest.mark.timeout(180)]

LINKS = 2 * (4 + 4)
"""Of four hosts below two leaves and two spines, both ways."""


@pytest.fixture
def fleet() -> Iterator[Fleet]:
    name = lab_name("history")
    lifecycle.up(LabSpec(name=name, hosts_per_leaf=2, spines=2, seed=7))
    try:
        lab = Lab.open(name)
        with Fleet(lab, ProbeSettings(pairs_per_s=400.0, paths=4)) as running, Truth(lab) as truth:
            wait_for_lock(running, truth)
            yield running
    finally:
        lifecycle.down(name)


def _cwdp(fleet: Fleet, *arguments: str) -> Result:
    return CliRunner().invoke(main, [*arguments, "--manager", f"unix://{fleet.socket}"])


def _shows(fleet: Fleet, what: str, *arguments: str) -> str:
    result = _cwdp(fleet, *arguments)
    return str(result.output) if result.exit_code == 0 and what in result.output else ""


def test_the_past_outlives_a_manager_that_is_killed(fleet: Fleet) -> None:
    def link_count(ago_s: int) -> int:
        result = _cwdp(fleet, "link", "--at", f"{ago_s}s", "--json")
        return int(result.output.count('"queue_p99_ns"')) if result.exit_code == 0 else 0

    until(lambda: link_count(1) == LINKS, "all links measured")
    faults.drop(fleet.lab.name, "l1-s2", 1.0)
    until(lambda: _shows(fleet, "link silent", "event", "--since", "1m"), "the event of the cut")
    until(lambda: _shows(fleet, "silent", "fabric", "--links", "--at", "1s"), "the cut link as it was")
    cut_s = time.time()
    faults.drop(fleet.lab.name, "l1-s2", 0.0)
    time.sleep(1.0)
    before = fleet.process(MANAGER).pid
    os.kill(before, signal.SIGKILL)
    until(lambda: fleet.process(MANAGER).pid != before, "another manager")
    until(
        lambda: _shows(fleet, "manager leads", "event", "--since", "5m", "--kind", "manager leads"),
        "its answer",
    )

    events = _shows(fleet, "link silent", "event", "--since", "5m")
    assert events.count("host up") >= len(fleet.lab.hosts)
    assert until(lambda: _shows(fleet, "link silent", "event", "--since", "5m", "--kind", "link_silent"))
    at = datetime.fromtimestamp(cut_s, UTC).isoformat()
    assert "silent" in _shows(fleet, "", "fabric", "--links", "--at", at)
    assert "100%" in _shows(fleet, "", "link", "--at", at, "--limit", "0")
    assert "\nsilent: " in _shows(fleet, "", "link", "--at", at)
    _shows_the_pages_of_then(fleet, cut_s)
    for noun in ("link", "fabric"):
        outside = _cwdp(fleet, noun, "--at", "2020-01-01")
        assert outside.exit_code == 1
        assert "is outside the history" in outside.stderr
        assert "it spans" in outside.stderr


def _shows_the_pages_of_then(fleet: Fleet, time_s: float) -> None:
    """What the page is told of an instant before the manager was killed."""
    client = ManagerClient(f"unix://{fleet.socket}")
    at = str(time_s)
    then = client.get("/v1/fleet", {"at": at})
    assert (then["is_live"], then["links"], then["at_s"]) == (False, LINKS, time_s)
    (finding,) = then["findings"]
    assert (finding["kind"], finding["severity"]) == ("silent", "critical")
    assert then["verdict"]["severity"] == "critical"
    a, b = finding["where"]["a"], finding["where"]["b"]
    assert client.get("/v1/link-view", {"a": a, "b": b, "at": at})["there"]["state"] == "silent"
    assert {"silent"} <= {link["state"] for link in client.get("/v1/map", {"at": at})["links"]}
    assert len(client.get("/v1/matrix", {"at": at, "metric": "p50"})["names"]) == fleet.lab.spec.leaves
    assert client.get("/v1/leaf", {"name": a, "at": at})["matrix"] is None
    since_s, until_s = client.get("/v1/span")["links"]
    assert since_s <= time_s <= until_s
    assert client.get("/v1/fleet")["is_live"]
