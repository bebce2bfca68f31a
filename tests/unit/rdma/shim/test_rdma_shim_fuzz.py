"""Messages of a mad agent: a program goes on as it was, and what the shim answers is as it should be.

A million in each test run, always the same; `make fuzz-shim` sends twenty million, from a seed that is printed.
"""

import logging
import os
import secrets
import select
import socket
from collections import Counter
from contextlib import suppress
from random import Random

import pytest
from shim_programs import TABLE, labels

from cwdp.rdma import shimwire
from cwdp.rdma.shimwire import How, Kind, QpPath
from tools.shim import Built, FakeAgent, Program, build
from tools.shim.program import GID, RTS

MESSAGES_VARIABLE = "CWDP_FUZZ_MESSAGES"
"""In the environment: how many messages, beginning with a seed of chance, instead of the same each time."""

MESSAGES = 1_000_000
MESSAGES_BY_ASAN = 50_000
DIFFERENT = 4096
"""Messages that are made at a time; the same go round."""

ROUNDS = 8
"""Of messages before others are made."""

PAIRS = 64
TABLES_AT_ONCE = 16
NEVER_NS = 1 << 62
LAST = 0x5EED_5EED
"""The number of the last order, which is none of those made at random."""

log = logging.getLogger(__name__)


def number(random: Random, bits: int) -> int:
    return random.choice([0, 1, (1 << bits) - 1, 1 << (bits - 1), random.getrandbits(bits)])


def order(random: Random, qpns: list[int]) -> bytes:
    """One that could be right but for some of its fields."""
    device = random.choice(["mlx5_0", "mlx5_0", "mlx5_0", "fake_0", "", "x" * 64])
    qpn = random.choice(qpns) if random.random() < 0.8 else number(random, 32)
    sport = random.randrange(0xC000, 0x10000) if random.random() < 0.8 else number(random, 32)
    deadline_ns = NEVER_NS if random.random() < 0.8 else number(random, 64)
    return shimwire.MOVE.pack(
        shimwire.MAGIC, Kind.MOVE, device.encode(), qpn, number(random, 32), number(random, 64), deadline_ns,
        sport, random.choice([0, 1, 2, number(random, 32)]), random.choice([*How, number(random, 32)]),
    )  # fmt: skip


def mutated(random: Random, qpns: list[int]) -> bytes:
    """An order with bytes changed, cut or added, or another kind; or anything. Never empty, which would be an end."""
    data = bytearray(order(random, qpns))
    how = random.randrange(6)
    if how == 0:
        for _ in range(random.randrange(1, 6)):
            data[random.randrange(len(data))] ^= 1 << random.randrange(8)
    elif how == 1:
        data = data[: random.randrange(1, len(data))]
    elif how == 2:
        data += random.randbytes(random.choice([1, 16, 200, 5000]))
    elif how == 3:
        data[4:8] = number(random, 32).to_bytes(4, "little")
    elif how == 4:
        data = bytearray(random.randbytes(random.randrange(1, 200)))
    return bytes(data)


def mutated_table(random: Random) -> int:
    """A descriptor of a table with bytes changed or missing."""
    data = bytearray(TABLE)
    for _ in range(random.randrange(4)):
        data[random.randrange(random.choice([24, len(data)]))] = random.randrange(256)
    if random.random() < 0.3:
        data = data[: random.randrange(len(data))]
    if random.random() < 0.9:
        return shimwire.sealed(bytes(data))
    fd = os.memfd_create("open", os.MFD_CLOEXEC)
    os.write(fd, data)
    return fd


def send_all(connection: socket.socket, messages: list[bytes], answers: Counter[int]) -> None:
    """All of these, whatever the shim answers meanwhile."""
    connection.setblocking(False)
    for message in messages:
        while True:
            try:
                connection.send(message)
                break
            except BlockingIOError:
                select.select([connection], [connection], [])
                take_in(connection, answers)
    connection.setblocking(True)


def take_in(connection: socket.socket, answers: Counter[int]) -> None:
    """Answers name a queue pair as the order did, whatever that was."""
    with suppress(BlockingIOError):
        while True:
            data = connection.recv(4096)
            magic, kind, *_, error, actuator = shimwire.MOVED.unpack(data)
            assert (magic, kind) == (shimwire.MAGIC, Kind.MOVED)
            assert actuator < len(shimwire.ACTUATORS)
            answers[error] += 1


def take_in_all(connection: socket.socket, answers: Counter[int]) -> None:
    """Until it has answered all that it was sent: what follows that is answered last."""
    send_all(connection, [shimwire.move("", 0, LAST, 0, 0, with_sqd=False)], answers)
    number = None
    while number != LAST:
        *_, number, _, error, _ = shimwire.MOVED.unpack(connection.recv(4096))
        answers[error] += 1


@pytest.mark.timeout(900)
def test_messages(built: Built, agent: FakeAgent, request: pytest.FixtureRequest) -> None:
    wanted = os.environ.get(MESSAGES_VARIABLE)
    fuzz(built, agent, int(wanted or MESSAGES), secrets.randbits(32) if wanted else 1)


@pytest.mark.timeout(900)
def test_messages_by_asan(tmp_path_factory: pytest.TempPathFactory, built: Built, agent: FakeAgent) -> None:
    sanitized = build(tmp_path_factory.mktemp("fuzz"), "address,undefined")
    fuzz(sanitized, agent, MESSAGES_BY_ASAN, 2, preload=False)


def fuzz(built: Built, agent: FakeAgent, count: int, seed: int, *, preload: bool = True) -> None:
    log.info("%d messages from seed %d", count, seed)
    random = Random(seed)
    environment = {"CWDP_VERBS": str(agent.path)} | ({"LD_PRELOAD": str(built.shim)} if preload else {})
    with Program(built.linked, built, environment) as program:
        program.do("load libmlx5.so.1")
        program.do("quiet")
        program.tell("open mlx5_0")
        peer = agent.accept()
        peer.give(TABLE)
        program.answer()
        assert program.do(f"many {PAIRS} 0 {GID.hex()}")[0] == PAIRS
        qpns = [message.qpn for message in peer.hear_all() if isinstance(message, QpPath)]
        answers: Counter[int] = Counter()
        sent = 0
        while sent < count:
            messages = [mutated(random, qpns) for _ in range(DIFFERENT)]
            for _ in range(ROUNDS):
                send_all(peer.connection, messages[: count - sent], answers)
                sent += len(messages[: count - sent])
                take_in_all(peer.connection, answers)
                for _ in range(TABLES_AT_ONCE):
                    fd = mutated_table(random)
                    peer.give_fd(fd)
                    os.close(fd)
                assert program.do(f"query {random.randrange(PAIRS)}")[:3] == [0, RTS, RTS]
        peer.give(TABLE)
        take_in_all(peer.connection, answers)
        assert len(answers) > 3
        assert answers[0] > count // 100
        place, _ = program.connect()
        assert program.do(f"destroy {place}")[0] == 0
        assert program.do(f"destroy-many 0 {PAIRS}")[0] == PAIRS
        assert labels(program) == []
        assert program.end() == (0, "")
