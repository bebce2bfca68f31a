"""A fleet in a lab, with its clocks in agreement, as experiments want it."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from cwdp.agent.config import DEFAULT_PULSE_INTERVAL_MS
from cwdp.cli.client import ManagerClient
from cwdp.cli.output import progress
from cwdp.errors import LabError, ManagerError
from manager.config import PlannerSettings, ProbeSettings, RoceConfig
from tools.lab import Lab
from tools.lab.fleet.processes import Fleet
from tools.lab.fleet.session import wait_for_lock
from tools.lab.truth.clocks import Truth

PROBES = ProbeSettings(pairs_per_s=100.0, degree=4)
"""Few, as a lab has all hosts, switches and their traffic on the processors of one machine."""

STEADY_S = 3.0
DISCOVERY_TIMEOUT_S = 45.0


@dataclass(frozen=True)
class PulseSettings:
    """How often watched paths are asked whether they are alive, and when they are given up."""

    interval_ms: float
    dead_after_ms: float


USUAL_PULSES = PulseSettings(DEFAULT_PULSE_INTERVAL_MS, RoceConfig().dead_after_ms)
RARE_PULSES = PulseSettings(100.0, 500.0)
"""For links a thousand times slower than those that cwdp is for: the usual ones would fill a tenth of them."""


@contextmanager
def running_fleet(
    lab: Lab,
    *,
    planner: bool,
    pulses: PulseSettings = USUAL_PULSES,
    hold_down_max_ms: float | None = None,
    tcp_ports: Sequence[str] = (),
) -> Iterator[Fleet]:
    """A fleet whose clocks agree.

    Args:
        lab: a lab that is up.
        planner: let the manager place queue pairs and TCP connections.
        pulses: how paths are watched.
        hold_down_max_ms: the longest that a path which relapses is left alone.
        tcp_ports: ranges of ports whose TCP connections are looked at.
    """
    roce = RoceConfig(
        dead_after_ms=pulses.dead_after_ms,
        hold_down_max_ms=hold_down_max_ms or RoceConfig().hold_down_max_ms,
        sample_every=16,
    )
    settings = PlannerSettings(enabled=planner)
    with (
        Fleet(
            lab,
            PROBES,
            roce=roce,
            pulse_interval_ms=pulses.interval_ms,
            planner=settings,
            tcp_ports=tcp_ports,
        ) as fleet,
        Truth(lab) as truth,
    ):
        start = wait_for_lock(fleet, truth)
        state = "on" if planner else "off"
        progress(f"the fleet is up, its planner {state}; clocks agreed after {start.locked_s:.1f} s")
        if planner:
            wait_for_paths(fleet)
        yield fleet
        if fleet.restarts:
            progress(f"processes died and were started again: {fleet.deaths()}")


def wait_for_paths(fleet: Fleet) -> None:
    """Let the manager find the fabric's paths, until it has found no more for STEADY_S.

    Raises:
        LabError: that took too long.
    """
    client = ManagerClient(f"unix://{fleet.socket}")
    started = steady_since = time.monotonic()
    known = 0
    while time.monotonic() - steady_since < STEADY_S or not known:
        if time.monotonic() - started > DISCOVERY_TIMEOUT_S:
            raise LabError(
                f"paths were still being found after {DISCOVERY_TIMEOUT_S:.0f} s",
                f"is the machine too busy? The logs: {fleet.lab.run_dir}/*.log",
            )
        time.sleep(0.25)
        found = _path_count(client)
        if found != known:
            known, steady_since = found, time.monotonic()
    progress(f"{known} paths found in {steady_since - started:.1f} s")


def _path_count(client: ManagerClient) -> int:
    """How many paths the manager knows; none while it starts."""
    try:
        return int(client.get("/v1/fabric")["path_count"])
    except ManagerError:
        return 0
