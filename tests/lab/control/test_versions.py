"""Agents of the release before, which wait for their upgrade, beside new ones and with a new manager."""

import asyncio
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import aiohttp
import numpy as np
import pytest
from conftest import lab_name
from prometheus_client.parser import text_string_to_metric_families
from steered_pair import SOURCE, TARGET, SteeredPair
from waiting import until

from cwdp.cli.client import ManagerClient
from manager.config import ProbeSettings, RoceConfig
from tools.lab import Lab, LabSpec, faults, lifecycle
from tools.lab.fleet.processes import Fleet
from tools.lab.fleet.session import wait_for_lock
from tools.lab.truth.clocks import Truth
from tools.roce.generator import Generator

pytestmark = [pytest.mark.lab, pytest.mark.timeout(300)]

CHECKOUT = Path(__file__).parents[3]
PREVIOUS = "5a4907ba3d5871fa8ac3ce2216cdde81760e6716"
"""The commit whose agents are the oldest that have to work; the last but one release, once there are two."""

OLD = (SOURCE, "h4")
RATE_BPS = 1_000_000
REFUSED = ("received_bad", "received_not_theirs", "handler_failed", "desired_refused", "clock_refused")


@pytest.fixture(scope="module")
def previous(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tree of the release before, with its own dataplane."""
    git = ["git", "-c", "safe.directory=*", "-C", str(CHECKOUT), "archive", PREVIOUS]
    archive = subprocess.run(git, capture_output=True, check=False)
    if archive.returncode:
        pytest.skip("the release before is not in this checkout's history")
    folder = tmp_path_factory.mktemp("previous")
    subprocess.run(["tar", "-x", "-C", str(folder)], input=archive.stdout, check=True)
    (folder / "build").mkdir()
    (folder / "build/.packages").touch()
    subprocess.run(["make", "-C", str(folder), "-j2", "bpf"], check=True, capture_output=True)
    subprocess.run([sys.executable, "-m", "compileall", "-q", str(folder / "cwdp")], check=True)
    return folder


class Running(SteeredPair):
    """A lab in which some agents are older than the manager and the other agents."""

    def __init__(self, lab: Lab, fleet: Fleet, truth: Truth, commands: dict[str, list[str]]) -> None:
        super().__init__(lab, truth)
        self.lab, self.fleet, self._commands = lab, fleet, commands
        self.client = ManagerClient(f"unix://{fleet.socket}")

    def hosts(self) -> list[dict[str, Any]]:
        hosts: list[dict[str, Any]] = self.client.get("/v1/host")["hosts"]
        return hosts

    def refused(self) -> dict[str, float]:
        """What agents and the manager refused of each other, by host and reason."""
        found: dict[str, float] = {}
        for host in self.lab.hosts:
            counters = self.client.get("/v1/host", {"name": host.name})["hosts"][0]["counters"]
            found |= {
                f"{host.name} {name}": count for name, count in counters.items() if name.endswith(REFUSED)
            }
        for family in text_string_to_metric_families(asyncio.run(self._metrics())):
            if family.name == "cwdp_bus_messages":
                found |= {f"manager {one.labels['reason']}": one.value for one in family.samples}
        return {name: count for name, count in found.items() if count and name.endswith(REFUSED)}

    async def _metrics(self) -> str:
        connector = aiohttp.UnixConnector(path=str(self.fleet.socket))
        async with (
            aiohttp.ClientSession(connector=connector) as http,
            http.get("http://manager/metrics") as said,
        ):
            return await said.text()

    def kinds(self) -> list[str]:
        return [event["kind"] for event in self.client.get("/v1/events")["events"]]

    def is_precise(self) -> bool:
        errors = np.abs(self.truth.read(time.monotonic_ns()).error_ns)
        return bool(np.nan_to_num(errors, nan=np.inf).max() < 20_000)

    def upgrade(self, host: str) -> None:
        """As `docs/upgrade.md` says, and the package does."""
        del self._commands[host]
        self.fleet.stop(host)
        upgraded = self.lab.popen(host, [sys.executable, "-m", "cwdp", "dataplane", "upgrade"])
        assert upgraded.wait() == 0
        self.fleet.start(host)


@pytest.fixture(scope="module")
def running(previous: Path) -> Iterator[Running]:
    name = lab_name("versions")
    old = ["env", "-C", str(previous), sys.executable, "-m", "cwdp", "agent", "run"]
    commands = dict.fromkeys(OLD, old)
    lifecycle.up(LabSpec(name=name, hosts_per_leaf=2, spines=2, seed=6))
    roce = RoceConfig(dead_after_ms=50.0, hold_down_ms=200.0, hold_down_max_ms=200.0)
    try:
        lab = Lab.open(name)
        probes = ProbeSettings(pairs_per_s=200.0, degree=3)
        with Fleet(lab, probes, commands, roce=roce) as fleet, Truth(lab) as truth:
            wait_for_lock(fleet, truth)
            made = Running(lab, fleet, truth, commands)
            made.steer(made.client)
            yield made
    finally:
        lifecycle.down(name)


@contextmanager
def _silent(running: Running) -> Iterator[None]:
    link = f"l1-{running.ways[0][2]}"
    faults.drop(running.lab.name, link, 1.0)
    try:
        yield
    finally:
        faults.heal(running.lab.name, link)


def _is_old(running: Running, host: str) -> bool:
    here = Path(f"/proc/{running.fleet.process(host).pid}/cwd").resolve()
    return here != CHECKOUT


def test_old_agents_are_probed_steered_and_found_faults_with(running: Running) -> None:
    assert [_is_old(running, host.name) for host in running.lab.hosts] == [True, False, False, True]
    until(running.is_precise, "all clocks on the timeline")
    assert {row["state"] for row in running.hosts()} == {"up"}
    with Generator([running.flow(RATE_BPS)], running.lab.popen, running.lab.run_dir) as generator:
        generator.start()
        time.sleep(1.0)
        with _silent(running):
            until(lambda: {"path_down", "link_silent"} <= set(running.kinds()), "the way round and its cause")
        until(lambda: "path_up" in running.kinds(), "the way back")
        (flow,) = generator.stop()["flows"]
    assert not flow["failed"]
    assert {port["port"] for port in flow["sports"]} == {*running.ways[0][:2]}
    assert running.refused() == {}


def test_agents_are_upgraded_one_by_one_while_queue_pairs_send(running: Running) -> None:
    patient = running.flow(RATE_BPS, timeout_ns=1_000_000_000)
    with Generator([patient], running.lab.popen, running.lab.run_dir) as generator:
        generator.start()
        for host in OLD:
            starts = running.kinds().count("agent_started")
            running.upgrade(host)
            until(
                lambda before=starts: running.kinds().count("agent_started") > before,
                f"the new agent of {host}",
            )
            assert not _is_old(running, host)
        until(running.is_precise, "all clocks on the timeline")
        until(running.is_steered, "the steering that was")
        (flow,) = generator.stop()["flows"]
    assert (flow["retransmitted_packets"], flow["failed"]) == (0, False)
    assert {row["state"] for row in running.hosts()} == {"up"}
    assert running.refused() == {}
    assert TARGET not in OLD
