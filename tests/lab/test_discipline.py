"""The machine's own clock is disciplined while a fleet runs: hosts' local times are free of it, and they tell of it."""

import asyncio
import ctypes
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest
from conftest import lab_name

from cwdp.agent.clock.discipline import _Timex
from cwdp.shared.bus.clocks import Discipline
from cwdp.shared.bus.connection import Bus
from cwdp.shared.bus.messages import Report
from cwdp.shared.bus.sealing import LeaderSeal
from cwdp.shared.bus.subjects import up
from manager.identity.authority import DEFAULT_POD, Authority
from tools.lab import Lab, LabSpec, lifecycle
from tools.lab.fleet.control import BUS_PORT
from tools.lab.fleet.processes import Fleet
from tools.lab.fleet.session import SETTLE_S, sample, wait_for_lock
from tools.lab.network import netns
from tools.lab.truth.clocks import Truth

pytestmark = [pytest.mark.lab, pytest.mark.timeout(180)]

ADJ_FREQUENCY = 0x0002
PPM = 65_536
CHANGES_PPM = (500, -500, 20, -0.5, 500, 100, -300, 1)
HELD_S, LISTEN_S = 1.25, 5.0
ROUNDS = 3
"""Their median counts: in one of many the machine stops an agent between a change and its discovery."""

MOST = 95
"""Percent; from a change until it is found, up to 30 ms of each 1,250 ms, stamps are wrong."""

MANY_TIMES, FAR_NS = 3.0, 3_000.0
"""What a busy machine may add, 606 ns once; what the discipline itself leads to in a second is a hundred times as much and more."""


def adjtimex(frequency: int | None = None) -> int:
    """Set the frequency of the machine's clock, if one is given; returns that which it has, in 2^-16 ppm."""
    timex = _Timex()
    if frequency is not None:
        timex.modes, timex.freq = ADJ_FREQUENCY, frequency
    if ctypes.CDLL(None, use_errno=True).adjtimex(ctypes.byref(timex)) < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return int(timex.freq)


@contextmanager
def disciplined() -> Iterator[None]:
    """The machine's clock is given one frequency after another; at the end it has the one that it had."""
    found, stop = adjtimex(), threading.Event()

    def work() -> None:
        for by_ppm in CHANGES_PPM:
            adjtimex(round(by_ppm * PPM))
            if stop.wait(HELD_S):
                return

    worker = threading.Thread(target=work)
    try:
        worker.start()
        yield
    finally:
        stop.set()
        worker.join()
        adjtimex(found)


@pytest.fixture
def permitted() -> None:
    """The clock's frequency may be set; here to what it is."""
    try:
        adjtimex(adjtimex())
    except OSError as error:
        pytest.skip(f"the clock may not be adjusted: {error.strerror}")


@pytest.fixture
def lab() -> Iterator[Lab]:
    name = lab_name("disc")
    lifecycle.up(LabSpec(name=name, hosts_per_leaf=2, spines=2, seed=4, clocks="steady"))
    try:
        yield Lab.open(name)
    finally:
        lifecycle.down(name)


def told(lab: Lab) -> dict[str, Discipline]:
    """What each host reports of its clock's discipline."""
    found: dict[str, Discipline] = {}

    def hear(report: Report) -> None:
        if report.discipline is not None:
            found[report.host] = report.discipline

    async def listen() -> None:
        authority = Authority.load(lab.run_dir / "authority")
        bus = Bus(
            f"nats://{lab.mgmt_address}:{BUS_PORT}",
            authority.manager_credential("test"),
            LeaderSeal(authority.control_key),
            pod=DEFAULT_POD,
            name="test",
        )
        for host in lab.hosts:
            bus.subscribe(up(DEFAULT_POD, host.name, "report"), Report, hear)
        bus.start()
        await asyncio.sleep(LISTEN_S)
        await bus.close()

    def run() -> None:
        netns.enter_for_good(lab.mgmt_netns)
        asyncio.run(listen())

    netns.in_thread(run)
    assert set(found) == {host.name for host in lab.hosts}
    return found


@pytest.mark.usefixtures("permitted")
def test_what_is_done_to_the_machines_clock_does_not_reach_the_timeline(lab: Lab) -> None:
    with Fleet(lab) as fleet, Truth(lab) as truth:
        wait_for_lock(fleet, truth)
        time.sleep(SETTLE_S)
        calm_ns, _ = sample(truth, 5.0, fleet)
        before = told(lab)
        rounds = []
        for _ in range(ROUNDS):
            with disciplined():
                rounds.append(sample(truth, HELD_S * len(CHANGES_PPM), fleet))
        after = told(lab)
    for host, discipline in after.items():
        assert discipline.source == "adjtimex"
        assert discipline.changes >= before[host].changes + len(CHANGES_PPM) - 1
        assert discipline.changed_s_ago is not None
    claimed = [~np.isnan(bound_ns) for _, bound_ns in rounds]
    assert np.mean(np.concatenate(claimed)) > 0.8
    usual_ns = np.nanpercentile(np.abs(calm_ns), MOST)
    most_ns = np.median([np.nanpercentile(np.abs(error_ns), MOST) for error_ns, _ in rounds])
    assert most_ns < max(MANY_TIMES * usual_ns, FAR_NS)
    held = [
        np.mean(np.abs(error_ns[some]) <= bound_ns[some])
        for some, (error_ns, bound_ns) in zip(claimed, rounds, strict=True)
    ]
    assert np.median(held) > 0.97
