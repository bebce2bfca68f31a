"""A program that calls what is traced, in a cgroup."""

import subprocess
from pathlib import Path
from types import TracebackType
from typing import Self

from tools.shim.build import compile_c

PROGRAM = Path(__file__).parent / "program"
FLAGS = (
    "-std=gnu11",
    "-D_GNU_SOURCE",
    "-O1",
    "-fno-omit-frame-pointer",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-pthread",
)

MOVED = "-Wl,-Ttext-segment=0x40000"
"""The libraries' functions are at other places in their files than in their own addresses."""


def build(folder: Path) -> Path:
    """Make the program and its libraries in a folder; returns the program.

    Raises:
        LabError: there is no compiler, or it refuses.
    """
    folder.mkdir(parents=True, exist_ok=True)
    shared = (*FLAGS, "-fPIC", "-shared", MOVED)
    versions = f"-Wl,--version-script={PROGRAM / 'libibverbs.map'}"
    for name, *sources in (
        ("libibverbs.so.1", PROGRAM / "libibverbs.c", versions),
        ("libnccl.so.2", PROGRAM / "libnccl.c"),
    ):
        compile_c(folder / name, *shared, f"-Wl,-soname,{name}", *map(str, sources))
    linked = (f"-L{folder}", "-l:libibverbs.so.1", "-l:libnccl.so.2", "-Wl,-rpath,$ORIGIN", "-ldl")
    compile_c(folder / "caller", *FLAGS, str(PROGRAM / "caller.c"), *linked)
    return folder / "caller"


CONTAINED = 'mount -t tmpfs none "$1"; cp "$0"/* "$1"; exec "$1/caller"'
"""What a shell does in a tree of files of its own, given the program's folder and the other one."""


class Caller:
    """The program, running.

    Args:
        program: as `build` made it.
        cgroup: the folder of the cgroup that it runs in; None for this process's.
        inside: a folder in whose place only it finds the program and its libraries, as in a container; None for no such.
        environ: variables that it has.
    """

    def __init__(
        self, program: Path, cgroup: Path | None = None, inside: Path | None = None, **environ: str
    ) -> None:
        contained = ("unshare", "--mount", "sh", "-ec", CONTAINED, program.parent, inside)
        command = (program,) if inside is None else tuple(map(str, contained))
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environ
        )
        self.pid = self._process.pid
        if cgroup is not None:
            (cgroup / "cgroup.procs").write_text(str(self.pid))

    def do(self, what: str, count: int = 1) -> float:
        """Have it do something so many times; returns the nanoseconds of a processor that each took."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{what} {count}\n")
        self._process.stdin.flush()
        return float(self._process.stdout.readline())

    def end(self) -> None:
        """End it."""
        self._process.kill()
        self._process.communicate()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()
