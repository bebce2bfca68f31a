"""The process for the verbs shim: what programs are given, where their queue pairs are moved, and what no program can do."""

import errno
import os
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import msgspec
import pytest
from shim_fakes import FakeShim, Order, ports

from cwdp.agent.verbs import clients, moves, queuepairs
from cwdp.agent.verbs.host import VerbsHost
from cwdp.agent.verbs.orders import DownPaths, VerbsOrder, VerbsQp, VerbsSource
from cwdp.agent.verbs.queuepairs import address_gid
from cwdp.rdma.shimwire import GONE, HEAD, HELLO, MAGIC, MOVED, QP, RTS, Kind
from cwdp.shared.bus.messages import Spread, SteerQp

HERE, THERE = "10.0.0.1", "10.0.1.1"
DST = address_gid(THERE)
SOURCES = [
    VerbsSource("nic0", "mlx5_0", 1, 3, f"::ffff:{HERE}"),
    VerbsSource("nic0", "mlx5_0", 1, 1, "fd00::1"),
    VerbsSource("nic1", "mlx5_1", 1, 3, "::ffff:10.0.0.2"),
]
SPORTS = [50_001, 50_002, 50_003, 50_004]
SPREADS = [
    Spread(nic="nic0", dst_addr=THERE, sports=SPORTS),
    Spread(nic="nic0", dst_addr="fd00::9", sports=[51_000]),
]
ORDER = VerbsOrder(sources=SOURCES, spreads=SPREADS, moved=["nic0", "nic1"])


def steer(qpn: int, sport: int, backup: int | None = None) -> SteerQp:
    return SteerQp(nic="nic0", dst_addr=THERE, qpn=qpn, sport=sport, backup_sport=backup)


class World:
    """The process' insides, stepped by hand."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "verbs.sock"
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.listener.bind(str(self.path))
        self.listener.listen(64)
        self.paths, self._watcher = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.host = VerbsHost(self.listener, self.paths)
        self.host.follow(ORDER)
        self.told: dict[int, VerbsQp] = {}
        self._shims: list[FakeShim] = []

    def shim(self, *, greets: bool = True) -> FakeShim:
        shim = FakeShim(self.path, greets=greets)
        self._shims.append(shim)
        self.run()
        return shim

    def run(self) -> None:
        """Until there is nothing to do any more."""
        while self.host.step() or self.host.step():
            pass

    def down(self, *sports: int, nic: str = "nic0") -> None:
        self._watcher.send(msgspec.json.encode(DownPaths(nic, [(THERE, sport) for sport in sports])))
        self.run()

    def garble(self, data: bytes) -> None:
        self._watcher.send(data)
        self.run()

    def queue_pairs(self) -> list[VerbsQp]:
        """As the agent knows them."""
        while self.host.has_news():
            word = self.host.word()
            if word.anew:
                self.told.clear()
            self.told.update({qp.number: qp for qp in word.changed})
            for number in word.gone:
                self.told.pop(number, None)
        return list(self.told.values())

    def count(self, name: str) -> int:
        return self.host.counters[name]

    def close(self) -> None:
        for shim in self._shims:
            shim.close()
        self.host.close()
        for sock in (self.listener, self.paths, self._watcher):
            sock.close()


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    made.close()


def ordered(orders: list[Order]) -> dict[int, int]:
    return {order.qpn: order.sport for order in orders}


def test_a_program_is_given_the_table_of_the_spreads(world: World) -> None:
    shim = world.shim()
    shim.read()
    (table,) = shim.tables
    assert ports(table) == {
        (address_gid(HERE), DST): SPORTS,
        (address_gid("fd00::1"), address_gid("fd00::9")): [51_000],
    }


def test_paths_that_are_down_leave_the_table_and_come_back(world: World, hurried: None) -> None:
    shim = world.shim()
    world.down(50_002, 50_003)
    world.down(*SPORTS)
    world.down()
    shim.read()
    found = [ports(table)[address_gid(HERE), DST] for table in shim.tables]
    assert found == [SPORTS, [50_001, 50_004], SPORTS]


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables are made anew at once."""
    monkeypatch.setattr("cwdp.agent.verbs.host.TABLE_REST_NS", 0)


def test_queue_pairs_are_told_with_their_program_and_path(world: World) -> None:
    shim = world.shim()
    shim.connect_qp(7, DST, 50_001)
    shim.connect_qp(8, DST, 0, device="mlx5_1", actuator="create_only")
    shim.connect_qp(9, DST, 50_001, device="mlx5_7")
    shim.state_qp(10, 1)
    world.run()
    assert [qp[1:] for qp in world.queue_pairs()] == [
        (os.getpid(), "mlx5_0", 7, RTS, "nic0", THERE, 1_000_007, 50_001, True, "mlx5dv", 0),
        (os.getpid(), "mlx5_1", 8, RTS, "nic1", THERE, 1_000_008, None, True, "create_only", 0),
    ]
    assert world.count("queue_pairs_elsewhere") == 1
    shim.state_qp(7, GONE)
    shim.close()
    world.run()
    assert world.queue_pairs() == []
    assert world.count("queue_pairs") == 0


