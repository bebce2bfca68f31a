"""What a callback of the profiler plug-in costs, how much slower a job is with it, and what the agent's process takes.

NCCL is played: no GPU, no network. A callback is timed with the clock read before and after it, of which one reading is in its time.
Of the job NCCL's proxy thread is played: calls of chunks, eight of them under way, that a NIC sends one behind the other.
"""

import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from cwdp.agent.programs.listening import listen
from cwdp.errors import LabError
from tools.bench.figures import Figure, figure
from tools.nccl import Built, FakeAgent, Player, build

VERSIONS = (1, 4, 6)
STEPS, TURNS = 4_000, 10
CALLBACK_TARGET_NS = 100.0
JOB_CALLS, JOB_CHUNKS, JOB_TURNS = 40, 64, 25
WIRES_NS, COMPUTES_NS = (100_000, 10_000), 1_000_000
JOB_TARGET = 0.005
CHUNKS_PER_S, SECONDS, SETTLE_S = 10_000, 20, 2.0
AGENT_TARGET = 0.02
TICKS = os.sysconf("SC_CLK_TCK")


def figures() -> Iterator[Figure]:
    """Of each version a callback's p99, in ns; by how much jobs are slower; the agent's share of a processor."""
    with tempfile.TemporaryDirectory(prefix="cwdp-nccl-") as folder:
        built = build(Path(folder) / "built")
        for version in VERSIONS:
            yield _callback(built, Path(folder), version)
        for wire_ns in WIRES_NS:
            yield _job(built, Path(folder), wire_ns)
        yield _agent(built, Path(folder))


def _callback(built: Built, folder: Path, version: int) -> Figure:
    """The median over turns, of five callbacks of each step that is sent."""
    took: list[list[int]] = []
    with FakeAgent(folder / "a") as agent, Player(built, version, agent.path) as player:
        player.tell("init 1")
        ring = agent.accept()
        player.answer()
        for _ in range(TURNS):
            player.tell(f"timed {STEPS}")
            took.append([int(word) for word in player.answer()[1:]])
            ring.read()
        if ring.counts()["records_dropped"]:
            raise LabError("the ring was full", "Look at tools/nccl.")
    p50_ns, p99_ns, clock_p50_ns, clock_p99_ns = (
        sorted(each)[TURNS // 2] for each in zip(*took, strict=True)
    )
    reference = {
        "p50_ns": p50_ns,
        "clock_p50_ns": clock_p50_ns,
        "clock_p99_ns": clock_p99_ns,
        "callbacks": 5 * STEPS * TURNS,
    }
    return figure(f"nccl_callback_v{version}", p99_ns, "ns", reference, CALLBACK_TARGET_NS, digits=0)


def _job(built: Built, folder: Path, wire_ns: int) -> Figure:
    """By how much a job is slower with the plug-in, by turns without and with; the median over turns."""
    took_ns: dict[int, list[int]] = {0: [], 1: []}
    with FakeAgent(folder / "j") as agent, Player(built, max(VERSIONS), agent.path) as player:
        player.tell("init 1")
        ring = agent.accept()
        player.answer()
        for _ in range(JOB_TURNS):
            for is_told, took in took_ns.items():
                took.append(player.do(f"job {JOB_CALLS} {JOB_CHUNKS} {wire_ns} {COMPUTES_NS} {is_told}"))
                ring.read()
        if ring.counts()["records_dropped"]:
            raise LabError("the ring was full", "Look at tools/nccl.")
    slower = statistics.median(told / without - 1 for without, told in zip(*took_ns.values(), strict=True))
    reference = {
        "call_ns": round(statistics.median(took_ns[0]) / JOB_CALLS),
        "chunks": JOB_CHUNKS,
        "turns": JOB_TURNS,
    }
    name = f"nccl_job_slower_{wire_ns // 1000}us"
    return figure(name, slower, "of its time", reference, JOB_TARGET)


def _agent(built: Built, folder: Path) -> Figure:
    path = folder / "agent.sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listen(listener, path)
        command = [sys.executable, "-m", "cwdp.agent.collectives.process", str(listener.fileno())]
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, pass_fds=[listener.fileno()]
        )
        try:
            share = _share(built, path, process.pid)
        finally:
            process.communicate()
    reference = {"chunks_per_s": CHUNKS_PER_S, "seconds": SECONDS}
    return figure("nccl_agent_processor_share", share, "of a processor", reference, AGENT_TARGET)


def _share(built: Built, path: Path, pid: int) -> float:
    with Player(built, 6, path) as player:
        if not player.do("init 1"):
            raise LabError("the plug-in found no agent", "Look at cwdp/agent/collectives.")
        player.do(f"paced {CHUNKS_PER_S} {round(SETTLE_S)}")
        began_s, before = time.monotonic(), _processor_s(pid)
        player.do(f"paced {CHUNKS_PER_S} {SECONDS}")
        return (_processor_s(pid) - before) / (time.monotonic() - began_s)


def _processor_s(pid: int) -> float:
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / TICKS
