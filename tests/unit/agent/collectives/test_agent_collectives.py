"""Programs that play NCCL, and such that lie, read by the agent's process; and what the agent says of them."""

import asyncio
import fcntl
import os
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import need
import numpy as np
import pytest

from cwdp.agent.collectives import programs as module
from cwdp.agent.collectives.keeper import HostCollectives, NcclConfig
from cwdp.agent.collectives.orders import COUNTERS, NcclWord
from cwdp.agent.collectives.process import Reading
from cwdp.agent.programs.listening import listen
from cwdp.nccl import calls, ring
from cwdp.shared.bus.collectives import CALL_ROW, CHUNK_ROW, OVER, PEER_ROW, CollectiveReport, Communicator
from cwdp.shared.bus.packing import row_bytes, rows_of
from tools.nccl import Built, Player, build

WAIT_S = 20.0
HELLO = ring.HELLO.pack(ring.MAGIC, ring.VERSION)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    need.installed("gcc")
    return build(tmp_path_factory.mktemp("nccl"))


@pytest.fixture(autouse=True)
def soon_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "SETTLE_NS", 0)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "nccl.sock"


@pytest.fixture
def reading(path: Path) -> Iterator[Reading]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listen(listener, path)
        made = Reading(listener)
        yield made
        made.programs.close()


def until(reading: Reading, is_so: Callable[[NcclWord], object]) -> NcclWord:
    end = time.monotonic() + WAIT_S
    while time.monotonic() < end:
        reading.turn()
        word = reading.word()
        if is_so(word):
            return word
        time.sleep(0.01)
    raise TimeoutError(str(word))


def connect(path: Path) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    connection.connect(str(path))
    return connection


def counted(reading: Reading, name: str) -> Callable[[NcclWord], bool]:
    return lambda word: word.counters[name] > 0


def test_a_call_is_told_with_its_communicator(built: Built, reading: Reading, path: Path) -> None:
    with Player(built, 6, path, SLURM_JOB_ID="4711") as player:
        assert player.do("init 17") == 30
        assert player.do("play 1 2 3 5") == 0
        word = until(reading, lambda word: word.comms)
    assert word.comms == [
        Communicator(id=17, name="played", rank=3, ranks=8, nodes=2, pid=player.pid, job="slurm:4711")
    ]
    (call,) = rows_of(word.calls, CALL_ROW)
    assert (call["comm"], call["seq"], call["bytes"], call["flags"]) == (0, 5, 4000, OVER)
    assert (call["ops"], call["open_ops"], call["chunks"]) == (2, 0, 6)
    assert call["enqueued_ns"] <= call["start_ns"] <= call["end_ns"] <= time.monotonic_ns()
    peers = rows_of(word.peers, PEER_ROW)
    assert sorted(peers[["peer", "is_send", "chunks"]].tolist()) == [(1, 0, 3), (1, 1, 3)]
    chunks = rows_of(word.chunks, CHUNK_ROW)
    sent = chunks[chunks["is_send"] != 0]
    assert (len(chunks), len(sent)) == (6, 3)
    assert sent[["qpn", "wr_id", "posts"]].tolist() == [(17, 3, 2)] * 3
    assert set(word.counters) == {*COUNTERS, "programs", "calls_open", "read_us"}


def test_what_a_program_did_is_told_after_its_end(built: Built, reading: Reading, path: Path) -> None:
    with Player(built, 6, path) as player:
        player.do("init 17")
        player.do("play 3 1 1 0")
        until(reading, lambda word: word.counters["programs"])
        player.do("play 2 1 1 3")
    until(reading, lambda word: word.counters["calls_over"] == 5 and not word.counters["programs"])
    until(reading, lambda _: reading.programs.of(1) is None)


def test_what_came_to_nothing_in_the_plugin_is_told(built: Built, reading: Reading, path: Path) -> None:
    with Player(built, 6, path) as player:
        player.do("init 17")
        player.do(f"play {ring.RECORDS + 7} 0 0 0")
        word = until(reading, counted(reading, "plugin_records_dropped"))
        assert word.counters["plugin_records_dropped"] == 7


@pytest.mark.parametrize("words", [b"x", HELLO, HELLO * 9], ids=["garbage", "without a ring", "long"])
def test_who_sends_what_no_plugin_sends_is_cut_off(reading: Reading, path: Path, words: bytes) -> None:
    with connect(path) as liar:
        liar.send(words)
        until(reading, counted(reading, "programs_garbage"))
        assert liar.recv(1) == b""


def test_who_says_more_than_a_plugin_is_cut_off(built: Built, reading: Reading, path: Path) -> None:
    with connect(path) as liar, Player(built, 6, path) as player:
        player.do("init 1")
        fd = os.open(f"/proc/{player.pid}/fd/{_memory_of(player.pid)}", os.O_RDWR)
        socket.send_fds(liar, [HELLO], [fd])
        os.close(fd)
        until(reading, lambda word: word.counters["programs"] == 2)
        liar.send(b"more")
        until(reading, counted(reading, "programs_garbage"))


def test_who_says_nothing_is_let_go(reading: Reading, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "GREETING_S", 0.0)
    with connect(path):
        until(reading, counted(reading, "programs_mute"))


