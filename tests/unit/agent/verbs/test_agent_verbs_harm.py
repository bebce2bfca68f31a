"""What no program can do to the process for the verbs shim, or to other programs."""

import logging
import os
import secrets
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest
from verbs_world import DST, World

from cwdp.agent.verbs import clients, queuepairs
from cwdp.rdma import shimwire
from cwdp.rdma.shimwire import COUNTS, GONE, HEAD, HELLO, MAGIC, MOVED, QP, SENT, VERSION, How, Kind, Message
from tools.shim.client import Order

log = logging.getLogger(__name__)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    made.close()


def test_answers_that_nobody_asked_for_change_nothing(world: World) -> None:
    shim = world.shim()
    shim.connect_qp(1, DST, 50_001)
    world.run()
    shim.answer(Order("mlx5_0", 1, 77, 0, 50_003, How.AT_ONCE, 0))
    shim.answer(Order("mlx5_0", 2, 1, 0, 50_003, How.AT_ONCE, 0))
    world.run()
    assert [qp.sport for qp in world.queue_pairs()] == [50_001]
    assert world.count("moves_unasked") == 1


def test_two_programs_that_claim_one_queue_pair_are_each_told_for_themselves(world: World) -> None:
    honest, liar = world.shim(), world.shim()
    honest.connect_qp(1, DST, 50_001)
    liar.connect_qp(1, DST, 50_004)
    liar.state_qp(1, GONE)
    liar.connect_qp(1, DST, 50_004)
    world.run()
    world.down(50_001)
    assert len(honest.take_orders()) == 1
    assert liar.take_orders() == []


def test_a_program_that_does_not_read_costs_others_nothing_and_gets_the_latest_order_only(
    world: World,
) -> None:
    deaf, other = world.shim(), world.shim()
    count = 6_000
    for qpn in range(count):
        deaf.connect_qp(qpn, DST, 50_001)
        world.run()
    other.connect_qp(1, DST, 50_001)
    world.run()
    for down in ((50_001,), (50_002, 50_001), (50_003, 50_001), (50_001,)) * 3:
        world.down(*down)
    assert other.take_orders()
    received: list[Order] = []
    while orders := deaf.take_orders():
        received += orders
        world.run()
    assert len({order.qpn for order in received}) == count
    assert len(received) < 12 * count


@pytest.mark.parametrize(
    ("data", "counter"),
    [
        (b"garbage", "clients_garbage"),
        (HEAD.pack(MAGIC, Kind.MOVE, b"mlx5_0", 1, 3), "clients_garbage"),
        (HEAD.pack(MAGIC, 99, b"mlx5_0", 1, 3), "clients_garbage"),
        (b"\0" * 4_000, "clients_garbage"),
    ],
)
def test_who_sends_what_no_shim_sends_is_cut_off(world: World, data: bytes, counter: str) -> None:
    other, shim = world.shim(), world.shim()
    shim.connect_qp(1, DST, 50_001)
    shim.sock.send(data)
    world.run()
    assert shim.is_cut_off()
    assert not other.is_cut_off()
    assert world.count(counter) == 1
    assert world.count("queue_pairs") == 0


def test_a_shim_of_another_version_is_cut_off(world: World) -> None:
    shim = world.shim(greets=False)
    shim.greet(version=VERSION + 1)
    world.run()
    assert shim.is_cut_off()
    assert world.count("clients_other_version") == 1


