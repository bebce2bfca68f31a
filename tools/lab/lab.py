"""The handle on a lab that is up, for experiments, agents' launchers and tests."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from ipaddress import IPv4Address
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cwdp.errors import LabError
from cwdp.shared import testclock
from cwdp.shared.testclock import TestClock
from tools.lab import clocks, process, processor, state
from tools.lab.state import LabState
from tools.lab.topology import MGMT, MGMT_ADDRESS, LabSpec, Nic, Topology

if TYPE_CHECKING:
    import subprocess


@dataclass(frozen=True)
class Host:
    """A host of the lab; its clock lies in `clock_file`."""

    name: str
    netns: str
    nics: tuple[Nic, ...]
    mgmt_address: IPv4Address
    clock_file: Path

    @cached_property
    def clock(self) -> TestClock:
        """The truth of its clock."""
        return testclock.load(self.clock_file)


class Lab:
    """A lab that is up. Made by `Lab.open`."""

    mgmt_address = MGMT_ADDRESS

    def __init__(self, known: LabState) -> None:
        self.spec: LabSpec = known.spec
        self.name = known.spec.name
        self.topology = Topology(known.spec)
        self.mgmt_netns = self.topology.netns(MGMT)
        self.hosts = tuple(self._host(name) for name in self.topology.hosts)

    @classmethod
    def open(cls, name: str) -> "Lab":
        """Return the lab `name`; raise `LabError` if it is not up."""
        return cls(state.require(name))

    @property
    def run_dir(self) -> Path:
        """The directory for files of what runs in the lab; `down` removes it."""
        return state.run_dir(self.name)

    def host(self, name: str) -> Host:
        """Return one host by name; raise `LabError` with names that are near."""
        self.topology.require_node(name)
        return next(host for host in self.hosts if host.name == name)

    def netns(self, node: str) -> str:
        """Return the namespace of a node; raise `LabError` with names that are near."""
        return self.topology.netns(self.topology.require_node(node))

    def popen(
        self, node: str, argv: Sequence[str], *, part: str = "", **options: Any
    ) -> "subprocess.Popen[Any]":
        """Start a process in a node's network namespace, a host's in its share of the processors; `down` stops it if it still runs.

        `part` is what it is of, if anything (`tools.lab.parts`). `options` are those of `subprocess.Popen`; the process
        leads a session of its own.
        """
        with state.locked(self.name), process.undisturbed():
            known = state.require(self.name)
            if node in self.topology.hosts:
                own = partial(processor.show_own, self.name, node)
                started = process.start(self.netns(node), argv, own, **options)
                processor.join(self.name, node, started.pid)
            else:
                started = process.start(self.netns(node), argv, **options)
            known.processes = [other for other in known.processes if process.is_alive(other)]
            known.processes.append(process.record(node, started.pid, argv, part))
            state.save(known)
        return started

    def require_alone(self, part: str) -> None:
        """Go on only where no process of a part lives, but for the one that asks.

        Raises:
            LabError: one does.
        """
        known = state.require(self.name)
        keepers = [known.parts[part].keeper] if part in known.parts else []
        mine = [*keepers, *(other for other in known.processes if other.part == part)]
        if any(process.is_alive(other) and other.pid != os.getpid() for other in mine):
            raise LabError(
                f"{part} is up already in the lab {self.name!r}",
                f"`cwdp lab status --name {self.name}` shows what stands there.",
            )

    def _host(self, name: str) -> Host:
        nics, address = tuple(self.topology.nics[name]), self.topology.mgmt_address(name)
        return Host(name, self.topology.netns(name), nics, address, clocks.file(self.run_dir, name))