def test_a_queue_pair_of_a_gid_that_is_found_later_gets_its_nic(world: World) -> None:
    shim = world.shim()
    shim.connect_qp(9, DST, 50_001, device="mlx5_7")
    world.run()
    assert world.queue_pairs() == []
    world.host.follow(
        msgspec.structs.replace(ORDER, sources=[VerbsSource("nic7", "mlx5_7", 1, 3, "::ffff:10.0.0.7")])
    )
    assert [qp.nic for qp in world.queue_pairs()] == ["nic7"]


def test_what_the_manager_wants_is_ordered_once_and_again_when_it_changes(world: World) -> None:
    shim = world.shim()
    shim.connect_qp(7, DST, 50_001)
    shim.connect_qp(8, DST, 50_001, dest_qpn=4)
    world.run()
    world.host.follow(msgspec.structs.replace(ORDER, steer=[steer(1_000_007, 50_003), steer(4, 50_001)]))
    (order,) = shim.take_orders()
    assert (order.device, order.qpn, order.sport, order.with_sqd) == ("mlx5_0", 7, 50_003, False)
    assert order.deadline_ns > time.monotonic_ns()
    shim.answer(order)
    world.run()
    assert {qp.lqpn: qp.sport for qp in world.queue_pairs()} == {7: 50_003, 8: 50_001}
    world.host.follow(msgspec.structs.replace(ORDER, steer=[steer(1_000_007, 50_004)]))
    assert ordered(shim.take_orders()) == {7: 50_004}
    assert (world.count("moves"), world.count("moves_done")) == (2, 1)


def test_a_queue_pair_that_comes_where_it_is_not_wanted_is_moved_at_once(world: World) -> None:
    world.host.follow(msgspec.structs.replace(ORDER, steer=[steer(1_000_007, 50_003)]))
    shim = world.shim()
    shim.connect_qp(7, DST, 50_001, state=2)
    world.run()
    assert shim.take_orders() == []
    shim.state_qp(7, RTS)
    world.run()
    assert ordered(shim.take_orders()) == {7: 50_003}


def test_while_a_path_is_down_its_queue_pairs_take_their_backup(world: World) -> None:
    world.host.follow(
        msgspec.structs.replace(ORDER, steer=[steer(1, 50_001, 50_002), steer(2, 50_001, None)])
    )
    shim = world.shim()
    for qpn in (1, 2):
        shim.connect_qp(qpn, DST, 50_001, dest_qpn=qpn)
    world.run()
    world.down(50_001)
    orders = shim.take_orders()
    assert ordered(orders)[1] == 50_002
    assert ordered(orders)[2] in SPORTS[1:]
    for order in orders:
        shim.answer(order)
    world.run()
    world.down()
    assert ordered(shim.take_orders()) == {1: 50_001, 2: 50_001}
    assert world.count("moves_for_failure") == 2


def test_queue_pairs_of_which_nothing_is_said_are_spread_over_the_living_ports(world: World) -> None:
    shim = world.shim()
    for qpn in range(90):
        shim.connect_qp(qpn, DST, 50_001)
    world.run()
    world.down(50_001, 50_004)
    taken = list(ordered(shim.take_orders()).values())
    assert {sport: taken.count(sport) for sport in set(taken)} == {50_002: 45, 50_003: 45}


def test_what_its_device_has_put_on_an_unknown_path_is_put_on_a_known_one(world: World) -> None:
    shim = world.shim()
    shim.connect_qp(1, DST, 0)
    shim.connect_qp(2, DST, 0, actuator="create_only")
    shim.connect_qp(3, DST, 60_000, by_table=0)
    world.run()
    orders = shim.take_orders()
    assert [order.qpn for order in orders] == [1]
    assert orders[0].sport in SPORTS


def test_nobody_is_moved_where_no_other_path_lives(world: World) -> None:
    shim = world.shim()
    shim.connect_qp(1, DST, 50_001)
    world.run()
    world.down(*SPORTS)
    assert shim.take_orders() == []


def test_what_only_draining_can_move_is_moved_by_order_only_and_only_where_that_is_allowed(
    world: World,
) -> None:
    shim = world.shim()
    shim.connect_qp(1, DST, 50_001, actuator="create_only")
    world.run()
    wanted = msgspec.structs.replace(ORDER, steer=[steer(1_000_001, 50_002, 50_003)])
    world.host.follow(wanted)
    assert shim.take_orders() == []
    world.host.follow(msgspec.structs.replace(wanted, drains=True, steer=[steer(1_000_001, 50_004, 50_003)]))
    (order,) = shim.take_orders()
    assert (order.sport, order.with_sqd) == (50_004, True)
    shim.answer(order, actuator="sqd")
    world.run()
    world.down(50_004)
    assert shim.take_orders() == []


