"""What a traced call costs the program that makes it, in a named cgroup and elsewhere; what the process for uprobes takes.

Functions that do nearly nothing stand in for libibverbs' and NCCL's. The cost is the processor time of a call less that without probes,
the median over turns. That for NCCL begins by a push, as large functions do, which the kernel does in the program's place; that for
`ibv_modify_qp` by another instruction, which it has the program execute by itself, with a trap more.
"""

import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from tools.bench.figures import Figure, figure
from tools.uprobes import Caller, TracingProcess, build, cgroup, unified

NAME = "cwdp-bench-uprobes"
CALLS, TURNS, FIRST = 20_000, 15, 1_000
CALLS_PER_S, SECONDS, SLICE_S = 5_000, 10, 0.02
SHARE_TARGET = 0.1
TICKS = os.sysconf("SC_CLK_TCK")
KINDS = {"reduce": 2_000.0, "modify": None}
"""Of calls, with the target in ns."""


def figures() -> Iterator[Figure]:
    """By kind of call its cost in ns for a program that is traced and one that is not; memory, and the share of a processor.

    Raises:
        LabError: nothing can be traced here.
    """
    with (
        tempfile.TemporaryDirectory(prefix="cwdp-uprobes-") as folder,
        unified() as mount,
        cgroup(mount, NAME) as own,
    ):
        program = build(Path(folder))
        with Caller(program, own) as named, Caller(program) as other:
            callers = {"named": named, "unnamed": other}
            before = {name: _timed(caller) for name, caller in callers.items()}
            with TracingProcess(f"/{NAME}") as process:
                began_s = time.monotonic()
                process.until(lambda: process.count("libraries") >= len(KINDS))
                ready_s = time.monotonic() - began_s
                after = {name: _timed(caller) for name, caller in callers.items()}
                for kind in KINDS:
                    for name in callers:
                        yield _cost(kind, name, before[name][kind], after[name][kind])
                yield from _own(process, named, ready_s)


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


def _own(process: TracingProcess, caller: Caller, ready_s: float) -> Iterator[Figure]:
    """What the process takes itself while a program calls NCCL so many times a second."""
    process.listen()
    process.until(lambda: not process.word.queue_pairs)  # those of before
    lost = process.count("records_lost")
    calls, before_s, began_s = 0, _processor_s(process.pid), time.monotonic()
    while (now_s := time.monotonic() - began_s) < SECONDS:
        due = round(CALLS_PER_S * now_s) - calls
        if due:
            caller.do("reduce", due)
            calls += due
        time.sleep(SLICE_S)
    share = (_processor_s(process.pid) - before_s) / SECONDS
    process.until(lambda: process.count("calls_told") >= calls)
    reference = {"calls_per_s": CALLS_PER_S, "lost": process.count("records_lost") - lost}
    yield figure("uprobes_processor_share", share, "of a processor", reference, SHARE_TARGET, digits=3)
    yield figure("uprobes_memory", process.count("memory_kib") / 1_024, "MiB", None, None, digits=0)
    yield figure("uprobes_ready", ready_s, "s", None, None, digits=1)


def _processor_s(pid: int) -> float:
    stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(stat[11]) + int(stat[12])) / TICKS
