"""The ranks of a collective as processes, and what they say of themselves."""

import json
import os
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

Row = dict[str, Any]


@dataclass(frozen=True)
class Collective:
    """What all ranks do together.

    Attributes:
        function: `all-reduce`, `all-to-all` or `send`.
        bytes: of an all-reduce's buffer; to each peer otherwise.
        chunk_bytes: the most that is sent at once.
        iterations: how often.
        more: other options, as `tools/collective/program/options.c` has them.
    """

    function: str = "all-reduce"
    bytes: int = 1 << 20
    chunk_bytes: int = 1 << 17
    iterations: int = 1
    more: tuple[str, ...] = ()

    def options(self) -> list[str]:
        """As the program takes them."""
        numbers = {"bytes": self.bytes, "chunk-bytes": self.chunk_bytes, "iterations": self.iterations}
        options = [word for name, number in numbers.items() for word in (f"--{name}", str(number))]
        return ["--function", self.function, *options, *self.more]


class Rank(NamedTuple):
    """Where a rank is: the device, the index of its GID, and more of its environment."""

    device: str
    gid_index: int
    environment: Mapping[str, str]


class Truth(NamedTuple):
    """What a rank said, as `tools/collective/program/main.c` has it; and how it ended.

    Attributes:
        status: of its exit, negative for a signal.
        error: what it wrote to standard error.
        begin: itself; empty where it did not come so far.
        chunks: that it has sent.
    """

    status: int
    error: str
    begin: Row
    chunks: list[Row]
    calls: list[Row]
    iterations: list[Row]
    end: Row


class Ranks:
    """Those that run. Made by `running`."""

    def __init__(self, processes: Sequence["subprocess.Popen[bytes]"], folder: Path) -> None:
        self.processes = processes
        self._folder = folder

    def finish(self, timeout_s: float) -> list[Truth]:
        """Wait for the end of all; those that are not over in time are killed."""
        deadline_s = time.monotonic() + timeout_s
        for process in self.processes:
            try:
                process.wait(max(0.0, deadline_s - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        return [self._truth(rank, process.returncode) for rank, process in enumerate(self.processes)]

    def _truth(self, rank: int, status: int) -> Truth:
        said = (_output(self._folder, rank)).read_text()
        rows = [json.loads(line) for line in said.splitlines(keepends=True) if line.endswith("\n")]
        of_kind: dict[str, list[Row]] = {kind: [] for kind in ("begin", "chunk", "call", "iteration", "end")}
        for row in rows:
            of_kind[row["what"]].append(row)
        begins, chunks, calls, iterations, ends = of_kind.values()
        error = _errors(self._folder, rank).read_text()
        begin, end = (some[0] if some else {} for some in (begins, ends))
        return Truth(status, error, begin, chunks, calls, iterations, end)


@contextmanager
def running(
    program: Path, what: Collective, ranks: Sequence[Rank], rendezvous: str, folder: Path
) -> Iterator[Ranks]:
    """Start all ranks; their output is kept in a folder, and those that still run at the end are killed."""
    with ExitStack() as stack:
        processes = []
        for number, rank in enumerate(ranks):
            place = ["--rank", str(number), "--ranks", str(len(ranks)), "--rendezvous", rendezvous]
            where = ["--device", rank.device, "--gid-index", str(rank.gid_index)]
            process = subprocess.Popen(
                [str(program), *place, *where, *what.options()],
                stdin=subprocess.DEVNULL,
                stdout=stack.enter_context(_output(folder, number).open("wb")),
                stderr=stack.enter_context(_errors(folder, number).open("wb")),
                env=os.environ | dict(rank.environment),
            )
            stack.callback(process.wait)
            stack.callback(process.kill)
            processes.append(process)
        yield Ranks(processes, folder)


def _output(folder: Path, rank: int) -> Path:
    return folder / f"rank{rank}.jsonl"


def _errors(folder: Path, rank: int) -> Path:
    return folder / f"rank{rank}.err"
