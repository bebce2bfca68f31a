"""Moves of queue pairs that send: by libmlx5's function, and by draining; what stands in the way of them."""

import errno
import struct
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from shim_programs import HERE, LABEL, SOURCES, Start

from cwdp.rdma import shimwire
from cwdp.rdma.shimwire import ACTUATORS, Moved, QpPath, QpState, Route
from cwdp.rdma.sport import sport_to_flow_label
from tools.shim import Call, FakeAgent, Program
from tools.shim.program import AV, ERR, GID, RTR, RTS, SQD

SPORT = 0xD00D
MOVED_LABEL = sport_to_flow_label(SPORT)
POST_SEND, IB_USER_VERBS_CMD_POST_SEND = struct.Struct("=IHHQIIII"), 28
"""A command of the kernel's, with its header (rdma/ib_user_verbs.h)."""

MANY_GLANCES = 1 << 30
"""Of a queue pair that does not come to be drained."""


def modifies(program: Program) -> list[tuple[int, bool, int]]:
    """State, whether with a path, and flow label of each call of ibv_modify_qp."""
    return [
        (call.state, bool(call.mask & AV), call.flow_label)
        for call in program.calls()
        if call.what == "modify_qp"
    ]


def await_call(program: Program, fits: Callable[[Call], bool]) -> None:
    """Until a call reached the provider."""
    end = time.monotonic() + 10
    while not any(fits(call) for call in program.calls()):
        assert time.monotonic() < end


def test_libmlx5_gives_another_port(start: Start, agent: FakeAgent) -> None:
    program, peer = start(device="mlx5_0")
    _, qpn = program.connect()
    assert ACTUATORS[peer.await_one(QpPath).actuator] == "mlx5dv"
    program.calls()
    moved = peer.move("mlx5_0", qpn, SPORT)
    assert (moved.error, moved.state, ACTUATORS[moved.actuator]) == (0, RTS, "mlx5dv")
    assert 0 < moved.took_ns < 1e9
    assert program.calls() == [Call("udp_sport", qpn, 0, RTS, 0, SPORT, 0)]
    assert not any(isinstance(message, QpPath) for message in peer.hear_all(0.1))
    peer.close()
    told = agent.accept().await_one(QpPath)
    assert (told.flow_label, told.by_table) == (MOVED_LABEL, 1)


def test_libmlx5_is_preferred_to_draining_and_moves_what_the_program_labelled(start: Start) -> None:
    program, peer = start(device="mlx5_0")
    _, qpn = program.connect(more="label=5")
    program.calls()
    assert peer.move("mlx5_0", qpn, 0xFFFF, with_sqd=True).error == 0
    assert [call.sport for call in program.calls()] == [0xFFFF]


def test_a_library_that_the_program_has_not_loaded_is_not_used(start: Start) -> None:
    program, peer = start()
    program.do("open mlx5_0")
    _, qpn = program.connect(1)
    moved = peer.move("mlx5_0", qpn, SPORT)
    assert (moved.error, ACTUATORS[moved.actuator]) == (errno.EOPNOTSUPP, "create_only")


def test_draining_takes_the_path_over_and_the_states_in_order(start: Start) -> None:
    program, peer = start()
    place, qpn = program.connect()
    program.do("drain 3")
    program.calls()
    moved = peer.move("fake_0", qpn, SPORT, with_sqd=True)
    assert (moved.error, moved.state, ACTUATORS[moved.actuator]) == (0, RTS, "sqd")
    calls = program.calls()
    assert [call.what for call in calls] == ["modify_qp", *["query_qp"] * 4, "modify_qp", "modify_qp"]
    assert [(call.state, bool(call.mask & AV)) for call in calls if call.what == "modify_qp"] == [
        (SQD, False), (SQD, True), (RTS, False),
    ]  # fmt: skip
    assert calls[-2].flow_label == MOVED_LABEL
    assert program.do(f"query {place}") == [0, RTS, RTS, MOVED_LABEL]
    assert peer.move("fake_0", qpn, 0xC000, with_sqd=True).error == 0
    assert program.do(f"query {place}")[3] == sport_to_flow_label(0xC000)


def test_without_leave_to_drain_nothing_is_touched(start: Start) -> None:
    program, peer = start()
    _, qpn = program.connect()
    program.calls()
    moved = peer.move("fake_0", qpn, SPORT)
    assert (moved.error, ACTUATORS[moved.actuator]) == (errno.EOPNOTSUPP, "create_only")
    assert program.calls() == []


