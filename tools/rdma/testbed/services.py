"""An agent for each Soft-RoCE host in the virtual machine, and their manager outside of it.

The agents run in the first network namespace, where the NICs are, as forks of the process that asks for them: emulated,
Python takes a minute to start. For the same reason they go at a fraction of the pace that they have on real hosts: an
agent whose machine is thirty times as slow would do nothing but wake up.
"""

import logging
import multiprocessing
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from cwdp.agent import service as agent
from cwdp.agent.collectives.keeper import NcclConfig
from cwdp.agent.config import AgentConfig, InterfaceConfig, TestClockConfig
from cwdp.cli.client import ManagerClient
from cwdp.errors import LabError, ManagerError
from cwdp.shared.testclock import TestClock
from manager.config import PlannerSettings, ProbeSettings, RoceConfig
from tools.lab.fleet.settings import manager_toml
from tools.rdma.outside import WayOut
from tools.rdma.testbed.fabric import RdmaHost
from tools.rdma.testbed.rings import nccl_socket
from tools.waiting import wait_for

PULSE_INTERVAL_MS = 400.0
ROCE = RoceConfig(dead_after_ms=3_000.0, hold_down_ms=5_000.0)
PROBES = ProbeSettings(pairs_per_s=10.0)
AGENT_PACE = {
    "SEND_INTERVAL_S": 1.0,
    "DECISIONS_INTERVAL_S": 1.0,
    "FITS_S": 0.0,
    "ENSURE_INTERVAL_S": 5.0,
}
"""The intervals of the agents' loops, by their names in `cwdp.agent.service`; a manager takes older fits for stale."""

_START_TIMEOUT_S, _FOUND_TIMEOUT_S = 30.0, 90.0
_STOP_TIMEOUT_S = 10.0
_POLL_S = 0.5
_LOG_CHARACTERS = 4_000

_fork = multiprocessing.get_context("fork")


class Services:
    """Those that run. Made by `stopped`."""

    def __init__(
        self,
        hosts: Iterable[RdmaHost],
        folder: Path,
        way_out: WayOut,
        ud_clocks: Sequence[TestClock] | None,
        *,
        has_plugin: bool,
    ) -> None:
        self._folder = folder
        self._way_out = way_out
        self._client = ManagerClient(way_out.manager_url)
        self._authority = way_out.authority
        self._agents = [
            AgentConfig(
                nics=[host.ifname],
                nats=way_out.bus_url,
                host=host.name,
                credential=str(folder / f"{host.name}.creds"),
                keys=str(folder / f"{host.name}.keys"),
                pulse_interval_ms=PULSE_INTERVAL_MS,
                interface={} if ud_clocks is None else {host.ifname: InterfaceConfig(transport="ud")},
                test_clock=None
                if ud_clocks is None
                else _in_file(ud_clocks[number], folder / f"{host.name}.npz"),
                nccl=NcclConfig(socket=str(nccl_socket(folder, host.name))) if has_plugin else None,
            )
            for number, host in enumerate(hosts)
        ]
        self._processes: dict[str, Any] = {}

    def start(self) -> None:
        """Start all, the agents when the manager answers; its planner does nothing yet.

        Raises:
            LabError: the manager does not come up.
        """
        self.plan(enabled=False)
        for config in self._agents:
            self._authority.host_credential(config.host).save(Path(config.credential))
            self._start(config.host, partial(_run_agent, config))

    def plan(self, *, enabled: bool) -> None:
        """Start the manager anew, its planner at work or not; agents and packets go on meanwhile.

        Raises:
            LabError: it does not come up, or not all agents find it.
        """
        self._way_out.ask_for_manager(
            manager_toml(probes=PROBES, roce=ROCE, planner=PlannerSettings(enabled=enabled))
        )
        if not wait_for(lambda: self._plans(enabled=enabled), _START_TIMEOUT_S, poll_s=_POLL_S):
            raise LabError("the manager does not come up", self._way_out.manager_log()[-_LOG_CHARACTERS:])
        if not wait_for(self._all_are_up, _FOUND_TIMEOUT_S, poll_s=_POLL_S):
            raise LabError("not all agents find the manager", self._way_out.manager_log()[-_LOG_CHARACTERS:])

    def stop(self) -> None:
        """Stop all."""
        for process in self._processes.values():
            process.terminate()
        for process in self._processes.values():
            process.join(_STOP_TIMEOUT_S)
            if process.is_alive():
                process.kill()
                process.join()
        self._processes.clear()
        self._way_out.dismiss_manager()

    def ask(self, path: str, **query: str | int) -> Any:
        """What the manager answers.

        Raises:
            ManagerError: it does not answer, or refused.
        """
        return self._client.get(path, query)

    def logs(self) -> dict[str, str]:
        """The last of what each has written."""
        written = {log.stem: log.read_text() for log in sorted(self._folder.glob("*.log"))}
        written["manager"] = self._way_out.manager_log()
        return {name: text[-_LOG_CHARACTERS:] for name, text in written.items()}

    def _plans(self, *, enabled: bool) -> bool:
        """Whether the manager leads, and its planner is at work or not."""
        try:
            answer = self.ask("/v1/manager")
        except ManagerError:
            return False
        return bool(answer["leads"]) and answer["planner"]["enabled"] is enabled

    def _all_are_up(self) -> bool:
        """Whether the manager hears all agents that were started."""
        try:
            heard = self.ask("/v1/manager")["hosts_up"]
        except ManagerError:
            return False
        return int(heard) >= len(self._processes)

    def _start(self, name: str, serve: Callable[[], None]) -> None:
        process = _fork.Process(target=_run, args=(self._folder / f"{name}.log", serve), name=name)
        process.start()
        self._processes[name] = process


@contextmanager
def stopped(
    hosts: Iterable[RdmaHost],
    folder: Path,
    way_out: WayOut,
    ud_clocks: Sequence[TestClock] | None = None,
    *,
    has_plugin: bool = False,
) -> Iterator[Services]:
    """Give services that are to be started, their files in a folder; stopped at the end.

    With `ud_clocks` the hosts have these, and probe by UD queue pairs. With `has_plugin` the agents read the rings of
    programs that have loaded the plug-in for NCCL.
    """
    services = Services(hosts, folder, way_out, ud_clocks, has_plugin=has_plugin)
    try:
        yield services
    finally:
        services.stop()


def _in_file(clock: TestClock, path: Path) -> TestClockConfig:
    clock.save(path)
    return TestClockConfig(str(path))


def _run_agent(config: AgentConfig) -> None:
    for name, value in AGENT_PACE.items():
        setattr(agent, name, value)
    agent.run(config)


def _run(log: Path, serve: Callable[[], None]) -> None:
    """In the fork: serve, with all output in a file."""
    with log.open("ab", buffering=0) as out:
        os.dup2(out.fileno(), 1)
        os.dup2(out.fileno(), 2)
    logging.basicConfig(level=logging.INFO)
    serve()
