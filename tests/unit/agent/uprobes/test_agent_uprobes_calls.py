"""Records of the probes as Python has them, and what is made of calls of NCCL."""

import struct
from collections import Counter

import pytest

from cwdp.agent.uprobes import calls as module
from cwdp.agent.uprobes.calls import SeenCalls
from cwdp.agent.uprobes.probes.records import (
    CALL,
    COMM_GONE,
    COMM_MADE,
    QP_CHANGED,
    CallSeen,
    CommSeen,
    QpSeen,
    hashed,
    seen,
)
from cwdp.shared.bus.collectives import CALL_ROW, ENQUEUED, Communicator
from cwdp.shared.bus.packing import rows_of

REDUCE, SEND = 2, 10
ID = bytes(range(128))


def call(function: int = REDUCE, *, comm: int = 0x10, pid: int = 7, time_ns: int = 100) -> CallSeen:
    return CallSeen(pid, pid + 1, time_ns, 5, function, 4_096, comm, -1)


def comm(rank: int, *, pid: int = 7, at: int = 0x10, is_made: bool = True) -> CommSeen:
    return CommSeen(is_made, pid, 50, at, 99, rank, 8)


class Setup:
    def __init__(self) -> None:
        self.counters: Counter[str] = Counter()
        self.calls = SeenCalls(self.counters)

    def told(self) -> list[tuple[Communicator, int, int]]:
        """Communicator, function and number of each call that is told."""
        word = self.calls.take(lambda pid: f"slurm:{pid}")
        if word is None:
            return []
        rows = rows_of(word.calls, CALL_ROW)
        assert set(rows["flags"].tolist()) == {ENQUEUED}
        return [(word.comms[row["comm"]], int(row["function"]), int(row["seq"])) for row in rows]


@pytest.fixture
def setup() -> Setup:
    return Setup()


def test_records() -> None:
    data = struct.pack("=IIQQQQIIIi", CALL, 7, 100, 5, 1_000, 0x10, 8, REDUCE, 7, -1)
    assert seen(data) == CallSeen(7, 8, 100, 5, REDUCE, 4_000, 0x10, -1)
    assert seen(data[:-8] + struct.pack("=Ii", 99, -1)).bytes == 1_000  # type: ignore[union-attr]
    made = struct.pack("=IIQQii128s", COMM_MADE, 7, 100, 0x10, 8, 3, ID)
    assert seen(made) == CommSeen(True, 7, 100, 0x10, hashed(ID), 3, 8)
    assert not seen(struct.pack("=IIQQii128s", COMM_GONE, 7, 100, 0x10, 0, 0, b"")).is_made  # type: ignore[union-attr]
    state = struct.pack("=IIQIIIBBBB16s64s", QP_CHANGED, 7, 100, 0x11, 3, 9, 1, 3, 0, 0, b"", b"mlx5_0")
    assert seen(state) == QpSeen(QP_CHANGED, 7, 100, "mlx5_0", 0x11, 3, None, 1, 3, None)


def test_ids_of_communicators_are_told_apart() -> None:
    assert len({hashed(bytes([*ID[:i], 0xFF, *ID[i + 1 :]])) for i in range(128)}) == 128
    assert hashed(ID) < 2**64


def test_calls_are_numbered_by_communicator_and_function(setup: Setup) -> None:
    setup.calls.hear_comm(comm(3))
    for function in (REDUCE, SEND, REDUCE):
        setup.calls.hear(call(function))
    known = Communicator(id=99, name="", rank=3, ranks=8, nodes=0, pid=7, job="slurm:7")
    assert setup.told() == [(known, REDUCE, 0), (known, SEND, 0), (known, REDUCE, 1)]
    assert setup.told() == []
    setup.calls.hear(call())
    assert setup.told() == [(known, REDUCE, 2)]
    assert setup.counters == {"calls_told": 4}


def test_ranks_of_one_program(setup: Setup) -> None:
    for rank, at in enumerate((0x10, 0x20)):
        setup.calls.hear_comm(comm(rank, at=at))
        setup.calls.hear(call(comm=at))
    assert [(known.rank, number) for known, _, number in setup.told()] == [(0, 0), (1, 0)]


def test_the_next_communicator_at_the_same_place(setup: Setup) -> None:
    for rank in (0, 5):
        setup.calls.hear_comm(comm(rank))
        setup.calls.hear(call())
        setup.calls.hear_comm(comm(rank, is_made=False))
    assert [(known.rank, number) for known, _, number in setup.told()] == [(0, 0), (5, 0)]


def test_unknown_communicators_are_never_each_other_s(setup: Setup) -> None:
    for pid in (7, 8):
        setup.calls.hear(call(pid=pid))
        setup.calls.hear(call(pid=pid))
    told = setup.told()
    assert [(known.rank, known.ranks, number) for known, _, number in told] == [(-1, 0, 0), (-1, 0, 1)] * 2
    assert len({known.id for known, _, _ in told}) == 2
    assert setup.counters["comms_unknown"] == 2


def test_programs_that_have_ended_are_forgotten(setup: Setup) -> None:
    setup.calls.hear_comm(comm(3))
    setup.calls.forget(lambda pid: pid == 7)
    setup.calls.forget(lambda _pid: False)
    setup.calls.hear(call())
    assert [known.rank for known, _, _ in setup.told()] == [-1]


def test_what_there_is_no_room_for_is_counted(setup: Setup) -> None:
    setup.calls.hear_comm(comm(3))
    for _ in range(module.MOST_WAITING + 3):
        setup.calls.hear(call())
    assert setup.counters["calls_untold"] == 3
    assert len(setup.told()) == module.MOST_CALLS


def test_communicators_are_no_more_than_there_may_be(setup: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_COMMS", 2)
    for rank, at in enumerate((0x10, 0x20, 0x30)):
        setup.calls.hear_comm(comm(rank, at=at))
    setup.calls.hear(call(comm=0x30))
    setup.calls.hear(call(comm=0x10))
    assert [known.rank for known, _, _ in setup.told()] == [2, -1]
