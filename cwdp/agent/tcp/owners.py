"""Whose connections are: the numbers of cgroups, and which process has which socket."""

import time
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path, PurePosixPath

from cwdp.agent.tcp.services import SSH_UNITS, is_ssh

CGROUPS, PROC = Path("/sys/fs/cgroup"), Path("/proc")
MOST_CGROUPS_READ = 4_096
SCAN_S, SCAN_SHARE = 5.0, 20
"""Between two looks at all processes; a twentieth of the time at most."""

_SOCKET = "socket:["


def cgroup_ids(patterns: Iterable[str], root: Path = CGROUPS) -> set[int]:
    """The kernel's numbers of cgroups at or below some paths, without ssh's, MOST_CGROUPS_READ at most."""
    found: set[int] = set()
    for pattern in patterns:
        for top in root.glob(pattern.lstrip("/")):
            for path in _tree(top):
                if not is_ssh(PurePosixPath(path.relative_to(root))):
                    found |= _number(path)
                if len(found) >= MOST_CGROUPS_READ:
                    return found
    return found


def ssh_ids(root: Path = CGROUPS) -> set[int]:
    """The numbers of ssh's own cgroups, where systemd has them."""
    return set().union(*(_number(root / "system.slice" / unit) for unit in SSH_UNITS))


def _tree(top: Path) -> Iterator[Path]:
    if not top.is_dir():
        return
    yield top
    try:
        below = [path for path in top.iterdir() if path.is_dir() and not path.is_symlink()]
    except OSError:
        return
    for path in below:
        yield from _tree(path)


def _number(path: Path) -> set[int]:
    """A cgroup's number is that of its directory's inode; none where it is gone."""
    try:
        return {path.stat().st_ino}
    except OSError:
        return set()


class NamedProcesses:
    """Processes that were named by their numbers; another one that has such a number later is none of them."""

    def __init__(self, pids: Iterable[int], proc: Path = PROC) -> None:
        self._proc = proc
        self._began = {pid: _began(proc, pid) for pid in pids}

    def sockets(self, pid: int) -> set[int]:
        """The inodes of one's sockets; none once it has ended."""
        began = self._began.get(pid)
        return set(_sockets(self._proc, pid)) if began and began == _began(self._proc, pid) else set()


class SocketOwners:
    """Which process has which socket, looked up now and then for sockets that are new.

    Args:
        proc: where processes are told of.
    """

    def __init__(self, proc: Path = PROC) -> None:
        self._proc = proc
        self._pids: dict[int, int] = {}
        self._next_s = 0.0

    def of(self, inodes: Collection[int]) -> dict[int, int]:
        """The process of each socket, as far as is known; sockets that are not asked for any more are forgotten."""
        self._pids = {inode: self._pids[inode] for inode in inodes if inode in self._pids}
        now_s = time.monotonic()
        unknown = set(inodes) - self._pids.keys() - {0}
        if unknown and now_s >= self._next_s:
            self._look(unknown)
            self._next_s = time.monotonic() + max(SCAN_S, SCAN_SHARE * (time.monotonic() - now_s))
        return self._pids

    def _look(self, unknown: set[int]) -> None:
        for entry in self._proc.iterdir():
            if entry.name.isdecimal():
                for inode in unknown.intersection(_sockets(self._proc, int(entry.name))):
                    self._pids[inode] = int(entry.name)


def _sockets(proc: Path, pid: int) -> Iterator[int]:
    try:
        for descriptor in (proc / str(pid) / "fd").iterdir():
            try:
                target = str(descriptor.readlink())
            except OSError:
                continue
            if target.startswith(_SOCKET):
                yield int(target[len(_SOCKET) : -1])
    except OSError:
        return


def _began(proc: Path, pid: int) -> int | None:
    """When a process began, in clock ticks since boot; None where there is none."""
    try:
        return int((proc / str(pid) / "stat").read_text().rpartition(")")[2].split()[19])
    except (OSError, IndexError, ValueError):
        return None
