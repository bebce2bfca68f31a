"""The manager of the hosts in the virtual machine, outside of it.

Emulated, it would be thirty times as slow and take the processors from the hosts that it is to manage. The machine
reaches it by QEMU's user network, which leads to the loopback interface here, and asks for it by a file in the folder
that both see: while there is a configuration, a manager runs by it; another configuration starts it anew.
"""

import json
import shutil
import socket
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from manager.identity.authority import Authority

NETWORK, GATEWAY = "192.168.99.0/24", "192.168.99.2"
"""The second is the loopback interface outside, as the machine sees it; guest.sh knows them too."""

DEVICE = (
    f"-netdev user,id=outside,net={NETWORK},host={GATEWAY} "
    "-device virtio-net-pci,netdev=outside,mac=52:54:00:63:77:64"
)
"""QEMU's options for the way out."""

CONFIG, PORTS, LOG, AUTHORITY = "manager.toml", "ports.json", "manager.log", "authority"

_STATE = "state"
_POLL_S = 0.1
_STOP_TIMEOUT_S = 10.0


class Outside:
    """Runs the manager that the machine asks for; a context.

    Args:
        folder: that both see.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._running: tuple[str, subprocess.Popen[Any]] | None = None
        self._authority = Authority.new()
        self._ending = threading.Event()
        self._keeper = threading.Thread(target=self._keep, name="outside", daemon=True)
        self._ports = dict(zip(("bus", "http"), _free_ports(2), strict=True))

    def __enter__(self) -> Self:
        (self._folder / PORTS).write_text(json.dumps(self._ports))
        self._authority.save(self._folder / AUTHORITY)
        self._keeper.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ending.set()
        self._keeper.join()
        self._follow(None)

    def _keep(self) -> None:
        while not self._ending.wait(_POLL_S):
            config = None
            with suppress(FileNotFoundError):
                config = (self._folder / CONFIG).read_text()
            self._follow(config)

    def _follow(self, config: str | None) -> None:
        """Have a manager run by this configuration, or none, which then has nothing to remember."""
        if self._running is not None and self._running[0] != config:
            _, process = self._running
            self._running = None
            _stop(process)
            if config is None:
                shutil.rmtree(self._folder / _STATE, ignore_errors=True)
        if self._running is None and config is not None:
            self._running = config, self._start()

    def _start(self) -> "subprocess.Popen[Any]":
        self._authority.save(self._folder / _STATE / AUTHORITY)
        bus, http = (f"127.0.0.1:{self._ports[name]}" for name in ("bus", "http"))
        command = [
            *("setpriv", "--pdeathsig", "TERM"),  # it must not outlive us
            *(sys.executable, "-m", "cwdp", "manager", "run", "--config", str(self._folder / CONFIG)),
            *("--bus-listen", bus, "--listen", http),
            *("--socket", str(self._folder / "manager.sock"), "--state-dir", str(self._folder / _STATE)),
        ]
        with (self._folder / LOG).open("ab") as log:
            return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)


class WayOut:
    """The same as the machine sees it.

    Args:
        folder: that both see.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        ports = json.loads((folder / PORTS).read_text())
        self.bus_url = f"nats://{GATEWAY}:{ports['bus']}"
        self.manager_url = f"http://{GATEWAY}:{ports['http']}"

    @property
    def authority(self) -> Authority:
        """The fleet's, which signs for the machine's hosts."""
        return Authority.load(self._folder / AUTHORITY)

    def ask_for_manager(self, config: str) -> None:
        """Have one run by this configuration (TOML), in place of any that runs."""
        new = self._folder / f"{CONFIG}.new"
        new.write_text(config)
        new.rename(self._folder / CONFIG)

    def dismiss_manager(self) -> None:
        """Have none run any more."""
        (self._folder / CONFIG).unlink(missing_ok=True)

    def manager_log(self) -> str:
        """What all so far have written."""
        log = self._folder / LOG
        return log.read_text() if log.exists() else ""


def _stop(process: "subprocess.Popen[Any]") -> None:
    process.terminate()
    try:
        process.wait(_STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _free_ports(count: int) -> list[int]:
    """TCP ports of the loopback interface that nobody listens on now."""
    probes = [socket.socket() for _ in range(count)]
    for probe in probes:
        probe.bind(("127.0.0.1", 0))
    ports = [int(probe.getsockname()[1]) for probe in probes]
    for probe in probes:
        probe.close()
    return ports
