"""The agent's process for uprobes by itself, and all that it says."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec
import numpy as np
from numpy.typing import NDArray

from cwdp.agent.uprobes.orders import Owner, UprobesOrder, UprobesWord
from cwdp.agent.uprobes.probes.records import QpSeen
from cwdp.agent.uprobes.requirements import SOURCE
from cwdp.errors import LabError
from cwdp.shared.bus.collectives import CALL_ROW, Communicator
from cwdp.shared.bus.packing import rows_of

HEADERS = Path(__file__).parents[2] / "build/kernel-headers"
WAIT_S = 300.0
"""An emulated machine compiles for minutes."""


class TracingProcess:
    """To be used in `with`.

    Args:
        names: of the cgroups whose programs are traced.
        headers: by which it compiles.

    Attributes:
        queue_pairs: what was seen of queue pairs, and whose they are.
        calls: of NCCL, with their communicators, dtype CALL_ROW each.
        word: the last one.
    """

    def __init__(self, *names: str, headers: Path = HEADERS) -> None:
        self._process = subprocess.Popen(
            (sys.executable, "-m", "cwdp.agent.uprobes.process"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | {SOURCE: str(headers)},
        )
        assert self._process.stdin is not None
        self._process.stdin.write(msgspec.json.encode(UprobesOrder(cgroups=list(names))) + b"\n")
        self._process.stdin.flush()
        self.pid = self._process.pid
        self.queue_pairs: list[tuple[QpSeen, Owner]] = []
        self.calls: list[tuple[Communicator, NDArray[np.void]]] = []
        self.word = UprobesWord(counters={})

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.communicate()

    def until(self, is_so: Callable[[], object], within_s: float = WAIT_S) -> None:
        """Listen until something is so.

        Raises:
            LabError: it does not come to that.
        """
        end_s = time.monotonic() + within_s
        while not is_so():
            if time.monotonic() > end_s:
                raise LabError(f"it did not come to that: {self.word}", "See docs/uprobes.md.")
            self.listen()

    def listen(self) -> None:
        """Take in one word.

        Raises:
            LabError: it has ended.
        """
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise LabError(f"the process has ended with status {self._process.wait()}")
        self.word = msgspec.json.decode(line, type=UprobesWord)
        self.queue_pairs += self.word.queue_pairs
        if self.word.calls is not None:
            comms = self.word.calls.comms
            self.calls += [(comms[row["comm"]], row) for row in rows_of(self.word.calls.calls, CALL_ROW)]

    def count(self, name: str) -> int:
        """One of its numbers."""
        return self.word.counters.get(f"uprobes_{name}", 0)
