"""The libraries of programs that are traced: those that they have mapped, and the libibverbs that they would.

A program maps libibverbs right before it makes queue pairs, so where it would find one that is attached to beforehand.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from cwdp.agent.uprobes.mapped import PROC, VERBS, FileId, Mapped, mapped, reach

FIRST_S, LONGEST_S = 1.0, 16.0
"""A program is looked at again after so long, each time after twice as long, up to this."""

HIDDEN_LOOKS = 3
"""A program that ends while it is looked at cannot be looked at either."""

USUAL = ("usr/lib/x86_64-linux-gnu/libibverbs.so.1", "usr/lib64/libibverbs.so.1", "lib64/libibverbs.so.1")


class File(NamedTuple):
    """A library's file, by the path by which this process reaches it."""

    path: Path
    kind: str


@dataclass
class _Program:
    started: int
    due_s: float = 0.0
    wait_s: float = FIRST_S
    has_plugin: bool = False
    is_unreadable: bool = False
    files: dict[FileId, File] = field(default_factory=dict)


class Libraries:
    """What programs are looked at, and what was found.

    Args:
        started: when a program was started; None where it is gone.
        look: what it has mapped; None where that cannot be read.
        proc: where the kernel tells of programs.

    Attributes:
        unreadable: how many looks came to nothing.
        unreachable: how many libraries were found that this process cannot come by.
    """

    def __init__(
        self,
        started: Callable[[int], int | None],
        look: Callable[[int], Mapped | None] = mapped,
        proc: Path = PROC,
    ) -> None:
        self._started, self._look, self._proc = started, look, proc
        self._programs: dict[int, _Program] = {}
        self._hidden_looks = 0
        self.unreadable = self.unreachable = 0

    def __len__(self) -> int:
        return len(self._programs)

    def has_plugin(self, pid: int) -> bool:
        """Whether a program has cwdp's plug-in for NCCL, and so tells of its calls itself."""
        found = self._programs.get(pid)
        return found is not None and found.has_plugin

    def follow(self, pids: Collection[int], now_s: float) -> dict[FileId, File]:
        """Look at those programs that are due; returns the files of all of them."""
        before, self._programs = self._programs, {}
        found: dict[FileId, File] = {}
        for pid in pids:
            started = self._started(pid)
            if started is None:
                continue
            program = before.get(pid)
            if program is None or program.started != started:
                program = _Program(started)
            self._programs[pid] = program
            if now_s >= program.due_s:
                self._examine(pid, program, now_s)
            found |= program.files
        is_hidden = bool(pids) and all(program.is_unreadable for program in self._programs.values())
        self._hidden_looks = self._hidden_looks + 1 if is_hidden else 0
        return found

    @property
    def are_hidden(self) -> bool:
        """Whether there are programs of which none can be looked at, for some time."""
        return self._hidden_looks >= HIDDEN_LOOKS

    def _examine(self, pid: int, program: _Program, now_s: float) -> None:
        program.due_s = now_s + program.wait_s
        program.wait_s = min(2 * program.wait_s, LONGEST_S)
        seen = self._look(pid)
        program.is_unreadable = seen is None
        if seen is None:
            self.unreadable += 1
            return
        reached = [(reach(pid, library, self._proc), library.kind) for library in seen.libraries]
        self.unreachable += sum(at is None for at, _ in reached)
        program.has_plugin = seen.has_plugin
        program.files = self._usual(pid) | {
            at[1]: File(at[0], kind) for at, kind in reached if at is not None
        }

    def _usual(self, pid: int) -> dict[FileId, File]:
        found = {}
        for name in USUAL:
            path = self._proc / str(pid) / "root" / name
            try:
                status = path.stat()
            except OSError:
                continue
            found[FileId(status.st_dev, status.st_ino)] = File(path, VERBS)
        return found
