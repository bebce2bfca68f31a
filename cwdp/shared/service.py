"""What a long-running service needs of its surroundings: one-line logs, and word to systemd."""

import asyncio
import contextlib
import ctypes
import gc
import logging
import os
import socket
import sys
import time

COLLECT_EVERY_S = 60.0
LET_BE_EVERY_S, LOOK_AT_ALL_EVERY_S = 2.0, 30.0
LOOK_AT_ALL_SHARE = 0.001
"""Of the time, that collections of all that a service holds may take at most."""

GIVE_BACK_EVERY_S = 30.0
GIVE_BACK_SHARE = 0.005
"""Of the time, that giving back memory may take at most: a quarter of a second in a manager that holds 2 GiB."""

YOUNG = 20_000
"""Objects that are new before CPython looks at them; a manager makes as many in a moment, and most are gone by then."""

SWITCH_S = 0.0005
LARGE_BYTES = 1 << 20
_M_MMAP_THRESHOLD, _M_ARENA_MAX = -3, -8
"""`mallopt(3)`, malloc.h of glibc."""

_PR_SET_THP_DISABLE = 41
"""`prctl(2)`, linux/prctl.h."""


class _LineFormatter(logging.Formatter):
    """`TIME LEVEL LOGGER MESSAGE` on one line, UTC; messages carry `key=value` pairs."""

    converter = staticmethod(time.gmtime)
    default_time_format = "%Y-%m-%dT%H:%M:%S"
    default_msec_format = "%s.%03dZ"

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s %(message)s")

    def format(self, record: logging.LogRecord) -> str:
        """The record as one line; a traceback's lines are joined by ` | `."""
        return " | ".join(super().format(record).splitlines())


def log_to_stderr(level: str = "info") -> None:
    """Send this process's logs to standard error, from `level` (a name such as `info`) up."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_LineFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    logging.getLogger("nats").setLevel(logging.CRITICAL)  # cwdp.bus says what matters of it


async def collect_in_full() -> None:
    """Collect garbage in full every now and then, for ever; what is there when it begins, modules mostly, is looked at no more.

    CPython 3.11 puts that off until a quarter of what it looks at is new, which a service that works evenly never reaches. And
    only then it gives back the tuples that were freed: up to 2,000 of each length are kept, 4.6 MB in all. That is much of an
    agent, which holds a few thousand objects; of a manager it is little, and a collection would hold it for seconds.
    """
    gc.freeze()
    try:
        while True:
            gc.collect()
            give_back()
            await asyncio.sleep(COLLECT_EVERY_S)
    finally:
        gc.unfreeze()


async def collect_little() -> None:
    """Collect garbage often among what is new, for ever, and let be what has outlived that.

    CPython looks at all that a service holds whenever a quarter of it is new: half a second at a time in a manager of 2,048
    NICs, some times a minute while hosts come and go. Cycles that become garbage later are found every 30 s, or more seldom
    where that takes long. What malloc holds free is given back as often, but that takes less long: a model of links that has
    been replaced leaves hundreds of MiB free at once.
    """
    thresholds = gc.get_threshold()
    gc.set_threshold(YOUNG, *thresholds[1:])
    due_s = time.monotonic() + LOOK_AT_ALL_EVERY_S
    give_back_s = time.monotonic() + GIVE_BACK_EVERY_S
    try:
        while True:
            started_s = time.monotonic()
            looks_at_all = started_s >= due_s
            if looks_at_all:
                gc.unfreeze()
            gc.collect()
            if looks_at_all:
                due_s = _next_s(started_s, LOOK_AT_ALL_EVERY_S, LOOK_AT_ALL_SHARE)
            gc.freeze()
            if started_s >= give_back_s:
                started_s = time.monotonic()
                give_back()
                give_back_s = _next_s(started_s, GIVE_BACK_EVERY_S, GIVE_BACK_SHARE)
            await asyncio.sleep(LET_BE_EVERY_S)
    finally:
        gc.set_threshold(*thresholds)
        gc.unfreeze()


def _next_s(started_s: float, every_s: float, share: float) -> float:
    """When what began then and has ended now is due again, to take a share of the time at most."""
    ended_s = time.monotonic()
    return ended_s + max(every_s, (ended_s - started_s) / share)


def hold_little_memory() -> None:
    """Have malloc keep little of what is freed; before there are threads or large arrays.

    All threads take memory from one place: else glibc keeps what each of them has freed apart. What is large has pages of its own,
    which go back to the kernel at once: by itself glibc puts ever larger arrays among small ones, and holes are left. And pages are
    small: numpy asks for huge ones for its arrays, and the kernel then fills holes with these that have been given back.
    """
    libc = ctypes.CDLL(None)
    libc.mallopt(_M_ARENA_MAX, 1)
    libc.mallopt(_M_MMAP_THRESHOLD, LARGE_BYTES)
    libc.prctl(_PR_SET_THP_DISABLE, 1, 0, 0, 0)


def give_back() -> None:
    """Have malloc give free pages back to the kernel (malloc_trim(3)): by itself it does so only at the end of its arena.

    Between arrays that stay others come and go: in a manager of six hosts free pages grew by 1 MB a minute.
    """
    ctypes.CDLL(None).malloc_trim(0)


def switch_often() -> None:
    """Have threads give way to each other after half a millisecond.

    The loop lets go of the interpreter with each message that it reads and inflates, and a thread that works gives it back after
    5 ms only, as CPython has it: beside such a thread a loop reads a fraction of what it could.
    """
    sys.setswitchinterval(SWITCH_S)


def notify(state: str) -> None:
    """Tell systemd, where it started this process: `READY=1`, `STOPPING=1`, `STATUS=...` (sd_notify(3))."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    if address.startswith("@"):
        address = "\0" + address[1:]
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as out:
        out.sendto(state.encode(), address)
