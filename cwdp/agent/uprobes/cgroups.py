"""Named cgroups: which of them there are, and the programs in them and in those below.

They are named as the kernel does in /proc/PID/cgroup; `*` is any part of a name. A path in the hierarchy of version 2 comes first; one that is only in
hierarchies of version 1 is found there, program by program, as eBPF cannot ask whether a program is below it.
"""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

MOUNTS = Path("/proc/self/mountinfo")
MOST_PROGRAMS = 16_384


class Mounts(NamedTuple):
    """Where the hierarchies are; `unified` that of version 2."""

    unified: Path | None
    others: list[Path]


class Named(NamedTuple):
    """What is there of the named cgroups.

    Attributes:
        ids: the kernel's numbers of those of version 2.
        pids: programs in all of them.
        by_pid: those of them that are in cgroups of version 1 only.
        missing: names of which there is nothing.
    """

    ids: frozenset[int]
    pids: frozenset[int]
    by_pid: frozenset[int]
    missing: list[str]


def mounts(file: Path = MOUNTS) -> Mounts:
    """Where they are mounted (proc_pid_mountinfo(5)), as a whole."""
    unified, others = None, []
    for line in file.read_text().splitlines():
        before, _, after = line.partition(" - ")
        root, point = before.split()[3:5]
        kind = after.split()[0]
        if root == "/" and kind == "cgroup2" and unified is None:
            unified = Path(point)
        elif root == "/" and kind == "cgroup":
            others.append(Path(point))
    return Mounts(unified, others)


def level(name: str) -> int:
    """How deep a cgroup is; 0 is the root."""
    return len([part for part in name.split("/") if part])


def find(names: Iterable[str], where: Mounts) -> Named:
    """What is there now."""
    ids: set[int] = set()
    pids: set[int] = set()
    by_pid: set[int] = set()
    missing = []
    for name in names:
        unified = _folders(where.unified, name)
        ids.update(number for folder in unified if (number := _inode(folder)) is not None)
        pids.update(pid for folder in unified for pid in _programs(folder))
        others = [] if unified else [folder for mount in where.others for folder in _folders(mount, name)]
        by_pid.update(pid for folder in others for pid in _programs(folder))
        if not unified and not others:
            missing.append(name)
    return Named(frozenset(ids), frozenset(pids | by_pid), frozenset(by_pid), missing)


def _folders(mount: Path | None, name: str) -> list[Path]:
    if mount is None:
        return []
    below = name.strip("/")
    return [folder for folder in (mount.glob(below) if below else [mount]) if folder.is_dir()]


def _inode(folder: Path) -> int | None:
    """The number of a cgroup of version 2 is that of its folder."""
    try:
        return folder.stat().st_ino
    except OSError:
        return None


def _programs(folder: Path) -> Iterator[int]:
    left = MOST_PROGRAMS
    for path, _, _ in os.walk(folder):
        try:
            listed = (Path(path) / "cgroup.procs").read_text().split()
        except OSError:  # gone, or threaded: its programs are listed above it
            continue
        yield from map(int, listed[:left])
        left -= min(left, len(listed))
