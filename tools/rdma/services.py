"""A manager, and an agent for each Soft-RoCE host, in the virtual machine.

All run in the first network namespace, where the NICs are, as forks of the process that asks for them: emulated, Python
takes a minute to start. For the same reason they go at a fraction of the pace that they have on real hosts: an agent
whose machine is thirty times as slow would do nothing but wake up.
"""

import asyncio
import logging
import multiprocessing
import os
import secrets
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from cwdp.agent import service as agent
from cwdp.agent.config import AgentConfig, InterfaceConfig, TestClockConfig
from cwdp.cli.client import ManagerClient
from cwdp.errors import LabError, ManagerError
from manager import nats_server
from manager import service as manager
from manager.config import ManagerConfig, PlannerSettings, ProbeSettings, RoceConfig, host_port
from tools.rdma.fabric import RdmaHost

PULSE_INTERVAL_MS = 100.0
ROCE = RoceConfig(dead_after_ms=1_000.0, hold_down_ms=2_000.0)
PROBES = ProbeSettings(pairs_per_s=10.0)
AGENT_PACE = {
    "SEND_INTERVAL_S": 0.5,
    "DECISIONS_INTERVAL_S": 0.25,
    "LEND_INTERVAL_S": 60.0,
    "FIT_INTERVAL_S": 0.5,
    "ENSURE_INTERVAL_S": 5.0,
}
"""The intervals of the agents' loops, by their names in `cwdp.agent.service`."""

_BUS = "127.0.0.1:4222"
_START_TIMEOUT_S = 90.0
_STOP_TIMEOUT_S = 10.0
_POLL_S = 0.5
_LOG_CHARACTERS = 4_000
_MANAGER = "manager"

_fork = multiprocessing.get_context("fork")


class Services:
    """Those that run. Made by `stopped`."""

    def __init__(
        self, hosts: Iterable[RdmaHost], folder: Path, ud_clocks: Sequence[TestClockConfig] | None
    ) -> None:
        self._folder = folder
        self._client = ManagerClient(f"unix://{folder}/manager.sock")
        keys = folder / "keys.toml"
        keys.touch(mode=0o600)
        keys.write_text(f'send = 1\n[[key]]\nid = 1\nsecret = "{secrets.token_hex(16)}"\n')
        self._agents = [
            AgentConfig(
                nics=[host.ifname],
                nats=f"nats://{_BUS}",
                host=host.name,
                keys=str(keys),
                pulse_interval_ms=PULSE_INTERVAL_MS,
                interface={} if ud_clocks is None else {host.ifname: InterfaceConfig(transport="ud")},
                test_clock=None if ud_clocks is None else ud_clocks[number],
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
            self._start(config.host, partial(_run_agent, config))

    def plan(self, *, enabled: bool) -> None:
        """Start the manager anew, its planner at work or not; agents and packets go on meanwhile.

        Raises:
            LabError: it does not come up.
        """
        self._stop(_MANAGER)
        config = ManagerConfig(
            bus_listen=_BUS,
            state_dir=str(self._folder),
            socket=str(self._folder / "manager.sock"),
            probes=PROBES,
            roce=ROCE,
            planner=PlannerSettings(enabled=enabled),
        )
        self._start(_MANAGER, partial(_run_manager, config))
        deadline = time.monotonic() + _START_TIMEOUT_S
        while not self._answers():
            if time.monotonic() > deadline:
                raise LabError("the manager does not come up", self.logs()[_MANAGER][-_LOG_CHARACTERS:])
            time.sleep(_POLL_S)

    def stop(self) -> None:
        """Stop all."""
        for process in self._processes.values():
            process.terminate()
        for name in list(self._processes):
            self._stop(name)

    def ask(self, path: str, **query: str | int) -> Any:
        """What the manager answers.

        Raises:
            ManagerError: it does not answer, or refused.
        """
        return self._client.get(path, query)

    def logs(self) -> dict[str, str]:
        """The last of what each has written."""
        return {log.stem: log.read_text()[-_LOG_CHARACTERS:] for log in sorted(self._folder.glob("*.log"))}

    def _answers(self) -> bool:
        """Whether the manager answers and its bus is there."""
        try:
            self.ask("/v1/manager")
            socket.create_connection(host_port(_BUS, "the bus")).close()
        except (ManagerError, OSError):
            return False
        return True

    def _start(self, name: str, serve: Callable[[], None]) -> None:
        process = _fork.Process(target=_run, args=(self._folder / f"{name}.log", serve), name=name)
        process.start()
        self._processes[name] = process

    def _stop(self, name: str) -> None:
        process = self._processes.pop(name, None)
        if process is None:
            return
        process.terminate()
        process.join(_STOP_TIMEOUT_S)
        if process.is_alive():
            process.kill()
            process.join()


@contextmanager
def stopped(
    hosts: Iterable[RdmaHost], folder: Path, ud_clocks: Sequence[TestClockConfig] | None = None
) -> Iterator[Services]:
    """Give services that are to be started, their files in a folder; stopped at the end.

    With `ud_clocks` the hosts have these, and probe by UD queue pairs.
    """
    services = Services(hosts, folder, ud_clocks)
    try:
        yield services
    finally:
        services.stop()


def _run_agent(config: AgentConfig) -> None:
    for name, interval_s in AGENT_PACE.items():
        setattr(agent, name, interval_s)
    agent.run(config)


def _run_manager(config: ManagerConfig) -> None:
    nats_server.START_TIMEOUT_S = _START_TIMEOUT_S
    asyncio.run(manager.serve(config))


def _run(log: Path, serve: Callable[[], None]) -> None:
    """In the fork: serve, with all output in a file."""
    with log.open("ab", buffering=0) as out:
        os.dup2(out.fileno(), 1)
        os.dup2(out.fileno(), 2)
    logging.basicConfig(level=logging.INFO)
    serve()
