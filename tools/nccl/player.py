"""The program that plays NCCL, and an agent that takes its ring and does not read it by itself."""

import os
import socket
import subprocess
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from cwdp.nccl.ring import Ring, take_ring
from tools.nccl.build import Built
from tools.shim.agent import ProgramSocket

WAIT_S = 20.0


class Player:
    """The program with the plug-in, by one version of the interface; to be used in `with`."""

    def __init__(self, built: Built, version: int, socket_path: Path | str, **environment: str) -> None:
        self._process = subprocess.Popen(
            [built.program, built.library, str(version)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=_environment(environment) | {"CWDP_NCCL": str(socket_path)},
            text=True,
            bufsize=1,
        )
        self.pid = self._process.pid

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.communicate()

    def tell(self, line: str) -> None:
        """Have it do something."""
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")

    def answer(self) -> list[str]:
        """What it says to the line that it has not answered yet.

        Raises:
            EOFError: it has ended.
        """
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise EOFError(self._process.communicate()[1])
        return line.split()

    def do(self, line: str) -> int:
        """Have it do something; the number that it answers."""
        self.tell(line)
        return int(self.answer()[1])

    def end(self) -> tuple[int, str]:
        """Its exit status, and what it has written to standard error."""
        error = self._process.communicate(timeout=WAIT_S)[1]
        return self._process.returncode, error


class FakeAgent(ProgramSocket):
    """Takes rings; to be used in `with`."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._connections: list[socket.socket] = []
        self._rings: list[Ring] = []

    def accept(self, wait_s: float = WAIT_S) -> Ring:
        """The ring of the next program.

        Raises:
            TimeoutError: none came.
        """
        connection = self.connection(wait_s)
        self._connections.append(connection)
        connection.settimeout(wait_s)
        ring = take_ring(connection)
        assert ring is not None
        self._rings.append(ring)
        return ring

    def close(self) -> None:
        """Be gone."""
        for each in self._connections:
            each.close()
        super().close()


def _environment(more: Mapping[str, str]) -> dict[str, str]:
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
    return kept | dict(more)