def test_queue_pairs_of_nics_with_a_dataplane_are_left_to_it(world: World) -> None:
    world.host.follow(msgspec.structs.replace(ORDER, moved=[], steer=[steer(1_000_001, 50_002)]))
    shim = world.shim()
    shim.connect_qp(1, DST, 50_001)
    world.run()
    world.down(50_001)
    assert shim.take_orders() == []
    assert [qp.nic for qp in world.queue_pairs()] == ["nic0"]


def test_an_order_that_is_refused_is_given_again_after_a_rest(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cwdp.agent.verbs.host.RETRY_NS", 0)
    monkeypatch.setattr(moves, "RESTS_NS", 0)
    world.host.follow(msgspec.structs.replace(ORDER, steer=[steer(1_000_001, 50_002)]))
    shim = world.shim()
    shim.connect_qp(1, DST, 50_001)
    world.run()
    (order,) = shim.take_orders()
    shim.answer(order, error=errno.EAGAIN)
    world.run()
    (again,) = shim.take_orders()
    assert again.number > order.number
    shim.answer(again, error=errno.EOPNOTSUPP)
    world.run()
    assert shim.take_orders() == []
    assert [qp.refused for qp in world.queue_pairs()] == [errno.EOPNOTSUPP]
    assert world.count("moves_refused") == 2


def test_an_order_that_nobody_answers_is_given_up(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.host.follow(msgspec.structs.replace(ORDER, steer=[steer(1_000_001, 50_002)]))
    shim = world.shim()
    shim.connect_qp(1, DST, 50_001)
    world.run()
    monkeypatch.setattr("cwdp.agent.verbs.host.RETRY_NS", 0)
    monkeypatch.setattr(moves, "DEADLINE_NS", -1)
    world.run()
    assert world.count("moves_unanswered") == 1
    assert [qp.refused for qp in world.queue_pairs()] == [errno.ETIMEDOUT]


def test_answers_that_nobody_asked_for_change_nothing(world: World) -> None:
    shim = world.shim()
    shim.connect_qp(1, DST, 50_001)
    world.run()
    shim.answer(Order("mlx5_0", 1, 77, 0, 50_003, with_sqd=False))
    shim.answer(Order("mlx5_0", 2, 1, 0, 50_003, with_sqd=False))
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
    shim.greet(version=2)
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


FUZZ_S = 3.0
"""A million messages take some 15 s; here as many as this time allows."""


def garbled(random: Random, whole: bytes) -> bytes:
    """A message with some bytes changed, cut or longer."""
    data = bytearray(whole)
    for _ in range(random.choice((0, 1, 1, 3, 30))):
        data[random.randrange(len(data))] = random.randrange(256)
    return bytes(data[: random.choice((len(data), len(data), len(data), random.randrange(len(data))))])


def test_fuzzed_programs_harm_nobody(world: World, messages: list[Callable[[Random], bytes]]) -> None:
    random, honest, sent = Random(5), world.shim(), 0
    honest.connect_qp(1, DST, 50_001)
    until_s = time.monotonic() + FUZZ_S
    while time.monotonic() < until_s:
        shim = world.shim()
        try:
            for _ in range(40):
                shim.sock.send(garbled(random, random.choice(messages)(random)))
                sent += 1
        except (BrokenPipeError, BlockingIOError, ConnectionResetError):
            pass
        world.run()
        world.queue_pairs()
        shim.close()
    world.run()
    assert [qp.lqpn for qp in world.queue_pairs()] == [1]
    assert world.count("clients") == 1
    assert world.count("clients_garbage") > 0
    world.down(50_001)
    assert len(honest.take_orders()) == 1


@pytest.fixture
def messages() -> list[Callable[[Random], bytes]]:
    """Makers of messages of each kind, of few queue pairs, so that they meet."""

    def qp(random: Random) -> bytes:
        return QP.pack(
            MAGIC, Kind.QP_RTR, b"mlx5_0", random.randrange(5), random.randrange(8), 1, random.choice((1, 3, 9)),
            random.randrange(2**24), random.randrange(2**20), DST, 1, random.randrange(5),
        )  # fmt: skip

    return [
        qp, qp,
        lambda random: HEAD.pack(MAGIC, Kind.QP_STATE, b"mlx5_0", random.randrange(5), random.choice((2, 3, 6, GONE))),
        lambda random: MOVED.pack(MAGIC, Kind.MOVED, b"mlx5_0", random.randrange(5), 3, random.randrange(99), 5, 0, 1),
        lambda _random: HELLO.pack(MAGIC, Kind.HELLO, b"", 0, 0, 1, 2**32 - 1, 2**64 - 1),
    ]  # fmt: skip
