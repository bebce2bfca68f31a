"""The process for the verbs shim: what programs are given, and where their queue pairs are moved."""

import errno
import os
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from verbs_world import DST, HERE, ORDER, SPORTS, THERE, World, steer

from cwdp.agent.verbs import moves
from cwdp.agent.verbs.orders import VerbsSource
from cwdp.agent.verbs.queuepairs import address_gid
from cwdp.rdma.shimwire import GONE, RTS, UNCOUNTED
from tools.shim.client import Order, ports


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


def test_there_is_nothing_to_do_while_there_are_no_programs_and_the_table_is_made(world: World) -> None:
    assert not world.host.is_idle
    world.run()
    assert world.host.is_idle
    shim = world.shim()
    assert not world.host.is_idle
    shim.close()
    world.run()
    assert world.host.is_idle
    world.down(50_001)
    assert not world.host.is_idle


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
    monkeypatch.setattr("cwdp.agent.verbs.host.TABLE_CALM_NS", 0)


def test_queue_pairs_are_told_with_their_program_and_path(world: World) -> None:
    shim = world.shim()
    shim.connect_qp(7, DST, 50_001)
    shim.connect_qp(8, DST, 0, device="mlx5_1", actuator="create_only")
    shim.connect_qp(9, DST, 50_001, device="mlx5_7")
    shim.state_qp(10, 1)
    world.run()
    assert [qp[1:] for qp in world.queue_pairs()] == [
        (os.getpid(), "mlx5_0", 7, RTS, "nic0", THERE, 1_000_007, 50_001, True, "mlx5dv", 0, "", False, 0),
        (os.getpid(), "mlx5_1", 8, RTS, "nic1", THERE, 1_000_008, None, True, "create_only", 0, "", False, 0),
    ]
    assert world.count("queue_pairs_elsewhere") == 1
    shim.state_qp(7, GONE)
    shim.close()
    world.run()
    assert world.queue_pairs() == []
    assert world.count("queue_pairs") == 0


def test_counts_are_of_the_queue_pairs_whose_places_they_name(world: World) -> None:
    shim, other = world.shim(), world.shim()
    for lqpn, place in ((7, 0), (8, 5), (9, UNCOUNTED)):
        shim.connect_qp(lqpn, DST, 50_001, count_place=place)
    other.connect_qp(7, DST, 50_001, count_place=5)
    world.run()
    first, second = (next(qp.number for qp in world.queue_pairs() if qp.lqpn == wanted) for wanted in (7, 8))
    shim.count({0: 100, 5: 2**64 - 1, 6: 1, UNCOUNTED: 9})
    world.run()
    assert world.host.word().sent == {first: 100, second: 2**64 - 1}
    assert world.host.word().sent == {}
    shim.count({0: 200})
    shim.state_qp(7, GONE)
    shim.count({0: 300})
    world.run()
    assert world.host.word().sent == {}
    shim.connect_qp(7, DST, 50_001, count_place=5)
    shim.count({5: 3})
    world.run()
    (sent,) = world.host.word().sent.items()
    assert sent[1] == 3
    assert sent[0] not in (first, second)


def test_what_a_program_says_of_its_job_is_told_with_its_queue_pairs(world: World) -> None:
    shim = world.shim(greets=False)
    shim.greet(job=b"SLURM_JOB_ID=4711")
    shim.connect_qp(7, DST, 50_001)
    world.run()
    assert [qp.told_job for qp in world.queue_pairs()] == ["SLURM_JOB_ID=4711"]


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


def test_an_order_that_is_not_answered_yet_counts_as_done_when_its_path_falls_silent_too(
    world: World,
) -> None:
    shim = world.shim()
    shim.connect_qp(1, DST, 50_001)
    world.run()
    world.down(50_001)
    (first,) = shim.take_orders()
    world.down(first.sport)
    (second,) = shim.take_orders()
    assert second.sport != first.sport
    assert second.number > first.number
    shim.answer(first)
    shim.answer(second)
    world.run()
    assert [qp.sport for qp in world.queue_pairs()] == [second.sport]
    assert world.count("moves_unasked") == 0


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