def test_too_many_of_a_user(reading: Reading, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_OF_A_USER", 2)
    connections = [connect(path) for _ in range(3)]
    until(reading, counted(reading, "programs_refused"))
    for each in connections:
        each.close()
    until(reading, lambda word: word.counters["programs"] == 0)


def test_a_ring_full_of_lies(reading: Reading, path: Path) -> None:
    memory = bytearray(ring.BYTES)
    ring.HEADER.pack_into(memory, 0, ring.MAGIC, ring.VERSION, ring.COMMS, ring.RECORDS, -5, 0, b"\xff" * 64)
    records = np.frombuffer(
        np.random.default_rng(3).bytes(ring.RECORDS * ring.RECORD.itemsize), ring.RECORD
    ).copy()
    records["place"] = np.arange(1, ring.RECORDS + 1)
    memory[ring.RECORDS_AT :] = records.tobytes()
    memory[ring.HEAD_AT : ring.HEAD_AT + 8] = b"\xff" * 8
    memory[ring.COUNTS_AT : ring.COUNTS_AT + 32] = b"\xff" * 32
    fd = os.memfd_create("lies", os.MFD_ALLOW_SEALING)
    os.write(fd, memory)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, ring.SEALS)
    with connect(path) as liar:
        socket.send_fds(liar, [HELLO], [fd])
        os.close(fd)
        word = until(reading, lambda word: word.counters["records_not_sane"] == ring.RECORDS)
    assert word.counters["plugin_records_dropped"] == module.MOST_COUNTED


class Config(msgspec.Struct):
    host: str = "h1"
    nccl: NcclConfig | None = None


def test_the_agent_says_it_on_the_timeline(tmp_path: Path) -> None:
    offset: list[int | None] = [None]
    there = HostCollectives(
        Config(nccl=NcclConfig(socket=str(tmp_path / "s"))), time.monotonic_ns, lambda: offset[0]
    )
    assert there.keeper is not None
    rows, chunks = np.zeros(1, CALL_ROW), np.zeros(1, CHUNK_ROW)
    rows["start_ns"], rows["end_ns"], chunks["begin_ns"] = 100, 200, 150
    word = NcclWord(
        counters={"calls_over": 1, "programs": 1},
        comms=[Communicator(id=2**64 - 1, name="", rank=0, ranks=2, nodes=1, pid=1)],
        calls=row_bytes(rows), chunks=row_bytes(chunks),
    )  # fmt: skip
    told: list[tuple[str, CollectiveReport]] = []
    line = msgspec.json.encode(word)
    assert there.keeper._hear(line) == {"nccl_calls_over": 1}
    there.tell(lambda kind, report: told.append((kind, report)))
    assert told == []
    assert there.counters["nccl_unsynced"] == 1
    offset[0] = 10**12
    there.keeper._hear(line)
    there.tell(lambda kind, report: told.append((kind, report)))
    ((kind, report),) = told
    assert kind == "collective"
    (call,), (chunk,) = rows_of(report.calls, CALL_ROW), rows_of(report.chunks, CHUNK_ROW)
    assert call["enqueued_ns"] == 0
    assert abs(int(call["start_ns"]) - 10**12 - 100) < 10**9
    assert call["end_ns"] - call["start_ns"] == 100
    assert chunk["begin_ns"] - call["start_ns"] == 50
    there.keeper.close()


def test_nothing_where_it_is_not_configured() -> None:
    there = HostCollectives(Config(), time.monotonic_ns, lambda: 0)
    there.tell(lambda *_: pytest.fail("there is nothing to say"))
    assert (there.jobs(), dict(there.counters)) == ([], {})


def test_words_that_nobody_takes_are_counted(tmp_path: Path) -> None:
    there = HostCollectives(Config(nccl=NcclConfig(socket=str(tmp_path / "s"))), time.monotonic_ns, lambda: 0)
    assert there.keeper is not None
    word = NcclWord(counters={}, comms=[Communicator(id=1, name="", rank=0, ranks=2, nodes=1, pid=1)])
    for _ in range(66):
        there.keeper._hear(msgspec.json.encode(word))
    assert there.counters["nccl_words_dropped"] == 2
    there.keeper.close()


def _memory_of(pid: int) -> str:
    return next(fd.name for fd in Path(f"/proc/{pid}/fd").iterdir() if "cwdp-nccl" in str(fd.readlink()))


async def until_so(condition: Callable[[], object]) -> None:
    end_s = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < end_s, "it did not come to that"
        await asyncio.sleep(0.05)


def test_from_a_program_to_the_agent(built: Built, path: Path) -> None:
    there = HostCollectives(Config(nccl=NcclConfig(socket=str(path))), time.monotonic_ns, lambda: 0)

    async def heard() -> CollectiveReport:
        (job,) = there.jobs()
        running = asyncio.ensure_future(job)
        await until_so(path.exists)
        try:
            with Player(built, 6, path) as player:
                await until_so(lambda: player.do("init 17") == 30)
                player.do("play 1 2 3 5")
                said: list[CollectiveReport] = []
                await until_so(lambda: said.extend(there.reports()) or said)
                return said[0]
        finally:
            running.cancel()
            await asyncio.wait([running])

    report = asyncio.run(asyncio.wait_for(heard(), 60))
    (call,) = rows_of(report.calls, CALL_ROW)
    assert (report.host, call["seq"], call["chunks"]) == ("h1", 5, 6)
    assert there.counters["nccl_calls_over"] == 1
