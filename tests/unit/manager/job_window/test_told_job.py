"""A job of which no burst is seen, only what its ranks tell, over time."""

import asyncio
import time

import numpy as np
from fakes import showing

from cwdp.shared.bus.messages import Nic
from cwdp.shared.bus.records import shown_address
from manager.clock.timeline import Identity
from manager.config import ProbeSettings
from manager.job_window import answers
from manager.job_window.gathered import gather
from manager.jobs.flows import nic_name
from manager.jobs.names import named
from manager.jobs.steps import finish
from manager.state import FleetState
from tests.unit.manager.collectives.ring_calls import HOSTS, JOB, NICS, NOW, S, iterations
from tools.sim.fleet.speaking import hello_of


def test_its_throughput_and_iterations_are_shown() -> None:
    state = FleetState(Identity(timeline="t", starts=1), ProbeSettings(), continued=False)
    now_s = time.monotonic()
    for host in HOSTS:
        nics = [
            Nic(
                ifname=nic_name(nic)[1],
                mac="02:00:00:00:00:01",
                ipv4=shown_address(packed),
                ipv6=None,
                carrier=True,
                mode="native",
            )
            for packed, nic in NICS.items()
            if nic_name(nic)[0] == host
        ]
        state.hear_hello(hello_of(host, nics, desired_version=0), now_s)
    state.traffic.hear_clock(showing(NOW), now_s)
    for report in iterations():
        state.hear_collectives(report, now_s)
    infer = state.jobs.due(now_s)
    assert infer is not None
    state.jobs.take(finish(infer))
    job = named(state.jobs.jobs)[JOB]
    window = asyncio.run(gather(state, JOB, job, NOW - 10 * S, NOW))
    shown = answers.series(window, 1_000.0)
    assert np.nanmax([0.0 if each is None else each for each in shown["bps"]]) > 0
    assert len(shown["iterations"]["start_s"]) > 15
    assert len(answers.trace(window)["queue_pairs"]) == len(HOSTS)
