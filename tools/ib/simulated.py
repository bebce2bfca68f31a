"""A subnet that runs: ibsim in a process of its own, opensm once for its LIDs and tables, programs below its library."""

import os
import secrets
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from cwdp.errors import LabError
from tools.ib.topology import Clos

LIBRARY = Path("/usr/lib/x86_64-linux-gnu/umad2sim/libumad2sim.so")
READY, READY_S, LOOK_S = "sim>", 30.0, 0.005
SWEEP_S = 60.0
END_S = 5.0
CONSOLE_S = 10.0


class Subnet:
    """As a context.

    Args:
        topology: what there is.
        folder: for its files.
        lmc: each port of a host owns 2^lmc LIDs.
        engine: of routing, as opensm names it.

    Raises:
        LabError: it cannot be started.
    """

    def __init__(self, topology: Clos, folder: Path, *, lmc: int = 2, engine: str = "minhop") -> None:
        self._folder, self._lmc, self._engine = folder, lmc, engine
        self._name = f"cwdp-{secrets.token_hex(4)}"
        self._file, self._log = folder / "subnet.net", folder / "ibsim.log"
        self._file.write_text(topology.text())
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                ["ibsim", "-s", self._file],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self._environment(),
            )
        try:
            self._wait()
            self.sweep()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._end()

    def sweep(self) -> None:
        """Have opensm give LIDs and write tables, once."""
        command = [
            "opensm",
            "-o",
            "-R",
            self._engine,
            "--lmc",
            str(self._lmc),
            "-f",
            self._folder / "opensm.log",
        ]
        done = self.run("h1", command, timeout_s=SWEEP_S)
        if done.returncode:
            raise LabError(f"opensm failed: {done.stdout[-500:]}", "see its log in the folder of the subnet")

    def run(
        self, node: str, command: Sequence[Any], timeout_s: float = 60.0
    ) -> "subprocess.CompletedProcess[str]":
        """Run a program at a node, to its end; its two outputs are one."""
        return subprocess.run(
            command,
            env=self.environment(node),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=timeout_s,
            check=False,
        )

    def environment(self, node: str) -> dict[str, str]:
        """Of programs at a node."""
        return {**self._environment(), "SIM_HOST": node, "LD_PRELOAD": str(LIBRARY)}

    def console(self, command: str) -> None:
        """Have ibsim do something: `unlink "l1"[5]`, `link`, `error`; see its `help`."""
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(f"{command}\n".encode())
        self._process.stdin.flush()

    def run_commands(self, commands: Sequence[str]) -> None:
        """Have ibsim do several things at once, and wait until it has."""
        script = self._folder / "commands"
        script.write_text("".join(f"{command}\n" for command in commands))
        before = self._log.stat().st_size
        self.console(f"!{script}")
        until_s = time.monotonic() + CONSOLE_S
        while self._log.stat().st_size == before or not self._log.read_bytes().rstrip().endswith(
            READY.encode()
        ):
            if time.monotonic() > until_s:
                raise LabError("ibsim's console does not answer", f"see {self._log}")
            time.sleep(LOOK_S)

    def _environment(self) -> Mapping[str, str]:
        return {**os.environ, "IBSIM_SOCKNAME": self._name}

    def _wait(self) -> None:
        assert self._process is not None
        until_s = time.monotonic() + READY_S
        while READY not in self._log.read_text(errors="replace"):
            if self._process.poll() is not None or time.monotonic() > until_s:
                raise LabError(
                    f"ibsim did not begin: {self._log.read_text()[-500:]}", "is ibsim-utils installed?"
                )
            time.sleep(LOOK_S)

    def _end(self) -> None:
        assert self._process is not None
        self._process.terminate()
        try:
            self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        assert self._process.stdin is not None
        self._process.stdin.close()
