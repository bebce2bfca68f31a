"""A host's share of the processors: a control group for the processes of each host of a lab.

The group's waits for a processor stand in the place of the whole machine's in `/proc/pressure/cpu`, as the host's processes
see it. On a kernel without control groups of version 2, or that does not tell of pressure, hosts have no groups.
"""

import ctypes
import os
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from cwdp.errors import LabError
from tools.lab import state
from tools.lab.network import netns
from tools.lab.topology import Topology

PRESSURE = Path("/proc/pressure/cpu")
PERIOD_US, LEAST_QUOTA_US = 100_000, 1_000

_MOUNTS = Path("/proc/self/mounts")
_CLONE_NEWNS, _MS_BIND, _MS_REC, _MS_SLAVE = 0x20000, 0x1000, 0x4000, 0x80000
_REMOVE_S, _POLL_S = 2.0, 0.05
_libc = ctypes.CDLL(None, use_errno=True)


def has_groups() -> bool:
    """Whether hosts have groups here."""
    return PRESSURE.exists() and _mounted("cgroup2") is not None


def show_own(name: str, host: str) -> None:
    """Make a host's group, and have the calling thread, and what it starts, see the waits of that only."""
    if not has_groups():
        return
    group = _group(name, host)
    group.mkdir(exist_ok=True)
    netns.call(_libc.unshare, _CLONE_NEWNS)
    netns.call(_libc.mount, None, b"/", None, _MS_REC | _MS_SLAVE, None)
    own = group / "cpu.pressure"
    netns.call(_libc.mount, os.fsencode(own), os.fsencode(PRESSURE), None, _MS_BIND, None)


def join(name: str, host: str, pid: int) -> None:
    """Put a process of a host into its group; what it starts from then on is there too."""
    if has_groups():
        with suppress(ProcessLookupError):
            (_group(name, host) / "cgroup.procs").write_text(str(pid))


def used_s(name: str, host: str) -> float:
    """What a host's processes have used of processors.

    Raises:
        LabError: hosts have no groups here, or this one none yet.
    """
    _require(name, host)
    stat = (_group(name, host) / "cpu.stat").read_text()
    return int(dict(line.split() for line in stat.splitlines())["usage_usec"]) / 1e6


def limit(name: str, host: str, processors: float | None) -> None:
    """Let a host's processes have no more than some processors, 0.1 for a tenth of one; None for all.

    With control groups of version 1 those of real time are held to it too.

    Raises:
        LabError: there is no such host, or hosts have no groups here, or this one none yet.
    """
    _require(name, host)
    group, limiting = _group(name, host), _limiting(name, host)
    quota_us = None if processors is None else max(round(processors * PERIOD_US), LEAST_QUOTA_US)
    if limiting is None:
        (group.parent / "cgroup.subtree_control").write_text("+cpu")
        (group / "cpu.max").write_text(f"{'max' if quota_us is None else quota_us} {PERIOD_US}")
    elif quota_us is not None:
        limiting.mkdir(exist_ok=True)
        for kind in ("cfs_period_us", "rt_period_us"):
            (limiting / f"cpu.{kind}").write_text(str(PERIOD_US))
        for kind in ("cfs_quota_us", "rt_runtime_us"):
            (limiting / f"cpu.{kind}").write_text(str(quota_us))
        _move(group, limiting)
    elif limiting.is_dir():
        _move(limiting, limiting.parent)
        limiting.rmdir()


def remove(name: str) -> None:
    """Remove the groups of a lab whose processes have ended."""
    deadline = time.monotonic() + _REMOVE_S
    while (left := list(folders(name))) and time.monotonic() < deadline:
        for folder in left:
            with suppress(OSError):  # some process is about to end
                folder.rmdir()
        time.sleep(_POLL_S)


def _require(name: str, host: str) -> None:
    topology = Topology(state.require(name).spec)
    if topology.require_node(host) not in topology.hosts:
        raise LabError(f"{host!r} is no host", f"Hosts are: {', '.join(topology.hosts)}.")
    if not has_groups():
        raise LabError(
            "hosts have no control groups on this machine",
            "It takes control groups of version 2 and /proc/pressure; boot with psi=1.",
        )
    if not _group(name, host).is_dir():
        raise LabError(f"nothing runs on {host!r}", "Start its agent or its traffic first: `cwdp lab fleet`.")


def _move(source: Path, to: Path) -> None:
    for pid in (source / "cgroup.procs").read_text().split():
        with suppress(ProcessLookupError):
            (to / "cgroup.procs").write_text(pid)


def folders(name: str) -> Iterator[Path]:
    """What there is of a lab's groups."""
    for root in (_mounted("cgroup2"), _mounted("cgroup", "cpu")):
        if root is not None:
            yield from root.glob(_called(name, "*"))


def _called(name: str, host: str) -> str:
    return f"cwdp-lab:{name}:{host}"


def _group(name: str, host: str) -> Path:
    root = _mounted("cgroup2")
    assert root is not None
    return root / _called(name, host)


def _limiting(name: str, host: str) -> Path | None:
    """The group that limits a host where version 1 has the processors, as it can hold its real-time processes only with a limit."""
    root = _mounted("cgroup", "cpu")
    return None if root is None else root / _called(name, host)


def _mounted(kind: str, controller: str = "") -> Path | None:
    """Where the control groups of a version are mounted; of version 1, those of a controller."""
    for line in _MOUNTS.read_text().splitlines():
        _, place, found, options, *_ = line.split()
        if found == kind and (not controller or controller in options.split(",")):
            return Path(place)
    return None
