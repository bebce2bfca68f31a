"""Where a soak plays: a lab with its fleet, and who leads it."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from cwdp.cli.client import ManagerClient
from cwdp.errors import LabError, ManagerError
from tools.lab import Lab
from tools.lab.fleet.processes import Fleet
from tools.waiting import wait_for

LED_S = 30.0
TRIES, AGAIN_S = 8, 2.0


@dataclass
class Stage:
    """The lab, the fleet, when it all began, and the end of it.

    Attributes:
        start_s, start_unix_s: of the soak, CLOCK_MONOTONIC and since 1970.
        stop: set once nothing more is to be done.
        joined: hosts that have joined by an invitation, so that there is a key to revoke.
    """

    lab: Lab
    fleet: Fleet
    start_s: float = field(default_factory=time.monotonic)
    start_unix_s: float = field(default_factory=time.time)
    stop: threading.Event = field(default_factory=threading.Event)
    joined: set[str] = field(default_factory=set)

    def begin(self) -> None:
        """Count from now on."""
        self.start_s, self.start_unix_s = time.monotonic(), time.time()

    @property
    def now_s(self) -> float:
        """Since the start."""
        return time.monotonic() - self.start_s

    def client(self, manager: str) -> ManagerClient:
        """A manager's API."""
        return ManagerClient(f"unix://{self.fleet.socket_of(manager)}")

    def leading(self) -> str | None:
        """The manager that says that it leads; None where none does that answers."""
        for name in self.fleet.managers:
            try:
                if self.client(name).get("/v1/manager")["leads"]:
                    return name
            except ManagerError:
                continue
        return None

    def leader(self) -> ManagerClient:
        """The API of the manager that leads, waited for.

        Raises:
            LabError: there is none for long.
        """
        name = wait_for(self.leading, LED_S, poll_s=0.2)
        if name is None:
            raise LabError(f"no manager has led for {LED_S:.0f} s", f"The logs: {self.lab.run_dir}/m*.log")
        return self.client(name)

    def change(self, ask: Callable[[ManagerClient], dict[str, Any]]) -> dict[str, Any]:
        """Have whoever leads change something; again, where another one leads by then, or it cannot be kept yet.

        Raises:
            ManagerError: it was refused each time.
            LabError: nobody leads.
        """
        for _ in range(TRIES - 1):
            try:
                return ask(self.leader())
            except ManagerError:
                self.stop.wait(AGAIN_S)
        return ask(self.leader())
