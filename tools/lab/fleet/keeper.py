"""`python -m tools.lab.fleet.keeper`: keeps the fleet that stands in a lab; `cwdp lab fleet up` starts it."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import click

from cwdp.cli.client import ManagerClient
from cwdp.errors import LabError, ManagerError
from manager.config import PlannerSettings, ProbeSettings, RoceConfig
from tools.lab import parts
from tools.lab.fleet.processes import FLEET, LAB_ROCE, Fleet
from tools.lab.fleet.session import wait_for_lock
from tools.lab.lab import Lab
from tools.lab.truth.clocks import Truth
from tools.waiting import wait_for

PROBES = ProbeSettings(pairs_per_s=100.0, degree=4)
PULSE_INTERVAL_MS = 20.0
ROCE = RoceConfig(dead_after_ms=100.0, sample_every=LAB_ROCE.sample_every)
"""Rarer than usual, as a fleet that stands shares a small machine with all its hosts, switches and their traffic."""

ANSWER_TIMEOUT_S = 30.0


@click.command()
@click.option("--name", required=True)
@click.option("--planner/--no-planner", default=True)
@click.option("--page", metavar="HOST:PORT")
def main(name: str, planner: bool, page: str | None) -> None:
    """Keep a fleet up in a lab."""
    told = f"a manager and an agent a host, planner {'on' if planner else 'off'}"
    told += f", page http://{page}/" if page else ""
    parts.keep(name, FLEET, told, partial(_fleet, planner=planner, page=page))


@contextmanager
def _fleet(lab: Lab, *, planner: bool, page: str | None) -> Iterator[dict[str, Any]]:
    settings = PlannerSettings(enabled=planner)
    with Fleet(
        lab, PROBES, roce=ROCE, pulse_interval_ms=PULSE_INTERVAL_MS, planner=settings, page=page
    ) as fleet:
        started = time.monotonic()
        with Truth(lab) as truth:
            wait_for_lock(fleet, truth)
        _wait_for_hosts(fleet)
        yield {"socket": str(fleet.socket), "after_s": time.monotonic() - started}


def _wait_for_hosts(fleet: Fleet) -> None:
    """Until the manager tells that all hosts are up.

    Raises:
        LabError: it did not in time.
    """
    client = ManagerClient(f"unix://{fleet.socket}")

    def all_up() -> bool:
        try:
            return int(client.get("/v1/manager")["hosts_up"]) == len(fleet.lab.hosts)
        except ManagerError:
            return False

    if not wait_for(fleet.checked(all_up), ANSWER_TIMEOUT_S):
        raise LabError(
            f"the manager did not know all hosts in {ANSWER_TIMEOUT_S:.0f} s",
            f"read the logs: {fleet.lab.run_dir}/*.log",
        )


if __name__ == "__main__":
    main()
