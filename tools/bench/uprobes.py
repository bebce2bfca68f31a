"""What a traced call costs the program that makes it, in a named cgroup and elsewhere; what the process for uprobes takes.

Functions that do nearly nothing stand in for libibverbs' and NCCL's. The cost is the processor time of a call less that without probes,
the median over turns. That for NCCL begins by a push, as large functions do, which the kernel does in the program's place; that for
`ibv_modify_qp` by another instruction, which it has the program execute by itself, with a trap more.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any, Self

import msgspec

from cwdp.agent.uprobes.cgroups import mounts
from cwdp.agent.uprobes.orders import UprobesOrder, UprobesWord
from cwdp.agent.uprobes.requirements import SOURCE
from cwdp.errors import LabError
from tools.bench.figures import Figure, figure
from tools.uprobes import Caller, build

HEADERS = Path(__file__).parents[2] / "build/kernel-headers"
NAME = "cwdp-bench-uprobes"
CALLS, TURNS, FIRST = 20_000, 15, 1_000
CALLS_PER_S, SECONDS, SLICE_S = 5_000, 10, 0.02
SHARE_TARGET = 0.1
READY_S = 60.0
TICKS = os.sysconf("SC_CLK_TCK")
KINDS = {"reduce": 2_000.0, "modify": None}
"""Of calls, with the target in ns."""


def figures() -> Iterator[Figure]:
    """By kind of call its cost in ns for a program that is traced and one that is not; memory, and the share of a processor."""
    with tempfile.TemporaryDirectory(prefix="cwdp-uprobes-") as folder, _cgroup() as cgroup:
        program = build(Path(folder))
        with Caller(program, cgroup) as named, Caller(program) as other:
            callers = {"named": named, "unnamed": other}
            before = {name: _timed(caller) for name, caller in callers.items()}
            with _Process() as process:
                began_s = time.monotonic()
                process.until_traced()
                ready_s = time.monotonic() - began_s
                after = {name: _timed(caller) for name, caller in callers.items()}
                for kind in KINDS:
                    for name in callers:
                        yield _cost(kind, name, before[name][kind], after[name][kind])
                yield from process.figures(named, ready_s)


def _cost(kind: str, name: str, before_ns: float, after_ns: float) -> Figure:
    reference = {"without_ns": before_ns, "with_ns": after_ns, "calls": CALLS * TURNS}
    return figure(f"uprobes_{kind}_{name}", after_ns - before_ns, "ns", reference, KINDS[kind], digits=0)


def _timed(caller: Caller) -> dict[str, float]:
    """Of each kind of call how long it takes, in ns."""
    caller.do("keep")
    caller.do("init")
    found = {}
    for kind in KINDS:
        caller.do(kind, FIRST)
        found[kind] = median(caller.do(kind, CALLS) for _ in range(TURNS))
    return found


@contextmanager
def _cgroup() -> Iterator[Path]:
    """A cgroup of version 2 of our own.

    Raises:
        LabError: there are none here.
    """
    unified = mounts().unified
    if unified is None:
        raise LabError(
            "no cgroups of version 2 are mounted here", "Mount them: mount -t cgroup2 none FOLDER."
        )
    folder = unified / NAME
    folder.mkdir(exist_ok=True)
    try:
        yield folder
    finally:
        time.sleep(0.2)  # until the programs that were killed are out of it
        folder.rmdir()


class _Process:
    """The agent's process for uprobes, whose words are read all the time."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            (sys.executable, "-m", "cwdp.agent.uprobes.process"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | {SOURCE: str(HEADERS)},
        )
        assert self._process.stdin is not None
        self._process.stdin.write(msgspec.json.encode(UprobesOrder(cgroups=[f"/{NAME}"])) + b"\n")
        self._process.stdin.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def until_traced(self) -> None:
        """Wait until libraries are attached to.

        Raises:
            LabError: they are not.
        """
        end_s = time.monotonic() + READY_S
        while (word := self._word()).counters["uprobes_libraries"] < len(KINDS):
            if word.trouble or time.monotonic() > end_s:
                raise LabError(
                    f"nothing is traced: {word.trouble}", "Run `make setup`, and look at docs/uprobes.md."
                )

    def figures(self, caller: Caller, ready_s: float) -> Iterator[Figure]:
        """What it takes itself while a program calls NCCL so many times a second."""
        while self._word().queue_pairs:  # those of before
            pass
        lost = self._word().counters["uprobes_records_lost"]
        calls, before_s, began_s = 0, self._processor_s(), time.monotonic()
        while (now_s := time.monotonic() - began_s) < SECONDS:
            due = round(CALLS_PER_S * now_s) - calls
            if due:
                caller.do("reduce", due)
                calls += due
            time.sleep(SLICE_S)
        share = (self._processor_s() - before_s) / SECONDS
        counters = self._word().counters
        reference = {"calls_per_s": CALLS_PER_S, "lost": counters["uprobes_records_lost"] - lost}
        yield figure("uprobes_processor_share", share, "of a processor", reference, SHARE_TARGET, digits=3)
        yield figure("uprobes_memory", counters["uprobes_memory_kib"] / 1_024, "MiB", None, None, digits=0)
        yield figure("uprobes_ready", ready_s, "s", None, None, digits=1)

    def _word(self) -> UprobesWord:
        assert self._process.stdout is not None
        return msgspec.json.decode(self._process.stdout.readline(), type=UprobesWord)

    def _processor_s(self) -> float:
        stat: list[Any] = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(stat[11]) + int(stat[12])) / TICKS