def test_one_that_is_not_drained_in_time_goes_on_by_its_path(start: Start) -> None:
    program, peer = start()
    place, qpn = program.connect()
    program.do(f"drain {MANY_GLANCES}")
    program.calls()
    before = time.monotonic()
    moved = peer.move("fake_0", qpn, SPORT, with_sqd=True, deadline_s=0.2)
    assert moved.error == errno.ETIMEDOUT
    assert 0.1 < time.monotonic() - before < 5
    assert modifies(program) == [(SQD, False, 0), (RTS, False, 0)]
    assert program.do(f"query {place}") == [0, RTS, RTS, LABEL]


def await_state(program: Program, place: int, state: int) -> None:
    """Until a queue pair is in a state again, by the path of the table."""
    end = time.monotonic() + 10
    while (seen := program.do(f"query {place}")) != [0, state, state, LABEL]:
        assert time.monotonic() < end, seen
        time.sleep(0.01)


@pytest.mark.parametrize("lives", [True, False])
def test_one_that_cannot_go_on_before_it_is_drained_does_so_then(
    start: Start, agent: FakeAgent, lives: bool
) -> None:
    program, peer = start()
    place, qpn = program.connect()
    program.do("hold 1")
    program.do("drain 2000")
    assert peer.move("fake_0", qpn, SPORT, with_sqd=True, deadline_s=0.05).error == errno.ETIMEDOUT
    assert program.do(f"query {place}")[1] == SQD
    if not lives:
        agent.close()
    await_state(program, place, RTS)
    if lives:
        program.do("drain 0")
        assert peer.move("fake_0", qpn, SPORT, with_sqd=True).error == 0


def test_one_that_drains_still_is_not_ordered_twice_and_holds_up_no_other(start: Start) -> None:
    program, peer = start()
    pairs = [program.connect() for _ in range(2)]
    program.do("hold 1")
    program.do(f"drain {MANY_GLANCES}")
    for _ in range(2):
        moved = peer.move("fake_0", pairs[0][1], SPORT, with_sqd=True, deadline_s=0.05)
        assert moved.error == errno.ETIMEDOUT
    program.do("drain 0")
    assert peer.move("fake_0", pairs[1][1], SPORT, with_sqd=True).error == 0
    assert program.do(f"modify {pairs[0][0]} {ERR}")[0] == 0
    assert program.do(f"destroy {pairs[0][0]}")[0] == 0


def test_only_soft_roce_has_a_doorbell_rung_to_be_seen_drained_and_to_go_on(
    start: Start, tmp_path: Path
) -> None:
    for device in ("fake_0", "fake_1"):
        (tmp_path / device).mkdir()
        (tmp_path / device / "commands").touch()
    (tmp_path / "fake_1/parent").write_text("eth1\n")
    program, peer = start(environment={"FAKE_SYSFS": str(tmp_path)})
    program.do("open fake_1")
    for context in (0, 1):
        _, qpn = program.connect(context)
        assert peer.move(f"fake_{context}", qpn, SPORT, with_sqd=True).error == 0
    assert (tmp_path / "fake_0/commands").read_bytes() == b""
    first, last = POST_SEND.iter_unpack((tmp_path / "fake_1/commands").read_bytes())
    assert first[:3] + first[4:] == last[:3] + last[4:]
    command, in_words, out_words, _, handle, wrs, sges, _ = last
    assert (command, in_words * 4, out_words) == (IB_USER_VERBS_CMD_POST_SEND, POST_SEND.size, 1)
    assert (handle, wrs, sges) == (~qpn & 0xFFFFFFFF, 0, 0)


def test_a_refused_path_is_left_and_sending_goes_on(start: Start) -> None:
    program, peer = start()
    place, qpn = program.connect()
    program.do(f"fail {errno.EIO} 1 1")
    moved = peer.move("fake_0", qpn, SPORT, with_sqd=True)
    assert moved.error == errno.EIO
    assert program.do(f"query {place}") == [0, RTS, RTS, LABEL]


