"""The managers and bus servers, and one agent per host, running in a lab, and started again when they die.

It stands where systemd stands on a real host: the processes know nothing of each other's restarts.
"""

import itertools
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from cwdp.agent.config import DEFAULT_PULSE_INTERVAL_MS, CongestionConfig
from cwdp.errors import LabError
from manager.config import PlannerSettings, ProbeSettings, RoceConfig
from manager.identity.authority import DEFAULT_POD
from tools.lab.fleet.control import MANAGER_NICENESS, Control
from tools.lab.fleet.relay import Relay
from tools.lab.fleet.settings import manager_toml
from tools.lab.lab import Host, Lab

RESTART_AFTER_S = 0.5
POLL_S = 0.1
STOP_WAIT_S = 5.0
STALL_EVERY_S, STALL_S = (20.0, 40.0), 0.5
"""Of agents in a lab with rough clocks."""

LAST_LINES = 6
FLOW_PROGRAM = ["chrt", "--rr", "1", sys.executable, "-P", "-m", "tools.roce.flow_program"]
"""What agents send an audit's flows by: with real-time priority, as the generator has it, so that it is ready in time."""

FLEET = "fleet"
"""The part of the lab that its processes are."""

LAB_PROBES = ProbeSettings(pairs_per_s=500.0)
"""Half the manager's own default: a lab has all of its hosts and switches on the cores of one machine."""

LAB_ROCE = RoceConfig(sample_every=16)
"""Many data packets are stamped: a lab's queue pairs send hundreds a second, not millions."""


