"""Managers and bus servers that are killed, stopped or cut off while queue pairs send and links fail."""

import os
import random
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Self

import numpy as np
import pytest
from conftest import lab_name
from steered_pair import SOURCE, SteeredPair
from waiting import until

from cwdp.cli.client import ManagerClient
from cwdp.errors import ManagerError
from manager.config import ProbeSettings, RoceConfig
from tools.lab import Lab, LabSpec, faults, lifecycle, partition
from tools.lab.fleet.processes import Fleet
from tools.lab.fleet.session import wait_for_lock
from tools.lab.truth.clocks import Truth
from tools.lab.truth.documents import StoredDocuments
from tools.roce.generator import Generator

pytestmark = [pytest.mark.lab, pytest.mark.needs("nats-server"), pytest.mark.timeout(600)]

SEED = int(os.environ.get("CWDP_QUORUM_SEED", "1"))
FAULTS = int(os.environ.get("CWDP_QUORUM_FAULTS", "4"))
STANDS_S = float(os.environ.get("CWDP_QUORUM_STANDS_S", "6"))
FAR_NS = 1_000_000.0
"""A clock that moved would be seconds off, as hosts' own clocks are; a busy machine, 0.1 ms once, is no reason to fail."""

PROMPT_NS = 20_000_000
"""Clocks that are read later than that are followed back over lines that were not theirs then."""

RATE_BPS = 1_000_000
KINDS = ("killed", "stopped", "cut off")
STALL_S, BETWEEN_STALLS_S, STALLED_S = 0.8, 0.2, 7.0


class Running(SteeredPair):
    """A fleet of two managers on three bus servers, and a steered queue pair."""

    def __init__(self, lab: Lab, fleet: Fleet, truth: Truth) -> None:
        super().__init__(lab, truth)
        self.lab, self.fleet = lab, fleet

    def client(self, manager: str) -> ManagerClient:
        return ManagerClient(f"unix://{self.fleet.socket_of(manager)}")

    def leader(self) -> tuple[str, int] | None:
        """Who says that it leads, of those that can be asked and are not cut off, and its epoch."""
        for name in self.fleet.managers:
            try:
                said = self.client(name).get("/v1/manager")
            except ManagerError:
                continue
            if said["leads"]:
                return name, int(said["epoch"])
        return None

    def without_clock(self) -> list[tuple[str, str]]:
        """Hosts whose dataplane has no clock, and what the leader says of theirs."""
        missing = np.isnan(self.truth.read(time.monotonic_ns()).error_ns)
        names = {host.name for host, none in zip(self.lab.hosts, missing, strict=True) if none}
        if not names:
            return []
        hosts = self.client(until(self.leader, "a leader")[0]).get("/v1/clock")["hosts"]
        return [(one["host"], one["state"]) for one in hosts if one["host"] in names]


class Watch:
    """Looks at all clocks and at the steering in the dataplane again and again, as a context."""

    def __init__(self, running: Running) -> None:
        self.worst_ns, self.unsteered = 0.0, 0
        self._running, self._done = running, threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._done.wait(0.05):
            asked_ns = time.monotonic_ns()
            errors = np.abs(self._running.truth.read(asked_ns).error_ns)
            if time.monotonic_ns() - asked_ns < PROMPT_NS:
                self.worst_ns = max(self.worst_ns, float(np.nan_to_num(errors).max()))
            self.unsteered += not self._running.is_steered()


@pytest.fixture(scope="module")
def running() -> Iterator[Running]:
    name = lab_name("quorum")
    lifecycle.up(LabSpec(name=name, hosts_per_leaf=2, spines=2, seed=5, managers=2, servers=3))
    roce = RoceConfig(dead_after_ms=50.0, hold_down_ms=200.0, hold_down_max_ms=200.0)
    try:
        lab = Lab.open(name)
        with Fleet(lab, ProbeSettings(pairs_per_s=200.0, degree=3), roce=roce) as fleet, Truth(lab) as truth:
            wait_for_lock(fleet, truth)
            made = Running(lab, fleet, truth)
            made.steer(made.client(until(made.leader, "a leader")[0]))
            yield made
    finally:
        lifecycle.down(name)


