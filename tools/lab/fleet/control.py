"""Where the managers and bus servers of a lab's fleet run, and by which commands."""

import sys
from pathlib import Path

from manager.bus.server_config import Cluster, write_config
from manager.identity.authority import Authority
from tools.lab.lab import Lab
from tools.lab.topology import MGMT

BUS_PORT, ROUTE_PORT = 4222, 6222
MANAGER = "manager"
"""The one manager of a lab that has one only, with a bus server of its own."""

MANAGER_NICENESS = -15
"""Elsewhere it has a machine of its own; here it shares the processors with all hosts, switches and their traffic."""


class Control:
    """The managers and bus servers of a lab.

    Attributes:
        managers, servers: the names of their processes; of their nodes too, where they have any of their own.
        bus: where agents and managers reach the bus.
        authority: who signs for all of them.
    """

    def __init__(self, lab: Lab) -> None:
        self._lab, self._topology = lab, lab.topology
        self.servers = self._topology.servers
        self.managers = self._topology.managers or [MANAGER]
        self.authority = Authority.load_or_new(lab.run_dir / "authority")
        addresses = [self._topology.mgmt_address(name) for name in self.servers] or [lab.mgmt_address]
        self.bus = ",".join(f"nats://{address}:{BUS_PORT}" for address in addresses)

    @property
    def names(self) -> list[str]:
        """Of all, in the order of their start."""
        return [*self.servers, *self.managers]

    def node(self, name: str) -> str:
        """Where a process runs: of a manager or server of its own, there; of a host's agent, on that host."""
        return MGMT if name == MANAGER else name

    def socket(self, manager: str) -> Path:
        """Where a manager answers."""
        return self._lab.run_dir / f"{manager}.sock"

    def command(self, name: str, config: Path, page: str | None) -> list[str]:
        """What a manager or a bus server is run by.

        Args:
            name: which.
            config: of a manager.
            page: where a manager serves its page, as HOST:PORT; None for nowhere.
        """
        nice = ["nice", "-n", str(MANAGER_NICENESS)]
        if name in self.servers:
            return [*nice, "nats-server", "-c", str(self._server_config(name))]
        bus = (
            ["--nats", self.bus] if self.servers else ["--bus-listen", f"{self._lab.mgmt_address}:{BUS_PORT}"]
        )
        own = ["--socket", str(self.socket(name)), "--state-dir", str(self._lab.run_dir / name)]
        run = [sys.executable, "-m", "cwdp", "manager", "run", "--config", str(config)]
        return [*nice, *run, *own, *bus, "--page", page or ""]

    def _server_config(self, name: str) -> Path:
        routes = {each: f"{self._topology.mgmt_address(each)}:{ROUTE_PORT}" for each in self.servers}
        place = Cluster(name, routes[name], list(routes.values())) if len(routes) > 1 else None
        listen = f"{self._topology.mgmt_address(name)}:{BUS_PORT}"
        return write_config(listen, self._lab.run_dir / name, self.authority, place)
