"""Which libraries programs have mapped that are looked for, and by which path this process reaches them."""

import re
from pathlib import Path
from typing import NamedTuple

PROC = Path("/proc")
VERBS, NCCL = "libibverbs", "libnccl"
"""Kinds of libraries."""

_KINDS = (
    (re.compile(r"/libibverbs\.so[^/]*$"), VERBS),
    (re.compile(r"/lib(?:nccl|rccl|torch_cuda)[^/]*\.so[^/]*$"), NCCL),
)
_OURS = re.compile(r"/libcwdp_nccl\.so")
_GONE = " (deleted)"


class Library(NamedTuple):
    """A file that a program has mapped.

    Attributes:
        kind: VERBS or NCCL; of the latter also what may have NCCL inside.
        path: in the program's own tree of files.
        inode: as the program's mapping has it.
    """

    kind: str
    path: str
    inode: int


class FileId(NamedTuple):
    """A file, whichever path leads to it."""

    device: int
    inode: int


class Mapped(NamedTuple):
    """What a program has mapped; `has_plugin` where cwdp's plug-in for NCCL is among it."""

    libraries: list[Library]
    has_plugin: bool


def mapped(pid: int, proc: Path = PROC) -> Mapped | None:
    """What a program has mapped to run it; None where it cannot be read, or it is gone."""
    try:
        text = (proc / str(pid) / "maps").read_text(errors="replace")
    except OSError:
        return None
    return parse(text)


def parse(text: str) -> Mapped:
    """The same of what the kernel writes (proc_pid_maps(5))."""
    found: dict[Library, None] = {}
    has_plugin = False
    for line in text.splitlines():
        words = line.split(maxsplit=5)
        if len(words) < 6 or "x" not in words[1]:
            continue
        path = words[5].removesuffix(_GONE)
        has_plugin = has_plugin or bool(_OURS.search(path))
        for pattern, kind in _KINDS:
            if pattern.search(path):
                found[Library(kind, path, int(words[4]))] = None
    return Mapped(list(found), has_plugin)


def reach(pid: int, library: Library, proc: Path = PROC) -> tuple[Path, FileId] | None:
    """By which path this process reaches a program's library, in a container too; None where another file is there by now."""
    path = proc / str(pid) / "root" / library.path.lstrip("/")
    try:
        found = path.stat()
    except OSError:
        return None
    return (path, FileId(found.st_dev, found.st_ino)) if found.st_ino == library.inode else None
