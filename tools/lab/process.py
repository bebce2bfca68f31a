"""Processes that a lab starts in its namespaces and stops when it goes."""

import os
import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from tools.lab.network import netns
from tools.lab.state import Process
from tools.waiting import wait_for

_STOP_TIMEOUT_S = 3.0
_POLL_S = 0.02


def start(namespace: str, argv: Sequence[str], **options: Any) -> "subprocess.Popen[Any]":
    """Start a process in a network namespace, in a session of its own; `options` are those of `Popen`.

    Only the network namespace changes: the child sees the same files, `/sys/fs/bpf` too.
    """

    def run() -> "subprocess.Popen[Any]":
        netns.enter_for_good(namespace)
        return subprocess.Popen(argv, start_new_session=True, **options)

    return netns.in_thread(run)


def record(node: str, pid: int, argv: Sequence[str]) -> Process:
    """Describe a process that runs, for the state."""
    return Process(node=node, pid=pid, start_ticks=_start_ticks(pid) or 0, argv=list(argv))


def is_alive(process: Process) -> bool:
    """Return whether this very process still runs (not a later one with its pid)."""
    return _start_ticks(process.pid) == process.start_ticks


def stop(process: Process) -> None:
    """End a process and its session: ask, wait, then insist."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        if not is_alive(process):
            return
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        wait_for(lambda: not is_alive(process), _STOP_TIMEOUT_S, poll_s=_POLL_S)


def _start_ticks(pid: int) -> int | None:
    """Return the start time of a process in clock ticks since boot, None if it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] in "ZX" else int(fields[19])