@contextmanager
def _broken(running: Running, name: str, kind: str) -> Iterator[None]:
    """A manager or server that is killed, or stands still or is cut off until the end."""
    process = running.fleet.process(name)
    if kind == "killed":
        process.kill()
        yield
        until(lambda: running.fleet.process(name) is not process, f"another {name}")
    elif kind == "stopped":
        os.killpg(process.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.killpg(process.pid, signal.SIGCONT)
    else:
        partition.isolate(running.lab.name, name)
        try:
            yield
        finally:
            partition.rejoin(running.lab.name, name)


def test_whoever_fails_somebody_leads_and_nothing_else_is_seen_of_it(running: Running) -> None:
    draw, lab = random.Random(SEED), running.lab
    control = [*running.fleet.managers, *lab.topology.servers]
    with (
        StoredDocuments(lab, running.fleet.bus) as documents,
        Generator([running.flow(RATE_BPS)], lab.popen, lab.run_dir) as generator,
        Watch(running) as watch,
    ):
        generator.start()
        for number in range(FAULTS):
            leader, epoch = until(running.leader, "a leader")
            name = leader if number == 0 else draw.choice(control)
            _fail(running, name, draw.choice(KINDS), epoch, draw)
            _, epoch = until(running.leader, "a leader")
            until(lambda least=epoch: documents.newest_epoch() >= least, "its documents")
            assert documents.went_back() == []
        result = generator.stop()
    (flow,) = result["flows"]
    assert not flow["failed"]
    assert {port["port"] for port in flow["sports"]} == {*running.ways[0][:2]}
    assert watch.unsteered == 0
    assert watch.worst_ns < FAR_NS
    assert running.without_clock() == []


@contextmanager
def _stalling(running: Running, name: str) -> Iterator[None]:
    """A server that stands still most of the time, for less than a second each, as it does while its disk writes."""
    process, done = running.fleet.process(name), threading.Event()

    def stall() -> None:
        while not done.wait(BETWEEN_STALLS_S):
            os.killpg(process.pid, signal.SIGSTOP)
            time.sleep(STALL_S)
            os.killpg(process.pid, signal.SIGCONT)

    thread = threading.Thread(target=stall, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def test_servers_with_slow_disks_cost_nobody_the_lead(running: Running) -> None:
    """One after the other: each has a register of the lease, and one the copies of all else that lead."""
    led, lab = until(running.leader, "a leader"), running.lab
    with (
        Generator([running.flow(RATE_BPS)], lab.popen, lab.run_dir) as generator,
        Watch(running) as watch,
    ):
        generator.start()
        for name in lab.topology.servers:
            with _stalling(running, name):
                _fails_over(running)
                time.sleep(STALLED_S)
                assert running.leader() == led, name
        result = generator.stop()
    assert not result["flows"][0]["failed"]
    assert watch.unsteered == 0
    assert watch.worst_ns < FAR_NS
    assert running.without_clock() == []


def _fail(running: Running, name: str, kind: str, epoch: int, draw: random.Random) -> None:
    """Break one for a while in which a link fails too, and somebody leads."""
    with _broken(running, name, kind):
        time.sleep(draw.uniform(0, STANDS_S / 2))
        _fails_over(running)
        time.sleep(STANDS_S / 2)
        until(lambda: _led_by_another(running, name, epoch), f"a leader while {name} is {kind}")


def _led_by_another(running: Running, broken: str, epoch: int) -> bool:
    """Whether somebody leads: another one, with a later epoch, where a manager is broken that led."""
    led = running.leader()
    return led is not None and (led[0] != broken or broken in running.lab.topology.servers or led[1] > epoch)


def _fails_over(running: Running) -> None:
    """Have the link of the queue pair's path drop everything for a while: the kernel takes the other, whoever leads."""
    link = f"l1-{running.ways[0][2]}"
    before = running.truth.counters(SOURCE)["path_went_down"]
    faults.drop(running.lab.name, link, 1.0)
    try:
        until(lambda: running.truth.counters(SOURCE)["path_went_down"] > before, "the path given up")
    finally:
        faults.heal(running.lab.name, link)
