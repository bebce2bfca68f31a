"""The generator's process on one host: its plan, what it is told, and what it says."""

import json
import os
import subprocess
import tempfile
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from cwdp.errors import LabError

PROGRAM = Path(__file__).parents[2] / "build/roce/cwdp-roce"

_STOP_WAIT_S = 5.0

Spawn = Callable[..., "subprocess.Popen[Any]"]
"""`spawn(host, argv, **options of Popen)` starts a process on a host, as `Lab.popen` does."""


class HostProcess:
    """A process that has read its plan; its messages are collected by a thread of its own.

    Args:
        host: where it runs.
        lines: of its plan.
        spawn: starts it there.
        run_dir: for the plan and what it writes to standard error.
        changed: notified of every message; the processes of a run share it.

    Raises:
        LabError: the program is not built.
    """

    def __init__(
        self, host: str, lines: Sequence[str], spawn: Spawn, run_dir: Path, changed: threading.Condition
    ) -> None:
        if not PROGRAM.exists():
            raise LabError(f"{PROGRAM.name} is not built", "Run `make setup`.")
        self.host = host
        self.snapshots: list[dict[str, Any]] = []
        self.iterations: list[dict[str, Any]] = []
        self.ended = False
        self._messages: dict[str, dict[str, Any]] = {}
        self._changed = changed
        descriptor, name = tempfile.mkstemp(prefix=f"roce-{host}-", suffix=".plan", dir=run_dir)
        self._plan = Path(name)
        self._log = self._plan.with_suffix(".log")
        with os.fdopen(descriptor, "w") as plan, self._log.open("wb") as log:
            plan.writelines(lines)
            plan.flush()
            self._process = spawn(
                host,
                [str(PROGRAM), name],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
            )
        self._reader = threading.Thread(target=self._read, name=f"roce-{host}", daemon=True)
        self._reader.start()

    def tell(self, command: str) -> None:
        """Write a command; one that has ended does not hear it."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            os.write(self._process.stdin.fileno(), f"{command}\n".encode())

    def heard(self, event: str) -> bool:
        """Whether a message of a kind has come."""
        return event in self._messages

    def wait_for(self, event: str, timeout_s: float | None) -> dict[str, Any]:
        """The first message of a kind, waited for.

        Raises:
            LabError: it did not come in time, or the process ended without it.
        """
        with self._changed:
            self._changed.wait_for(lambda: event in self._messages or self.ended, timeout_s)
            if event in self._messages:
                return self._messages[event]
        if self.ended:
            raise LabError(f"the traffic generator on {self.host} ended", self._log.read_text().strip())
        raise LabError(
            f"the traffic generator on {self.host} did not say {event!r} in time",
            "Is the machine overloaded? Lower the load or give it more time.",
        )

    def close(self) -> None:
        """End the process, and wait until it has."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self.tell("stop")
        try:
            self._process.wait(_STOP_WAIT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join()
        self._process.stdin.close()
        self._process.stdout.close()
        self._plan.unlink(missing_ok=True)
        self._log.unlink(missing_ok=True)

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            message = json.loads(line)
            with self._changed:
                if message["event"] == "snapshot":
                    self.snapshots.append(message)
                elif message["event"] == "iteration":
                    self.iterations.append(message)
                else:
                    self._messages.setdefault(message["event"], message)
                self._changed.notify_all()
        with self._changed:
            self.ended = True
            self._changed.notify_all()
