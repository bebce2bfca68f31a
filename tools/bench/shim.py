"""What the verbs shim costs a program, and how fast it moves queue pairs: below it is a libibverbs whose devices are none.

A cost is the difference of two programs that run in turns, one with the shim and one without. The agent at the other end
is this process, so its own work is in the time that moves take.
"""

import select
import socket
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cwdp.errors import LabError
from cwdp.rdma import shimwire
from cwdp.rdma.shimwire import QpPath, Route, Source
from tools.bench.figures import Figure, figure
from tools.shim import Built, FakeAgent, Program, build
from tools.shim.agent import Peer
from tools.shim.program import GID

HERE = bytes([0xFE, 0x80, *[0] * 13, 1])
SOURCES = [Source(device, 1, 3, HERE) for device in ("fake_0", "mlx5_0")]
ROUTES = 16_384
CHOICES = tuple((0xC100 + n, 1.0) for n in range(8))
CALLS, TURNS = 500, 12
MODIFY_TARGET_US = 5.0
POSTS, POST_TIMES, POST_TURNS = 1_000, 50, 40
POST_TARGET_NS = 20.0
PAIRS, MOVES = 1000, 100
MOVE_TARGET_MS = 50.0
NEVER_NS = 1 << 62
FIRST_SPORT = 0xC000


def figures() -> Iterator[Figure]:
    """Every figure of this part."""
    with tempfile.TemporaryDirectory(prefix="cwdp-shim-") as folder:
        built = build(Path(folder) / "built")
        for name, more in (("shim_modify_rtr", ""), ("shim_modify_rtr_own", "5")):
            yield modify_figure(built, Path(folder), name, more)
        yield post_figure(built, Path(folder))
        for actuator, device in (("mlx5dv", "mlx5_0"), ("sqd", "fake_0")):
            yield move_figure(built, Path(folder), actuator, device)


def modify_figure(built: Built, folder: Path, name: str, label: str) -> Figure:
    """The 50th percentile of ibv_modify_qp to RTR with the shim less that without, in us; `label`: the program's own."""
    took: dict[bool, list[int]] = {True: [], False: []}
    with ExitStack() as stack:
        agent = stack.enter_context(FakeAgent(folder / "agent"))
        programs = {
            False: stack.enter_context(Program(built.linked, built)),
            True: stack.enter_context(Program(built.linked, built, _environment(built, agent))),
        }
        programs[False].do("open fake_0")
        peer = _opened(programs[True], agent, "fake_0")
        for program in programs.values():
            program.do("quiet")
        for _ in range(TURNS):
            for with_shim, program in programs.items():
                took[with_shim] += program.do(f"time {CALLS} 0 {GID.hex()} {ROUTES} {label}")
            peer.hear_all(0.01)
    if min(took[True] + took[False]) < 0:
        raise LabError("calls of ibv_modify_qp failed", "Look at tools/shim.")
    with_us, without_us = (np.quantile(took[which], [0.5, 0.99]) / 1e3 for which in (True, False))
    reference = {
        "without_p50_us": round(float(without_us[0]), 3),
        "p99_us": round(float(with_us[1] - without_us[1]), 3),
        "calls": len(took[True]),
    }
    return figure(name, with_us[0] - without_us[0], "us", reference, MODIFY_TARGET_US, digits=3)


def post_figure(built: Built, folder: Path) -> Figure:
    """The 50th percentile of ibv_post_send of one request with the shim, which counts it, less that without, in ns."""
    took: dict[bool, list[int]] = {True: [], False: []}
    with ExitStack() as stack:
        agent = stack.enter_context(FakeAgent(folder / "agent"))
        programs = {
            False: stack.enter_context(Program(built.linked, built)),
            True: stack.enter_context(Program(built.linked, built, _environment(built, agent))),
        }
        programs[False].do("open fake_0")
        _opened(programs[True], agent, "fake_0")
        for program in programs.values():
            program.do("quiet")
            program.do(f"many {PAIRS} 0 {GID.hex()}")
        for turn in range(POST_TURNS):
            for with_shim, program in programs.items():
                took[with_shim] += program.do(f"time-post {POST_TIMES} {POSTS} {turn * 7}")
    with_ns, without_ns = (np.median(took[which]) / POSTS for which in (True, False))
    reference = {"without_p50_ns": round(float(without_ns), 1), "posts": len(took[True]) * POSTS}
    return figure("shim_post_send", with_ns - without_ns, "ns", reference, POST_TARGET_NS, digits=1)


def move_figure(built: Built, folder: Path, actuator: str, device: str) -> Figure:
    """The 99th percentile of how long it takes until all queue pairs of a path are moved, in ms."""
    with (
        FakeAgent(folder / "agent") as agent,
        Program(built.linked, built, _environment(built, agent)) as program,
    ):
        program.do("load libmlx5.so.1")
        program.do("quiet")
        peer = _opened(program, agent, device)
        program.do(f"many {PAIRS} 0 {GID.hex()}")
        qpns = {message.qpn for message in peer.hear_all() if isinstance(message, QpPath)}
        took_ms = np.array([_moved_ms(peer, device, sorted(qpns), FIRST_SPORT + n) for n in range(MOVES)])
    p50, p99 = np.quantile(took_ms, [0.5, 0.99])
    reference = {
        "p50_ms": round(float(p50), 2),
        "max_ms": round(float(took_ms.max()), 2),
        "queue_pairs": len(qpns),
    }
    return figure(f"shim_move_1000_{actuator}", p99, "ms", reference, MOVE_TARGET_MS, digits=2)


def _environment(built: Built, agent: FakeAgent) -> dict[str, str]:
    return {"LD_PRELOAD": str(built.shim), "CWDP_VERBS": str(agent.path)}


def _opened(program: Program, agent: FakeAgent, device: str) -> Peer:
    """The agent's end, when a program has the device open, and the table."""
    program.tell(f"open {device}")
    peer = agent.accept()
    gids = [GID, *(GID[:12] + n.to_bytes(4, sys.byteorder) for n in range(ROUTES - 1))]
    peer.give(shimwire.pack(1, SOURCES, [Route(HERE, gid, CHOICES) for gid in gids]))
    peer.settle()
    program.answer()
    return peer


def _moved_ms(peer: Peer, device: str, qpns: list[int], sport: int) -> float:
    """From the first order to the last answer.

    Raises:
        LabError: not all were moved.
    """
    orders = [
        shimwire.move(device, qpn, number, NEVER_NS, sport, with_sqd=True) for number, qpn in enumerate(qpns)
    ]
    answers: list[bytes] = []
    start = time.perf_counter()
    for order in orders:
        while not _sent(peer.connection, order):
            answers.append(peer.connection.recv(shimwire.MOST_BYTES))
    while len(answers) < len(orders):
        answers.append(peer.connection.recv(shimwire.MOST_BYTES))
    took_ms = 1e3 * (time.perf_counter() - start)
    errors = _errors(answers)
    if errors.any():
        raise LabError(f"{np.count_nonzero(errors)} queue pairs were not moved", "Run it again.")
    return took_ms


def _sent(connection: socket.socket, order: bytes) -> bool:
    """Whether there was room for it; else there is something to read, before long."""
    try:
        connection.send(order, socket.MSG_DONTWAIT)
    except BlockingIOError:
        readable, _, _ = select.select([connection], [connection], [])
        return not readable and _sent(connection, order)
    return True


def _errors(answers: list[bytes]) -> NDArray[np.int64]:
    return np.array([shimwire.MOVED.unpack(answer)[-2] for answer in answers], np.int64)
