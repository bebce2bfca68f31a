"""Automatic path migration of queue pairs over a fake InfiniBand: steps, and what stands in their way. No device was tried."""

import errno
import time
from collections import deque

import pytest
from shim_programs import Start
from test_rdma_shim_lids import begin, connect, only

from cwdp.rdma.shimwire import ACTUATORS, How, Moved, QpPath
from manager.ib.migration.steps import Migration
from tools.shim import Call, FakeAgent, Program
from tools.shim.agent import Peer
from tools.shim.program import ERR, GID, INIT, RTR, RTS

SILENT, REARMED, MIGRATED = range(3)
"""What far ends have done, as `enum fake_far_end`."""

ALT_PATH, PATH_MIG_STATE = 1 << 14, 1 << 18
APM = {"FAKE_APM": "1"}
BASE, TO = 32, 34


@pytest.fixture
def connected(start: Start) -> tuple[Program, Peer, int, int]:
    """A program with a queue pair in RTS: its place and number."""
    program, peer = begin(start, None, more=APM)
    place, qpn = connect(program, BASE)
    peer.await_one(QpPath)
    program.calls()
    return program, peer, place, qpn


def step(peer: Peer, qpn: int, how: How, dlid: int = TO, *, lmc: int = 2, deadline_s: float = 5) -> Moved:
    return peer.migrate("ib_0", qpn, (dlid, lmc), how, deadline_s=deadline_s)


def modifies(program: Program) -> list[tuple[int, int, int]]:
    """Mask, DLID and source path bits of the calls of ibv_modify_qp."""
    return [(call.mask, call.dlid, call.path_bits) for call in program.calls() if call.what == "modify_qp"]


def test_an_alternate_path_is_loaded_then_migrated_to(
    connected: tuple[Program, Peer, int, int], agent: FakeAgent
) -> None:
    program, peer, _, qpn = connected
    loaded = step(peer, qpn, How.LOAD)
    assert (loaded.error, ACTUATORS[loaded.actuator]) == (0, "apm")
    assert modifies(program) == [(ALT_PATH | PATH_MIG_STATE, TO, 2)]
    program.do(f"far-ends {REARMED}")
    assert step(peer, qpn, How.MIGRATE).error == 0
    assert modifies(program) == [(PATH_MIG_STATE, 0, 0)]
    peer.close()
    told = agent.accept().await_one(QpPath)
    assert (told.lid, told.dlid, told.src_path_bits) == (16, TO, 2)


def test_it_can_be_migrated_again_and_back(connected: tuple[Program, Peer, int, int]) -> None:
    program, peer, _, qpn = connected
    program.do(f"far-ends {REARMED}")
    for dlid in (35, 33, BASE, TO):
        assert step(peer, qpn, How.LOAD, dlid).error == 0
        assert step(peer, qpn, How.MIGRATE, dlid).error == 0


def test_one_end_migrates_and_takes_the_other_along(start: Start) -> None:
    a, a_peer = begin(start, None, more=APM)
    b, b_peer = begin(start, None, (32, 2), APM)
    _, a_qpn = connect(a, 32)
    _, b_qpn = connect(b, 16)
    assert step(a_peer, a_qpn, How.LOAD, 34).error == 0
    assert step(a_peer, a_qpn, How.MIGRATE, 34).error == errno.EAGAIN  # the far end has not loaded its
    assert step(b_peer, b_qpn, How.LOAD, 18).error == 0
    a.do(f"far-ends {REARMED}")
    assert step(a_peer, a_qpn, How.MIGRATE, 34).error == 0
    b.do(f"far-ends {MIGRATED}")
    b.calls()
    assert step(b_peer, b_qpn, How.MIGRATE, 18).error == 0
    assert modifies(b) == []
    assert step(b_peer, b_qpn, How.LOAD, 17).error == 0


