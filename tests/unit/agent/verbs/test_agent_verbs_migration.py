"""Steps of migrations in the agent: passed to the program that is meant, answered whatever comes of them."""

import errno
import os
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from agent_fakes import NoteOrders
from test_agent_hostverbs import Seen
from test_agent_verbs_lids import IB, THERE, follow, spread
from verbs_world import World

from cwdp.agent.config import AgentConfig, VerbsConfig
from cwdp.agent.verbs.hostverbs import HostVerbs
from cwdp.agent.verbs.migration.steps import LATE_NS
from cwdp.rdma.shimwire import How
from cwdp.shared.bus.messages import Desired
from cwdp.shared.verbs import MigrationAnswer, MigrationOrder, MigrationReport, MigrationStep
from tools.shim.client import FakeShim

FAR = 1_000_007
"""The far end's QPN, as the program tells it."""


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    follow(made, spread(32, 33, 34, 35))
    yield made
    made.close()


def step(number: int = 1, how: str = "load", **other: object) -> MigrationStep:
    fields = {
        "nic": IB.nic,
        "dst_addr": THERE,
        "qpn": FAR,
        "lqpn": 7,
        "pid": os.getpid(),
        "dlid": 34,
        "lmc": 2,
    }
    return msgspec.convert({"number": number, "how": how, **fields, **other}, MigrationStep)


def order(world: World, *steps: MigrationStep, within_s: float = 5.0) -> None:
    until_ns = time.monotonic_ns() + round(within_s * 1e9)
    world.garble(msgspec.json.encode(MigrationOrder(host="a", epoch=1, until_ns=until_ns, steps=list(steps))))


def answers(world: World) -> list[MigrationAnswer]:
    word = world.host.word()
    world.told |= {qp.number: qp for qp in word.changed}
    return word.migrated


def connected(world: World) -> FakeShim:
    shim = world.shim()
    shim.connect_lid_qp(7, 16, 32)
    world.run()
    return shim


def test_what_is_loaded_and_taken_is_passed_on_answered_and_told(world: World) -> None:
    shim = connected(world)
    order(world, step())
    (told,) = shim.take_orders()
    assert (told.qpn, told.sport, told.lmc, told.how) == (7, 34, 2, How.LOAD)
    assert not world.host.has_answers()
    shim.answer(told)
    world.run()
    assert world.host.has_answers()
    assert answers(world) == [MigrationAnswer(1, 0)]
    assert [(qp.sport, qp.alternate, qp.refused) for qp in world.queue_pairs()] == [(32, 34, 0)]
    order(world, step(2, "migrate"))
    (told,) = shim.take_orders()
    assert told.how == How.MIGRATE
    shim.answer(told)
    world.run()
    assert answers(world) == [MigrationAnswer(2, 0)]
    assert [(qp.sport, qp.alternate) for qp in world.queue_pairs()] == [(34, 0)]
    assert (world.count("migration_steps"), world.count("migration_steps_done")) == (2, 2)
    assert world.count("moves") == world.count("moves_unasked") == 0


def test_a_refusal_is_answered_and_told_with_the_queue_pair(world: World) -> None:
    shim = connected(world)
    order(world, step())
    shim.answer(shim.take_orders()[0], error=errno.EBUSY)
    world.run()
    assert answers(world) == [MigrationAnswer(1, errno.EBUSY)]
    assert [(qp.alternate, qp.refused) for qp in world.queue_pairs()] == [(0, errno.EBUSY)]
    assert world.count("migration_steps_refused") == 1


@pytest.mark.parametrize(
    "other", [{"lqpn": 8}, {"qpn": 78}, {"pid": 1}, {"nic": "ib_1:1"}, {"dst_addr": "::9"}]
)
def test_a_queue_pair_that_is_not_there_is_answered_at_once(world: World, other: dict[str, object]) -> None:
    shim = connected(world)
    order(world, step(**other))
    assert answers(world) == [MigrationAnswer(1, errno.ENOENT)]
    assert shim.take_orders() == []


def test_what_comes_too_late_is_not_done(world: World) -> None:
    shim = connected(world)
    order(world, step(), within_s=-0.1)
    assert answers(world) == [MigrationAnswer(1, errno.ETIMEDOUT)]
    assert shim.take_orders() == []


def test_a_program_that_does_not_answer_or_ends_has_its_step_answered(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    shim = connected(world)
    order(world, step(), within_s=0.001)
    late_ns = time.monotonic_ns() + 2 * LATE_NS
    monkeypatch.setattr(time, "monotonic_ns", lambda: late_ns)
    world.run()
    assert answers(world) == [MigrationAnswer(1, errno.ETIMEDOUT)]
    order(world, step(2))
    shim.close()
    late_ns += LATE_NS
    world.run()
    assert answers(world) == [MigrationAnswer(2, errno.ENOENT)]


def test_answers_that_nobody_asked_for_are_counted(world: World) -> None:
    shim = connected(world)
    order(world, step())
    (told,) = shim.take_orders()
    shim.answer(told)
    shim.answer(told)
    world.run()
    assert answers(world) == [MigrationAnswer(1, 0)]
    assert world.count("migration_answers_unasked") == 1


def test_orders_that_are_none_are_counted(world: World) -> None:
    world.garble(b'{"host": "a", "epoch": 1, "until_ns": 1, "steps": [{"number": 0}]}')
    assert world.count("told_garbage") == 1


def test_the_agent_refuses_earlier_leaders_and_answers_where_it_cannot_order(tmp_path: Path) -> None:
    def agent(**more: object) -> tuple[HostVerbs, NoteOrders]:
        bus = NoteOrders()
        config = AgentConfig(nics=[], host="a", **more)  # type: ignore[arg-type]
        return HostVerbs(bus, config, [], Seen()), bus

    def ordered(epoch: int) -> MigrationOrder:
        one = MigrationStep(
            number=5, nic="n", dst_addr="::1", qpn=1, lqpn=2, pid=3, dlid=9, lmc=1, how="load"
        )
        return MigrationOrder(host="a", epoch=epoch, until_ns=1, steps=[one])

    verbs = VerbsConfig(socket=str(tmp_path / "s"), lids=True)
    observing, bus = agent(verbs=verbs, observe_only=True)
    bus.order(ordered(1))
    assert bus.said == [("migrated", MigrationReport(host="a", answers=[MigrationAnswer(5, errno.EPERM)]))]
    waiting, bus = agent(verbs=verbs)
    waiting.want(Desired(host="a", version=1, epoch=4, probes=[]))
    bus.order(ordered(3))
    assert bus.said == []
    bus.order(ordered(4))
    assert bus.said == [("migrated", MigrationReport(host="a", answers=[MigrationAnswer(5, errno.EAGAIN)]))]
    counters = waiting.counters
    assert (counters["verbs_migrations_fenced"], counters["verbs_migrations_refused"]) == (1, 1)
    for each in (observing, waiting):
        assert each.keeper is not None
        each.keeper.close()