class Fleet:
    """The processes of a lab, as a context: started on entry, stopped on exit.

    Args:
        lab: a lab that is up.
        probes: how the fabric is probed, as the `[probes]` of the manager's configuration; `LAB_PROBES` unless given.
        roce: what the dataplanes go by, as the `[roce]` of the manager's configuration.
        pulse_interval_ms: between two pulses over a watched path, as in the agents' configuration.
        planner: what the manager may do by itself, as the `[planner]` of its configuration; nothing unless given.
        congestion: how agents control congestion, as the `[congestion]` of their configuration; None for not at all.
        page: where the manager's page is to be had on this machine, as HOST:PORT; None for nowhere.
        by_pod: whether each pod of the lab is one of the fleet, with managers of its own: the lab's, by turns.
        tcp_ports: ranges of ports whose TCP connections agents look at, as the service `lab`.
        agent_commands: another command in place of `cwdp agent`, by host; for tests that need a broken one.
    """

    def __init__(
        self,
        lab: Lab,
        probes: ProbeSettings | None = None,
        agent_commands: dict[str, list[str]] | None = None,
        roce: RoceConfig = LAB_ROCE,
        pulse_interval_ms: float = DEFAULT_PULSE_INTERVAL_MS,
        *,
        planner: PlannerSettings | None = None,
        congestion: CongestionConfig | None = None,
        page: str | None = None,
        by_pod: bool = False,
        tcp_ports: Sequence[str] = (),
    ) -> None:
        self.lab = lab
        self._by_pod = by_pod
        self._deaths: Counter[str] = Counter()
        self._status: dict[str, int] = {}
        self._control = Control(lab)
        self._probes = probes or LAB_PROBES
        self._roce = roce
        self._pulse_interval_ms = pulse_interval_ms
        self._planner = planner or PlannerSettings(enabled=False)
        self._congestion = congestion
        self._page = page
        self._tcp_ports = tcp_ports
        self._agent_commands = agent_commands or {}
        self._processes: dict[str, subprocess.Popen[Any]] = {}
        self._wanted: set[str] = set()
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._started = ExitStack()
        jobs = [self._keep, *([self._stall] if lab.spec.clocks == "rough" else [])]
        self._jobs = [threading.Thread(target=job, name="fleet", daemon=True) for job in jobs]

    @property
    def restarts(self) -> int:
        """How often processes died and were started again."""
        return self._deaths.total()

    @property
    def socket(self) -> Path:
        """Where the first manager answers."""
        return self.socket_of(self.managers[0])

    @property
    def managers(self) -> list[str]:
        """The managers' names."""
        return self._control.managers

    @property
    def bus(self) -> str:
        """The bus's URLs."""
        return self._control.bus

    def socket_of(self, manager: str) -> Path:
        """Where a manager answers."""
        return self._control.socket(manager)

    def __enter__(self) -> Self:
        self.lab.require_alone(FLEET)
        self._write_credentials()
        self._write_manager_configs()
        for host in self.lab.hosts:
            self._write_agent_config(host)
        with ExitStack() as started:
            started.callback(self._end)
            if self._page:
                started.enter_context(Relay(self._page, self._page_netns))
            for name in (*self._control.names, *(host.name for host in self.lab.hosts)):
                self.start(name)
            for job in self._jobs:
                job.start()
            self._started = started.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._started.close()

    def _end(self) -> None:
        self._stopping.set()
        for job in self._jobs:
            if job.is_alive():
                job.join()
        for process in self._processes.values():
            process.terminate()
        for process in self._processes.values():
            try:
                process.wait(STOP_WAIT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def start(self, name: str) -> None:
        """Start a manager, a bus server or a host's agent."""
        with self._lock:
            self._wanted.add(name)
            self._processes[name] = self._spawn(name)

    def stop(self, name: str) -> None:
        """Stop one, and leave it stopped."""
        with self._lock:
            self._wanted.discard(name)
            process = self._processes[name]
        process.terminate()
        process.wait(STOP_WAIT_S)

    def plan(self, planner: PlannerSettings) -> None:
        """Start the managers anew with other settings of their planner; agents and packets go on meanwhile."""
        for name in self.managers:
            self.stop(name)
        self._planner = planner
        self._write_manager_configs()
        for name in self.managers:
            self.start(name)

    def process(self, name: str) -> "subprocess.Popen[Any]":
        """The process of a manager, a bus server or a host's agent that runs now."""
        with self._lock:
            return self._processes[name]

    def log(self, name: str) -> Path:
        """The log of a manager, a bus server or a host's agent."""
        return self.lab.run_dir / f"{name}.log"

    def check(self) -> None:
        """Complain if something keeps dying.

        Raises:
            LabError: it has been restarted too often.
        """
        if self.restarts <= 3 * (len(self.lab.hosts) + 1):
            return
        raise LabError(
            f"processes of the lab keep dying: {self.deaths()}", f"read the logs: {self.lab.run_dir}/*.log"
        )

    def checked(self, condition: Callable[[], bool]) -> Callable[[], bool]:
        """A condition that raises what `check` does."""

        def holds() -> bool:
            self.check()
            return condition()

        return holds

    def deaths(self) -> str:
        """Which processes died, how, and what they said last; nothing where none did."""
        return ", ".join(map(self._last_words, sorted(self._deaths)))

    def _last_words(self, name: str) -> str:
        said = self.log(name).read_text(errors="replace").strip().splitlines()[-LAST_LINES:]
        how = f"{self._deaths[name]} times, last with status {self._status[name]}"
        return f"{name} {how} ({' / '.join(said) or 'it said nothing'})"

    def _spawn(self, name: str) -> "subprocess.Popen[Any]":
        with self.log(name).open("ab") as log:
            process = self.lab.popen(
                self._control.node(name),
                self._command(name),
                part=FLEET,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        if name in self._control.names:
            _prefer_session(process.pid)
        return process

    def _command(self, name: str) -> list[str]:
        if name in self._control.names:
            return self._control.command(name, self._config(name), self._page)
        agent = self._agent_commands.get(name, [sys.executable, "-m", "cwdp", "agent", "run"])
        return [*agent, "--config", str(self._config(name))]

    def _keep(self) -> None:
        died: dict[str, float] = {}
        while not self._stopping.wait(POLL_S):
            with self._lock:
                dead = [name for name in self._wanted if self._processes[name].poll() is not None]
                for name in dead:
                    since = died.setdefault(name, time.monotonic())
                    if time.monotonic() - since >= RESTART_AFTER_S:
                        self._status[name] = self._processes[name].returncode
                        self._processes[name] = self._spawn(name)
                        self._deaths[name] += 1
                        del died[name]

    def _stall(self) -> None:
        """Stop some host's agent and its helpers for a while, again and again."""
        draw = random.Random(self.lab.spec.seed)
        while not self._stopping.wait(draw.uniform(*STALL_EVERY_S)):
            name = draw.choice(self.lab.hosts).name
            with self._lock, suppress(ProcessLookupError):
                group = self._processes[name].pid
                os.killpg(group, signal.SIGSTOP)
                time.sleep(STALL_S)
                os.killpg(group, signal.SIGCONT)

    def _credential(self, host: str) -> Path:
        return self.lab.run_dir / f"{host}.creds"

    def _config(self, host: str) -> Path:
        return self.lab.run_dir / f"{host}.toml"

    def _write_credentials(self) -> None:
        for host in self.lab.hosts:
            credential = self._control.authority.host_credential(host.name, self._pod_of(host))
            credential.save(self._credential(host.name))

    def _write_manager_configs(self) -> None:
        sections = manager_toml(probes=self._probes, roce=self._roce, planner=self._planner)
        for name, pod in zip(self.managers, itertools.cycle(self._pods)):
            self._config(name).write_text(
                f'name = "{name}"\npod = "{pod}"\nauthority = "{self.lab.run_dir / "authority"}"\n{sections}'
            )

    @property
    def _pods(self) -> list[str]:
        return sorted({self._pod_of(host) for host in self.lab.hosts})

    def _pod_of(self, host: Host) -> str:
        return self.lab.topology.pod_of(host.nics[0].leaf) if self._by_pod else DEFAULT_POD

    @property
    def _page_netns(self) -> str:
        return self.lab.netns(self._control.node(self.managers[0]))

    def _write_agent_config(self, host: Host) -> None:
        nics = ", ".join(f'"{nic.name}"' for nic in host.nics)
        self._config(host.name).write_text(
            f'host = "{host.name}"\n'
            f"nics = [{nics}]\n"
            f'nats = "{self._control.bus}"\n'
            f'credential = "{self._credential(host.name)}"\n'
            f'keys = "{self.lab.run_dir / host.name}.keys"\n'
            f"pulse_interval_ms = {self._pulse_interval_ms}\n"
            f'[test_clock]\nfile = "{host.clock_file}"\n'
            + (
                f"[flows]\nprogram = {json.dumps(FLOW_PROGRAM)}\n"
                if host.name not in self._agent_commands
                else ""
            )
            + (f"[congestion]\nthreshold_us = {self._congestion.threshold_us}\n" if self._congestion else "")
            + (f"[tcp.service.lab]\nports = {json.dumps(list(self._tcp_ports))}\n" if self._tcp_ports else "")
        )


def _prefer_session(pid: int) -> None:
    """Have the niceness count against other sessions, where the kernel shares processors among these (sched(7))."""
    with suppress(OSError):
        Path(f"/proc/{pid}/autogroup").write_text(str(MANAGER_NICENESS))