def test_a_migration_goes_through_at_two_programs(start: Start) -> None:
    """The manager's order of steps; the far ends are played as packets would have them."""
    ends = [
        (*begin(start, None, lids, APM), dlid, base)
        for lids, dlid, base in (((16, 2), 34, 32), ((32, 2), 18, 16))
    ]
    qpns = [connect(program, base)[1] for program, _, _, base in ends]
    migration = Migration(time.monotonic_ns() + 60_000_000_000)
    steps = deque(migration.begin())
    while steps:
        one = steps.popleft()
        _, peer, dlid, _ = ends[one.end]
        steps += migration.hear(
            one, step(peer, qpns[one.end], How[one.how.upper()], dlid).error, time.monotonic_ns()
        )
        if migration.state == "migrating":
            for program, *_ in ends:
                program.do(f"far-ends {REARMED}")
        if migration.state == "following":
            ends[1][0].do(f"far-ends {MIGRATED}")
    assert migration.state == "done"
    for (_, peer, dlid, base), qpn in zip(ends, qpns, strict=True):
        assert step(peer, qpn, How.LOAD, dlid).error == errno.EINVAL  # it is there
        assert step(peer, qpn, How.LOAD, base).error == 0


def test_to_load_again_what_is_loaded_disarms_nothing(connected: tuple[Program, Peer, int, int]) -> None:
    program, peer, place, qpn = connected
    assert step(peer, qpn, How.LOAD).error == 0
    program.do(f"far-ends {REARMED}")
    program.do(f"query {place}")
    program.do(f"far-ends {SILENT}")
    program.calls()
    assert [step(peer, qpn, how).error for how in (How.LOAD, How.MIGRATE)] == [0, 0]
    assert modifies(program) == [(PATH_MIG_STATE, 0, 0)]


def test_a_device_that_has_gone_over_by_itself_is_seen_at_the_next_step(
    connected: tuple[Program, Peer, int, int],
) -> None:
    program, peer, place, qpn = connected
    assert step(peer, qpn, How.LOAD).error == 0
    program.do(f"far-ends {MIGRATED}")
    program.do(f"query {place}")
    program.do(f"far-ends {SILENT}")
    assert step(peer, qpn, How.LOAD, 35).error == errno.EALREADY
    told = peer.await_one(QpPath)
    assert (told.dlid, told.src_path_bits) == (TO, 2)
    assert step(peer, qpn, How.LOAD, 35).error == 0


def test_what_is_loaded_can_be_replaced(connected: tuple[Program, Peer, int, int]) -> None:
    program, peer, _, qpn = connected
    assert [step(peer, qpn, How.LOAD, dlid).error for dlid in (33, 35)] == [0, 0]
    program.do(f"far-ends {REARMED}")
    assert step(peer, qpn, How.MIGRATE, 33).error == errno.EINVAL
    assert step(peer, qpn, How.MIGRATE, 35).error == 0


@pytest.mark.parametrize("when", ["before", "after"])
def test_the_programs_own_alternate_path_is_left_alone(
    connected: tuple[Program, Peer, int, int], when: str
) -> None:
    program, peer, place, qpn = connected
    if when == "after":
        assert step(peer, qpn, How.LOAD).error == 0
    program.do(f"modify {place} - alternate=33")
    program.calls()
    program.do(f"far-ends {REARMED}")
    assert [step(peer, qpn, how).error for how in (How.LOAD, How.MIGRATE)] == [errno.EBUSY] * 2
    assert modifies(program) == []


def test_an_alternate_path_that_was_loaded_past_the_shim_is_left_alone(
    connected: tuple[Program, Peer, int, int],
) -> None:
    program, peer, place, qpn = connected
    program.do(f"past {place} 33")
    program.calls()
    assert step(peer, qpn, How.LOAD).error == errno.EBUSY
    assert modifies(program) == []


@pytest.mark.parametrize(
    ("dlid", "lmc", "error"),
    [
        (BASE, 2, errno.EINVAL),  # it is there
        (36, 2, errno.EINVAL),
        (31, 2, errno.EINVAL),
        (33, 0, errno.EINVAL),
        (33, 8, errno.EINVAL),
        (36, 3, errno.EINVAL),  # the source has no fifth
        (0, 2, errno.EINVAL),
        (0xC000, 2, errno.EINVAL),
        (0x1_0021, 2, errno.EINVAL),
    ],
)
def test_only_a_lid_of_both_ends_is_loaded(
    connected: tuple[Program, Peer, int, int], dlid: int, lmc: int, error: int
) -> None:
    program, peer, _, qpn = connected
    assert step(peer, qpn, How.LOAD, dlid, lmc=lmc).error == error
    assert modifies(program) == []


