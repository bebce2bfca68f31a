"""The program of verbs calls as it runs: what it is told, what it answers."""

import os
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from tools.shim.build import Built

RESET, INIT, RTR, RTS, SQD, SQE, ERR = range(7)
"""Of `enum ibv_qp_state`."""

AV = 1 << 7
"""Of `enum ibv_qp_attr_mask`."""

ERRNO_BEFORE = 77
GID = bytes([0xFE, 0x80, *[0] * 13, 9])
"""Where queue pairs of these programs lead, unless told otherwise."""

ENDS_IN_S = 10.0


class Call(NamedTuple):
    """A call that reached the provider; `sport` is of libmlx5's function, `dlid` and `path_bits` of a path or an alternate one."""

    what: str
    qpn: int
    mask: int
    state: int
    flow_label: int
    sport: int
    result: int
    dlid: int = 0
    path_bits: int = 0


class Program:
    """One process; to be used in `with`.

    Args:
        program: `linked` or `nccl` of what was built.
        built: the libraries.
        environment: more of it; how the shim is loaded, and where its agent is.
    """

    def __init__(self, program: Path, built: Built, environment: Mapping[str, str] | None = None) -> None:
        wanted = {"LD_LIBRARY_PATH": str(built.fakes)} | dict(environment or {})
        self._process = subprocess.Popen(
            [program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            bufsize=1,
            env={"PATH": os.environ["PATH"], **wanted},
        )
        self.pid = self._process.pid

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process.poll() is None and kind is not None:
            self._process.kill()
        self.end()

    def end(self) -> tuple[int, str]:
        """Let it come to its end; return its status, and all that it said on standard error and after the last answer."""
        if self._process.stdin is None or self._process.stdin.closed:
            return self._process.returncode, ""
        rest, errors = self._process.communicate(timeout=ENDS_IN_S)
        return self._process.returncode, errors + rest

    def tell(self, line: str) -> None:
        """Have it do something that is answered later."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n")

    def answer(self) -> list[str]:
        """The words of its next answer; none where it has ended."""
        assert self._process.stdout is not None
        return self._process.stdout.readline().split()

    def do(self, line: str) -> list[int]:
        """Have it do something; return the numbers of its answer.

        Raises:
            RuntimeError: it has ended.
        """
        self.tell(line)
        words = self.answer()
        if not words:
            raise RuntimeError(f"it ended at {line}: {self.end()}")
        return [int(word) for word in words[1:]]

    def calls(self) -> list[Call]:
        """What reached the provider since the last time."""
        self.tell("calls")
        return [
            Call(what, *(int(number) for number in numbers))
            for what, *numbers in (word.split(":") for word in self.answer()[1:])
        ]

    def connect(
        self, context: int = 0, kind: str = "rc", gid: bytes = GID, more: str = ""
    ) -> tuple[int, int]:
        """Make a queue pair and take it to RTS; return its place and its number."""
        place, qpn, _ = self.do(f"create {context} {kind}")
        self.do(f"modify {place} {INIT}")
        path = "" if kind == "ud" else f"path={gid.hex()} {more}"
        self.do(f"modify {place} {RTR} {path}")
        self.do(f"modify {place} {RTS}")
        return place, qpn

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal."""
        self._process.send_signal(number)
