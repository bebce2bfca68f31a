"""What programs feel of the shim where its agent is not there, dead, stopped or mad, and where they do odd things: nothing."""

import fcntl
import os
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random

import numpy as np
import pytest
from shim_programs import HERE, LABEL, SOURCES, TABLE, Start, labels

from cwdp.rdma import shimwire
from cwdp.rdma.shimwire import GONE, Hello, Kind, QpPath, QpState, Route
from tools.shim import Built, FakeAgent, Program
from tools.shim.agent import Peer
from tools.shim.program import ERR, GID

ROOT = Path(__file__).resolve().parents[4]
SOON_S = 5.0
"""Calls come back within that, also on a busy machine; an agent that is waited for would take longer."""


@pytest.fixture
def shimmed(built: Built, agent: FakeAgent) -> Iterator[Program]:
    """A program with the shim whose agent listens and has not answered."""
    with Program(
        built.linked, built, {"LD_PRELOAD": str(built.shim), "CWDP_VERBS": str(agent.path)}
    ) as program:
        yield program


def threads(program: Program) -> list[Path]:
    return list(Path(f"/proc/{program.pid}/task").iterdir())


def descriptors(program: Program) -> int:
    return len(list(Path(f"/proc/{program.pid}/fd").iterdir()))


def processor_ticks(program: Program) -> int:
    """Time on processors, in hundredths of a second."""
    return sum(int(field) for field in Path(f"/proc/{program.pid}/stat").read_text().split()[13:15])