def test_nothing_is_migrated_to_that_was_not_loaded(connected: tuple[Program, Peer, int, int]) -> None:
    program, peer, _, qpn = connected
    program.do(f"far-ends {REARMED}")
    assert step(peer, qpn, How.MIGRATE).error == errno.EINVAL
    assert modifies(program) == []


def test_one_that_is_not_armed_in_time_stays_where_it_is(connected: tuple[Program, Peer, int, int]) -> None:
    program, peer, _, qpn = connected
    assert step(peer, qpn, How.LOAD).error == 0
    assert step(peer, qpn, How.MIGRATE).error == errno.EAGAIN
    assert step(peer, qpn, How.MIGRATE, deadline_s=-1).error == errno.ETIMEDOUT
    assert step(peer, qpn, How.LOAD, deadline_s=-1).error == errno.ETIMEDOUT
    assert modifies(program) == [(ALT_PATH | PATH_MIG_STATE, TO, 2)]


@pytest.mark.parametrize("how", [How.LOAD, How.MIGRATE])
def test_errors_of_the_device_are_told(connected: tuple[Program, Peer, int, int], how: How) -> None:
    program, peer, _, qpn = connected
    program.do(f"far-ends {REARMED}")
    if how == How.MIGRATE:
        assert step(peer, qpn, How.LOAD).error == 0
    program.do(f"fail {errno.EIO}")
    assert step(peer, qpn, how).error == errno.EIO
    assert step(peer, qpn, how).error == 0


def test_states_in_which_nothing_is_migrated(connected: tuple[Program, Peer, int, int]) -> None:
    program, peer, place, qpn = connected
    unready, unready_qpn, _ = program.do("create 0 rc")
    program.do(f"modify {unready} {INIT}")
    program.do(f"modify {unready} {RTR} path={GID.hex()} dlid={BASE} local=1")
    assert step(peer, unready_qpn, How.LOAD).error == errno.ENOTCONN
    assert step(peer, qpn + 999, How.LOAD).error == errno.ENOENT
    program.do(f"modify {place} {ERR}")
    assert step(peer, qpn, How.LOAD).error == errno.ENOTCONN


def test_what_is_loaded_is_forgotten_with_the_connection(connected: tuple[Program, Peer, int, int]) -> None:
    program, peer, place, qpn = connected
    program.do(f"far-ends {REARMED}")
    assert step(peer, qpn, How.LOAD).error == 0
    for line in (0, f"{INIT}", f"{RTR} path={GID.hex()} dlid={BASE} local=1", RTS):
        program.do(f"modify {place} {line}")
    assert step(peer, qpn, How.MIGRATE).error == errno.EINVAL


@pytest.mark.parametrize("how", [How.LOAD, How.MIGRATE])
def test_devices_without_migration_and_ethernet_have_none(start: Start, how: How) -> None:
    program, peer = begin(start, only(TO))
    _, qpn = connect(program, BASE)
    told = step(peer, qpn, how)
    assert (told.error, ACTUATORS[told.actuator]) == (errno.EOPNOTSUPP, "create_only")
    ethernet, peer = start(environment=APM)
    _, qpn = ethernet.connect()
    assert peer.migrate("fake_0", qpn, (TO, 2), how).error == errno.EOPNOTSUPP


@pytest.mark.parametrize("with_sqd", [False, True])
def test_a_source_port_is_none_of_infinibands(
    connected: tuple[Program, Peer, int, int], *, with_sqd: bool
) -> None:
    program, peer, _, qpn = connected
    assert peer.move("ib_0", qpn, 0xD00D, with_sqd=with_sqd).error == errno.EOPNOTSUPP
    assert all(isinstance(call, Call) and call.what != "modify_qp" for call in program.calls())