@pytest.mark.parametrize("line", ["destroy {}", "modify {} 6"])
def test_a_draining_move_gives_way_to_the_program(start: Start, line: str) -> None:
    program, peer = start()
    place, qpn = program.connect()
    program.do(f"drain {MANY_GLANCES}")
    program.calls()
    number = peer.order("fake_0", qpn, SPORT, with_sqd=True, deadline_s=60)
    await_call(program, lambda call: call.state == SQD)
    assert program.do(line.format(place))[0] == 0
    assert peer.await_one(Moved, lambda moved: moved.number == number).error == errno.EBUSY
    after = [call for call in program.calls() if call.what != "query_qp"]
    assert [(call.what, call.state) for call in after[:1]] == [("modify_qp", RTS)]
    assert len(after) == 2


def test_while_the_program_is_in_a_call_nothing_is_moved(start: Start) -> None:
    program, peer = start(device="mlx5_0")
    place, qpn = program.connect()
    program.do("block 1")
    program.tell(f"thread destroy {place}")
    program.do("sleep 200")
    program.calls()
    assert peer.move("mlx5_0", qpn, SPORT).error == errno.EBUSY
    assert program.calls() == []
    program.tell("block 0")
    program.tell("join")
    assert sorted(program.answer()[0] for _ in range(3)) == ["block", "destroy", "join"]
    assert peer.move("mlx5_0", qpn, SPORT).error == errno.ENOENT


def test_what_cannot_be_moved_is_not_touched(start: Start) -> None:
    program, peer = start(device="mlx5_0")
    place, qpn = program.connect()
    unready, unready_qpn, _ = program.do("create 0 rc")
    program.do(f"modify {unready} 1")
    program.calls()
    for device, number, sport, deadline_s, error in [
        ("mlx5_0", qpn + 99, SPORT, 5, errno.ENOENT),
        ("mlx5_1", qpn, SPORT, 5, errno.ENOENT),
        ("", qpn, SPORT, 5, errno.ENOENT),
        ("mlx5_0", unready_qpn, SPORT, 5, errno.ENOTCONN),
        ("mlx5_0", qpn, SPORT, -1, errno.ETIMEDOUT),
        ("mlx5_0", qpn, 0xBFFF, 5, errno.EINVAL),
        ("mlx5_0", qpn, 0x1C000, 5, errno.EINVAL),
    ]:
        assert peer.move(device, number, sport, with_sqd=True, deadline_s=deadline_s).error == error
    program.do(f"modify {place} {ERR}")
    program.calls()
    assert peer.move("mlx5_0", qpn, SPORT, with_sqd=True).error == errno.ENOTCONN
    assert program.calls() == []


def test_one_that_is_ready_to_receive_only_is_not_moved(start: Start) -> None:
    program, peer = start(device="mlx5_0")
    place, qpn, _ = program.do("create 0 rc")
    program.do(f"modify {place} 1")
    program.do(f"modify {place} {RTR} path={GID.hex()}")
    assert peer.move("mlx5_0", qpn, SPORT).error == errno.ENOTCONN


def test_another_path_of_the_programs_own_is_told_and_kept(start: Start) -> None:
    program, peer = start()
    place, qpn = program.connect()
    peer.hear_all()
    other = bytes([3]) * 16
    program.do(f"modify {place} {SQD}")
    program.do(f"modify {place} {SQD} path={other.hex()} label=7")
    program.do(f"modify {place} {RTS}")
    told = peer.hear_all()
    assert isinstance(told[-1], QpPath | QpState)
    path = next(message for message in told if isinstance(message, QpPath))
    assert (path.dst, path.flow_label, path.by_table) == (other, 7, 0)
    assert told[-1].state == RTS
    assert peer.move("fake_0", qpn, SPORT, with_sqd=True).error == 0
    assert program.do(f"query {place}")[3] == MOVED_LABEL


def test_a_thousand_are_moved(start: Start) -> None:
    table = shimwire.pack(1, SOURCES, [Route(HERE, GID, ((0xC123, 1.0), (0xC124, 1.0)))])
    program, peer = start(table, device="mlx5_0")
    assert program.do(f"many 1000 0 {GID.hex()}")[0] == 1000
    qpns = {message.qpn for message in peer.hear_all() if isinstance(message, QpPath)}
    assert len(qpns) == 1000
    program.calls()
    numbers = {peer.order("mlx5_0", qpn, SPORT, deadline_s=60) for qpn in qpns}
    moved = [peer.await_one(Moved) for _ in numbers]
    assert {each.number for each in moved} == numbers
    assert {each.error for each in moved} == {0}
    assert {call.qpn for call in program.calls() if call.sport == SPORT} == qpns
