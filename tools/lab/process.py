"""Processes that a lab starts in its namespaces and stops when it goes."""

import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from tools.lab.network import netns
from tools.lab.state import Process
from tools.waiting import wait_for

_STOP_TIMEOUT_S = 3.0
_POLL_S = 0.02
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_SIGNALLED = 128  # and the signal's number is the status of who ends by it, as shells have it


def start(
    namespace: str, argv: Sequence[str], before: Callable[[], None] = lambda: None, **options: Any
) -> "subprocess.Popen[Any]":
    """Start a process in a network namespace, in a session of its own.

    The child sees the same files, `/sys/fs/bpf` too, but for what `before` has changed.

    Args:
        namespace: its name.
        argv: of the process.
        before: called in the thread that then starts it.
        options: those of `Popen`.
    """

    def run() -> "subprocess.Popen[Any]":
        netns.enter_for_good(namespace)
        before()
        return subprocess.Popen(argv, start_new_session=True, **options)

    return netns.in_thread(run)


def end_on_signals() -> None:
    """Have SIGINT, SIGTERM and SIGHUP raise KeyboardInterrupt in this process from now on."""

    def interrupt(_: int) -> None:
        raise KeyboardInterrupt

    for number in _ENDING:
        signal.signal(number, _here(interrupt))


@contextmanager
def undisturbed() -> Iterator[None]:
    """Have the signals that end a process wait: what is begun is done whole."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    before = {number: signal.signal(number, _here(came.append)) for number in _ENDING}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for each in came:
            signal.raise_signal(each)


def _here(act: Callable[[int], None]) -> Callable[[int, Any], None]:
    """A handler for this process; a copy of it by fork, as pyroute2 makes and ends them, ends at once."""
    own = os.getpid()

    def handle(number: int, _: Any) -> None:
        if os.getpid() != own:
            os._exit(_SIGNALLED + number)
        act(number)

    return handle


def record(node: str, pid: int, argv: Sequence[str], part: str = "") -> Process:
    """Describe a process that runs, for the state."""
    return Process(node=node, pid=pid, start_ticks=_start_ticks(pid) or 0, argv=list(argv), part=part)


def is_alive(process: Process) -> bool:
    """Return whether this very process still runs (not a later one with its pid)."""
    return _start_ticks(process.pid) == process.start_ticks


def stop(processes: Sequence[Process]) -> None:
    """End processes and their sessions: ask all, wait, then insist."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        alive = [process for process in processes if is_alive(process)]
        for process in alive:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, number)
        wait_for(partial(_have_ended, alive), _STOP_TIMEOUT_S, poll_s=_POLL_S)


def _have_ended(processes: Sequence[Process]) -> bool:
    return not any(map(is_alive, processes))


def _start_ticks(pid: int) -> int | None:
    """Return the start time of a process in clock ticks since boot, None if it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] in "ZX" else int(fields[19])
