"""How soon the queue pairs of a path that has fallen silent are told to move, where programs have the verbs shim.

The process that the agent keeps for them runs as it would; programs are played here. From when the silence is found to when
the last order is sent.
"""

import contextlib
import os
import select
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np

from cwdp.agent.ud.orders import DownPaths
from cwdp.agent.verbs.orders import VerbsOrder, VerbsSource, VerbsWord
from cwdp.agent.verbs.queuepairs import address_gid
from cwdp.agent.verbs.routes import table
from cwdp.shared.bus.messages import Spread
from tools.bench.figures import Figure, figure
from tools.shim.client import FakeShim

QUEUE_PAIRS = 1_000
PROGRAMS = (1, 8)
RUNS = 100
TARGET_MS = 50.0
PORTS = (50_001, 50_002)
THERE = "10.0.1.1"
ROUTES = 4_096
WITHIN_S = 10.0

SOURCE = VerbsSource("nic0", "mlx5_0", 1, 3, "::ffff:10.0.0.1")
ORDER = VerbsOrder(
    sources=[SOURCE],
    spreads=[Spread(nic="nic0", dst_addr=THERE, sports=list(PORTS))],
    moved=["nic0"],
)


def figures() -> Iterator[Figure]:
    """Milliseconds for each number of programs, and the processor time of a table."""
    for programs in PROGRAMS:
        told_ms, read_ms, cpu_ms = _moves(programs)
        found = {
            "programs": programs,
            "runs": len(told_ms),
            "p50_ms": round(float(np.median(told_ms)), 3),
            "longest_ms": round(max(told_ms), 3),
            "until_read_p50_ms": round(float(np.median(read_ms)), 3),
            "until_read_p99_ms": round(float(np.percentile(read_ms, 99)), 3),
            "processor_ms_each": round(cpu_ms, 3),
        }
        p99_ms = float(np.percentile(told_ms, 99))
        yield figure(f"verbs_ordered_{programs}", p99_ms, "ms", found, TARGET_MS)
    first_ms, again_ms = _table_ms()
    reference = {"routes": ROUTES, "first_ms": round(first_ms, 1)}
    yield figure("verbs_table", again_ms, "ms", reference, None)


@dataclass(frozen=True)
class _Served:
    """The process, and what it is spoken to by."""

    process: "subprocess.Popen[bytes]"
    path: Path
    watcher: socket.socket


@contextlib.contextmanager
def _served() -> Iterator[_Served]:
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        path = Path(folder) / "verbs.sock"
        listener = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
        listener.bind(str(path))
        listener.listen(64)
        watcher, paths = (
            stack.enter_context(each) for each in socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        )
        inherited = listener.fileno(), paths.fileno()
        command = [sys.executable, "-m", "cwdp.agent.verbs.process", *map(str, inherited)]
        process = stack.enter_context(
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, pass_fds=inherited)
        )
        assert process.stdin is not None
        process.stdin.write(msgspec.json.encode(ORDER) + b"\n")
        process.stdin.flush()
        try:
            yield _Served(process, path, watcher)
        finally:
            process.stdin.close()
            process.wait(WITHIN_S)


def _moves(programs: int) -> tuple[list[float], list[float], float]:
    """How long each failure took until all was sent, until it was read, and the processor time of each; in ms."""
    with _served() as served, contextlib.ExitStack() as stack:
        shims = [FakeShim(served.path) for _ in range(programs)]
        for shim in shims:
            stack.callback(shim.close)
        for qpn in range(QUEUE_PAIRS):
            shims[qpn % programs].connect_qp(qpn, address_gid(THERE), PORTS[0])
        _until(served, "queue_pairs", QUEUE_PAIRS)
        began_s = _processor_s(served.process.pid)
        told_ms, read_ms = [], []
        for run in range(RUNS):
            done = (run + 1) * QUEUE_PAIRS
            read_ms.append(_fail(served, shims, PORTS[run % 2]))
            told_ms.append(_until(served, "moves_done", done).counters["verbs_failure_us"] / 1e3)
        cpu_s = _processor_s(served.process.pid) - began_s
    return told_ms, read_ms, 1e3 * cpu_s / RUNS


def _fail(served: _Served, shims: list[FakeShim], sport: int) -> float:
    """Let a path fall silent that all take, and answer; how long it lasts until all have read it, in ms."""
    began_ns = time.monotonic_ns()
    served.watcher.send(msgspec.json.encode(DownPaths("nic0", [(THERE, sport)], began_ns)))
    while sum(len(shim.orders) for shim in shims) < QUEUE_PAIRS:
        if not select.select([shim.sock for shim in shims], [], [], WITHIN_S)[0]:
            raise TimeoutError(f"nobody was told anything for {WITHIN_S:g} s")
        for shim in shims:
            shim.read()
    lasted_ns = time.monotonic_ns() - began_ns
    for shim in shims:
        for order in shim.take_orders():
            shim.answer(order)
    return lasted_ns / 1e6


def _until(served: _Served, name: str, value: int) -> VerbsWord:
    """The first word of the process by which one of its numbers is this."""
    assert served.process.stdout is not None
    for line in served.process.stdout:
        word = msgspec.json.decode(line, type=VerbsWord)
        if word.counters[f"verbs_{name}"] == value:
            return word
    raise EOFError("the process has ended")


def _processor_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(int(field) for field in fields[11:13]) / os.sysconf("SC_CLK_TCK")


def _table_ms() -> tuple[float, float]:
    """Processor time of a table in ms: the first time, and again as when a path has changed."""
    spreads = [
        Spread(
            nic="nic0",
            dst_addr=f"10.{1 + i // 250}.{i % 250}.1",
            sports=[50_000 + (i + k) % 9_000 for k in range(16)],
        )
        for i in range(ROUTES)
    ]
    order = msgspec.structs.replace(ORDER, spreads=spreads)
    took_ms = []
    for down in ({}, {"nic0": [(spreads[0].dst_addr, spreads[0].sports[0])]}):
        began_s = time.thread_time()
        table(order, down, 1)
        took_ms.append(1e3 * (time.thread_time() - began_s))
    return took_ms[0], took_ms[1]