def test_whoever_says_nothing_is_let_go(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    mute = world.shim(greets=False)
    monkeypatch.setattr(clients, "GREETING_NS", -1)
    monkeypatch.setattr("cwdp.agent.verbs.host.TIDY_NS", 0)
    world.run()
    assert mute.is_cut_off()
    assert world.count("clients_mute") == 1


def test_a_user_has_so_many_programs_at_most(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients, "MOST_OF_A_USER", 3)
    shims = [world.shim() for _ in range(5)]
    assert [shim.is_cut_off() for shim in shims] == [False] * 3 + [True] * 2
    assert world.count("clients_refused") == 2


def test_a_program_and_all_together_have_so_many_queue_pairs_at_most(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queuepairs, "MOST_OF_A_CLIENT", 10)
    monkeypatch.setattr(queuepairs, "MOST", 15)
    for _ in range(2):
        shim = world.shim()
        for qpn in range(12):
            shim.connect_qp(qpn, DST, 50_001)
        world.run()
    assert len(world.queue_pairs()) == 15
    assert world.count("queue_pairs_refused") == 9


def test_a_flood_is_not_read_for_a_while_and_nobody_else_notices(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    flooding = world.shim()
    monkeypatch.setattr(clients, "BURST", 50)
    monkeypatch.setattr(clients, "PER_S", 0)
    other = world.shim()
    for _ in range(200):
        flooding.state_qp(1, 2)
    world.run()
    assert world.count("clients_paused") == 1
    other.connect_qp(1, DST, 50_001)
    world.run()
    assert len(world.queue_pairs()) == 1
    monkeypatch.setattr(clients, "PER_S", 10**9)
    monkeypatch.setattr("cwdp.agent.verbs.host.TIDY_NS", 0)
    for qpn in range(5):
        flooding.connect_qp(qpn, DST, 50_001)
    world.run()
    assert len(world.queue_pairs()) == 6


def test_a_paused_program_that_ends_is_let_go(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients, "BURST", 5)
    monkeypatch.setattr(clients, "PER_S", 0)
    shim = world.shim()
    for _ in range(20):
        shim.state_qp(1, 2)
    world.run()
    shim.close()
    world.run()
    assert world.count("clients") == 0


def test_what_is_said_of_paths_is_checked_and_forgotten_after_silence(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.garble(b"{")
    world.garble(b'{"nic": 3}')
    assert world.count("told_garbage") == 2
    world.down(50_001)
    assert world.count("down_paths") == 1
    monkeypatch.setattr("cwdp.agent.verbs.host.SILENT_NS", -1)
    monkeypatch.setattr("cwdp.agent.verbs.host.TIDY_NS", 0)
    world.run()
    assert world.count("down_paths") == 0


def test_an_agent_that_did_not_listen_is_told_of_all_anew(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queuepairs, "MOST_GONE", 3)
    shim = world.shim()
    for qpn in range(10):
        shim.connect_qp(qpn, DST, 50_001)
    world.run()
    assert len(world.queue_pairs()) == 10
    for qpn in range(5):
        shim.state_qp(qpn, GONE)
    world.run()
    assert sorted(qp.lqpn for qp in world.queue_pairs()) == [5, 6, 7, 8, 9]


MESSAGES = 50_000
"""That the process takes in, in each test run, always the same; `make fuzz-shim` has it take in a million, from a seed that is
printed."""

IN_A_TURN = 32

GARBLED = 0.02
"""Of the messages: whoever sends one that is none of a shim's is cut off, and what comes after it is not taken in."""


def garbled(random: Random, whole: bytes) -> bytes:
    """A message with some bytes changed, cut or longer."""
    data = bytearray(whole)
    for _ in range(random.choice((0, 1, 1, 3, 30))):
        data[random.randrange(len(data))] = random.randrange(256)
    return bytes(data[: random.choice((len(data), len(data), len(data), random.randrange(len(data))))])


def counted(monkeypatch: pytest.MonkeyPatch) -> Counter[bool]:
    """Has the messages counted that the process takes in from now on, by whether each is one of a shim's."""
    read, taken_in = shimwire.read, Counter[bool]()

    def read_and_count(data: bytes) -> Message | None:
        message = read(data)
        taken_in[message is not None] += 1
        return message

    monkeypatch.setattr(shimwire, "read", read_and_count)
    return taken_in


@pytest.mark.timeout(900)
def test_fuzzed_programs_harm_nobody(
    world: World, messages: list[Callable[[Random], bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = os.environ.get("CWDP_FUZZ_MESSAGES")
    count, seed = int(wanted or MESSAGES), secrets.randbits(32) if wanted else 5
    log.info("%d messages from seed %d", count, seed)
    taken_in = counted(monkeypatch)
    random, honest = Random(seed), world.shim()
    honest.connect_qp(1, DST, 50_001)
    while taken_in.total() < count:
        shim = world.shim()
        while not shim.is_cut_off():
            with suppress(BrokenPipeError, BlockingIOError, ConnectionResetError):
                for _ in range(IN_A_TURN):
                    whole = random.choice(messages)(random)
                    shim.sock.send(garbled(random, whole) if random.random() < GARBLED else whole)
            world.run()
        world.queue_pairs()
        shim.close()
    world.run()
    assert [qp.lqpn for qp in world.queue_pairs()] == [1]
    assert world.count("clients") == 1
    assert world.count("clients_garbage") > count // 100
    world.down(50_001)
    assert len(honest.take_orders()) == 1


@pytest.fixture
def messages() -> list[Callable[[Random], bytes]]:
    """Makers of messages of each kind, of few queue pairs, so that they meet."""

    def qp(random: Random) -> bytes:
        return QP.pack(
            MAGIC, Kind.QP_RTR, b"mlx5_0", random.randrange(5), random.randrange(8), 1, random.choice((1, 3, 9)),
            random.randrange(2**24), random.randrange(2**20), DST, 1, random.randrange(6), random.randrange(4),
            random.choice((0, 0, 16, 2**16)), random.choice((0, 33, 2**16)), random.choice((0, 127, 128)),
        )  # fmt: skip

    return [
        qp, qp,
        lambda random: HEAD.pack(MAGIC, Kind.QP_STATE, b"mlx5_0", random.randrange(5), random.choice((2, 3, 6, GONE))),
        lambda random: MOVED.pack(MAGIC, Kind.MOVED, b"mlx5_0", random.randrange(5), 3, random.randrange(99), 5, 0, 1),
        lambda random: HELLO.pack(MAGIC, Kind.HELLO, b"", 0, 0, VERSION, 2**32 - 1, 2**64 - 1, random.randbytes(64)),
        lambda random: SENT.pack(
            MAGIC, Kind.SENT, b"", 0, 0, random.randrange(66),
            *(random.choice((0, 3, 2**32 - 1)) for _ in range(2 * COUNTS)),
        ),
    ]  # fmt: skip


def test_counts_cost_a_program_more_than_what_is_read_sooner(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clients, "BURST", 80)
    monkeypatch.setattr(clients, "PER_S", 0)
    modest, lavish = world.shim(), world.shim()
    for _ in range(15):
        modest.state_qp(1, 2)
        lavish.count({0: 1})
        world.run()
    assert world.count("clients_paused") == 1
    modest.connect_qp(1, DST, 50_001)
    world.run()
    assert [qp.lqpn for qp in world.queue_pairs()] == [1]