def resident_bytes(program: Program) -> int:
    return int(Path(f"/proc/{program.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_switched_off_it_does_nothing(built: Built) -> None:
    with Program(built.linked, built, {"LD_PRELOAD": str(built.shim), "CWDP_VERBS": "off"}) as program:
        program.do("open fake_0")
        place, _ = program.connect()
        assert labels(program) == [0]
        assert len(threads(program)) == 1
        program.do(f"destroy {place}")
        assert program.do("fork create 0 rc")[0] == 1
        assert program.answer() == ["fork", "0", "0"]
        assert program.end() == (0, "")


def test_before_a_device_is_opened_there_is_no_thread(built: Built) -> None:
    with Program(built.linked, built, {"LD_PRELOAD": str(built.shim)}) as program:
        program.do("sleep 1")
        assert len(threads(program)) == 1
        program.do("open fake_0")
        assert len(threads(program)) == 2


def test_an_agent_that_comes_later_is_found(shimmed: Program, agent: FakeAgent) -> None:
    agent.close()
    shimmed.do("open fake_0")
    shimmed.connect()
    assert labels(shimmed) == [0]
    with FakeAgent(agent.path) as later:
        peer = later.accept()
        assert isinstance(peer.hear(), QpPath)
        peer.give(TABLE)
        peer.settle()
        shimmed.connect()
        assert labels(shimmed) == [LABEL]


def test_an_agent_that_never_answers_is_waited_for_once_and_shortly(
    shimmed: Program, agent: FakeAgent
) -> None:
    before = time.monotonic()
    shimmed.do("open fake_0")
    for _ in range(50):
        shimmed.connect()
    assert time.monotonic() - before < SOON_S
    assert set(labels(shimmed)) == {0}


def test_a_table_outlives_its_agent(start: Start, agent: FakeAgent) -> None:
    program, _ = start()
    agent.close()
    program.do("sleep 50")
    program.connect()
    assert labels(program) == [LABEL]


AGENT = """
import sys, time
from pathlib import Path
sys.path[:0] = [{root!r}, {here!r}]
from shim_programs import TABLE
from tools.shim import FakeAgent
with FakeAgent(Path({path!r})) as agent:
    print("listening", flush=True)
    peer = agent.accept()
    peer.give(TABLE)
    peer.settle()
    print("given", flush=True)
    while peer.hear(60) is not None:
        pass
"""


def test_a_stopped_and_a_killed_agent_are_not_waited_for(built: Built, tmp_path: Path) -> None:
    path = str(tmp_path / "b")
    code = AGENT.format(root=str(ROOT), here=str(Path(__file__).parent), path=path)
    with (
        subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as agent,
        Program(built.linked, built, {"LD_PRELOAD": str(built.shim), "CWDP_VERBS": path}) as program,
    ):
        try:
            assert agent.stdout is not None
            assert agent.stdout.readline() == "listening\n"
            program.tell("open fake_0")
            assert agent.stdout.readline() == "given\n"
            program.answer()
            agent.send_signal(signal.SIGSTOP)
            before = time.monotonic()
            assert program.do(f"many 3000 0 {GID.hex()}")[0] == 3000
            assert program.do("destroy-many 0 3000")[0] == 3000
            assert time.monotonic() - before < SOON_S
        finally:
            agent.kill()
        program.do("quiet")
        assert program.do(f"many 100 0 {GID.hex()}")[0] == 100
        assert program.end() == (0, "")


def test_a_full_socket_takes_neither_time_nor_memory_for_good(start: Start) -> None:
    program, peer = start()
    program.do("quiet")
    assert program.do(f"many 10000 0 {GID.hex()}")[0] == 10000
    before, bytes_before = time.monotonic(), resident_bytes(program)
    for turn in range(1, 6):
        assert program.do(f"many 10000 0 {GID.hex()}")[0] == 10000
        assert program.do(f"destroy-many {10000 * turn} 10000")[0] == 10000
    assert time.monotonic() - before < 6 * SOON_S
    assert resident_bytes(program) < 2 * bytes_before
    alive: set[int] = set()
    for message in peer.hear_all():
        assert isinstance(message, QpPath | QpState)
        if message.state == GONE:
            alive.discard(message.qpn)
        else:
            alive.add(message.qpn)
    assert len(alive) == 10000
    assert program.do("destroy-many 0 10000")[0] == 10000
    assert {message.state for message in peer.hear_all() if isinstance(message, QpState)} == {GONE}


def test_garbage_is_passed_over(start: Start) -> None:
    program, peer = start()
    random = Random(1)
    whole = shimwire.move("fake_0", 256, 1, 1 << 62, 0xC111, with_sqd=True)
    for message in [
        b"x", whole[:-1], whole + b"x", whole[:40], random.randbytes(104), random.randbytes(4096),
        shimwire.head(Kind.TABLE), shimwire.head(Kind.HELLO), shimwire.head(Kind.MOVED) + bytes(24),
        *(shimwire.HEAD.pack(shimwire.MAGIC, kind, b"\xff" * 64, 256, 3) for kind in (0, 5, 77)),
    ]:  # fmt: skip
        peer.send(message)
    program.connect()
    peer.settle()
    assert labels(program) == [LABEL]
    assert not any(isinstance(message, Hello) for message in peer.hear_all()[1:])


def sealed(data: bytes, seals: int = shimwire.SEALS) -> int:
    fd = os.memfd_create("test", os.MFD_ALLOW_SEALING)
    os.write(fd, data)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seals)
    return fd


def changed(offset: int, value: int) -> bytes:
    return TABLE[:offset] + struct.pack("=I", value) + TABLE[offset + 4 :]


@pytest.mark.parametrize(
    "fd",
    [
        lambda: sealed(TABLE, 0),
        lambda: sealed(TABLE, shimwire.SEALS & ~fcntl.F_SEAL_WRITE),
        lambda: sealed(TABLE, shimwire.SEALS & ~fcntl.F_SEAL_SHRINK),
        lambda: sealed(b""),
        lambda: sealed(TABLE[:20]),
        lambda: sealed(TABLE[:-1]),
        lambda: sealed(changed(0, 1)),
        lambda: sealed(changed(4, 2)),
        lambda: sealed(changed(16, 0xFFFFFFFF)),
        lambda: sealed(changed(16, 5000)),
        lambda: sealed(changed(20, 3)),
        lambda: sealed(changed(20, 0xFFFFFFFF)),
        lambda: os.open("/dev/zero", os.O_RDONLY),
        lambda: os.open("/etc/passwd", os.O_RDONLY),
        lambda: os.pipe()[0],
    ],
    ids=range(15),
)
def test_tables_that_are_none_are_not_taken(start: Start, fd: object) -> None:
    assert callable(fd)
    program, peer = start()
    before = descriptors(program)
    given = fd()
    peer.give_fd(given)
    os.close(given)
    peer.settle()
    program.connect()
    assert labels(program) == [LABEL]
    assert descriptors(program) == before


def test_lying_tables_do_no_harm(start: Start) -> None:
    """Every word of routes at random: whatever is found is a label, or nothing."""
    program, peer = start()
    random = Random(2)
    route = Route(HERE, GID, ((0xC123, 1.0), (0xC124, 1.0)))
    for number in range(60):
        table = bytearray(shimwire.pack(number, SOURCES, [route]))
        for place in range(len(table) - 2 * shimwire.ROUTE.itemsize, len(table)):
            if random.random() < 0.2:
                table[place] = random.randrange(256)
        peer.give(bytes(table))
        peer.settle()
        program.connect()
        assert 0 <= labels(program)[0] < 1 << 20


def test_a_table_full_of_others_is_not_searched_for_long(start: Start) -> None:
    head = changed(20, 16)[: shimwire.TABLE.itemsize + len(SOURCES) * shimwire.SOURCE.itemsize]
    full = np.zeros(1 << 16, shimwire.ROUTE)
    full["used"] = 1
    program, _ = start(head + full.tobytes())
    program.do("quiet")
    before = time.monotonic()
    assert program.do(f"many 2000 0 {GID.hex()}")[0] == 2000
    assert time.monotonic() - before < SOON_S


def test_descriptors_that_come_along_are_closed(start: Start) -> None:
    program, peer = start()
    before = descriptors(program)
    with socket.socket() as one, socket.socket() as other:
        for _ in range(20):
            socket.send_fds(peer.connection, [shimwire.head(Kind.TABLE)], [one.fileno(), other.fileno()])
            socket.send_fds(peer.connection, [b"x"], [one.fileno()])
            socket.send_fds(peer.connection, [shimwire.head(Kind.MOVE)], [one.fileno()] * 5)
        peer.settle()
    assert descriptors(program) == before


def test_a_child_and_its_parent_go_on_each_with_its_own(start: Start, agent: FakeAgent) -> None:
    program, peer = start()
    _, parents_qpn = program.connect()
    peer.hear_all()
    program.tell(
        "fork open fake_1;sleep 300;create 1 rc;modify 1 1;modify 1 2 path=" + GID.hex() + ";calls;sleep 300"
    )
    child = agent.accept()
    child.give(TABLE)
    child.settle()
    told = child.hear_all(1.0)
    assert {message.device for message in told if isinstance(message, QpPath)} == {"fake_1"}
    assert {message.flow_label for message in told if isinstance(message, QpPath)} == {LABEL}
    said = [program.answer() for _ in range(8)]
    assert said[-1] == ["fork", "0", "0"]
    assert peer.hear_all(0.2) == []
    assert peer.move("fake_0", parents_qpn, 0xC111, with_sqd=True).error == 0
    program.connect()
    assert LABEL in labels(program)


def test_a_child_that_does_nothing_leaves_its_parents_agent_alone(start: Start) -> None:
    program, peer = start()
    program.connect()
    peer.hear_all()
    assert program.do("fork sleep 1")[0] == 0
    assert program.answer() == ["fork", "0", "0"]
    assert peer.hear_all(0.2) == []
    peer.settle()


def test_a_destroy_that_waits_for_the_program_does_not_hold_its_other_calls(start: Start) -> None:
    """As where a thread has to acknowledge events of a queue pair before it ends, and first changes its state."""
    program, _ = start()
    place, _ = program.connect()
    program.do("block 1")
    program.tell(f"thread destroy {place}")
    program.do("sleep 200")
    assert program.do(f"modify {place} {ERR}")[0] == 0
    program.tell("block 0")
    program.tell("join")
    assert sorted(program.answer()[0] for _ in range(3)) == ["block", "destroy", "join"]


def test_signals_are_the_programs(start: Start) -> None:
    program, _ = start()
    assert len(threads(program)) == 2
    blocked = {
        thread.name: next(
            line.split()[1]
            for line in (thread / "status").read_text().splitlines()
            if line.startswith("SigBlk")
        )
        for thread in threads(program)
    }
    ours = next(name for name in blocked if name != str(program.pid))
    assert int(blocked[str(program.pid)], 16) == 0
    assert int(blocked[ours], 16) | 0x1_8000_0000 | 1 << 8 | 1 << 18 == (1 << 64) - 1
    for _ in range(20):
        program.signal(signal.SIGUSR1)
        program.do("sleep 1")
    assert program.do("signals")[0] == 20


def test_all_this_without_a_word(start: Start, agent: FakeAgent) -> None:
    program, peer = start()
    program.connect()
    program.do("refuse 1")
    program.connect()
    peer.send(b"garbage")
    peer.close()
    agent.close()
    program.do("sleep 300")
    assert program.end() == (0, "")


def test_threads_are_not_cancelled_in_it(shimmed: Program, agent: FakeAgent, start: Start) -> None:
    assert shimmed.do(f"cancelled {GID.hex()}")[0] == 1
    agent.accept()
    program, _ = start()
    for _ in range(20):
        assert program.do(f"cancelled {GID.hex()}")[0] == 1


def stays(peer: Peer) -> bool:
    """Whether a program keeps to its connection: it may have made that amidst the closing."""
    try:
        peer.settle()
    except (TimeoutError, ConnectionError):
        return False
    return True


def test_descriptors_that_the_program_closes_are_not_missed(start: Start, agent: FakeAgent) -> None:
    program, _ = start()
    program.do("closefrom 3")
    program.connect()
    assert any(stays(agent.accept()) for _ in range(5))
    before = processor_ticks(program)
    program.do("sleep 500")
    assert processor_ticks(program) - before < 10
    program.connect()
    assert labels(program) == [LABEL] * 2


@pytest.mark.parametrize("agent_is", ["there", "absent"])
def test_a_process_ends_with_its_own_threads(built: Built, agent: FakeAgent, agent_is: str) -> None:
    path = agent.path if agent_is == "there" else agent.path.with_name("nobody")
    with Program(built.linked, built, {"LD_PRELOAD": str(built.shim), "CWDP_VERBS": str(path)}) as program:
        program.do("open fake_0")
        program.tell("thread sleep 500")
        program.tell("leave")
        assert program.answer() == ["sleep", "0", "77"]
        assert program.end() == (0, "")


def test_it_ends_amidst_moves(start: Start) -> None:
    program, peer = start()
    _, qpn = program.connect()
    program.do("drain 1000000")
    for _ in range(20):
        peer.order("fake_0", qpn, 0xC111, with_sqd=True, deadline_s=60)
    program.do("sleep 50")
    assert program.end() == (0, "")


def test_what_came_and_went_untold_is_counted(shimmed: Program, agent: FakeAgent) -> None:
    agent.close()
    shimmed.do("open fake_0")
    places = [shimmed.connect()[0] for _ in range(4)]
    for place in places[:3]:
        shimmed.do(f"destroy {place}")
    with FakeAgent(agent.path) as later:
        peer: Peer = later.accept()
        assert next(hello for hello in peer.heard if isinstance(hello, Hello)).untold == 3
