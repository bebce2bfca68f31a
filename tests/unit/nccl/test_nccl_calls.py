"""From events to calls: when they began and ended, what they waited for, which were slow."""

import numpy as np
import pytest

from cwdp.nccl import calls as module
from cwdp.nccl.calls import Call, Calls, Rows
from cwdp.nccl.ring import CALL, FLUSH, GPU, OP_BEGIN, OP_END, PEER, POST, RECORD, STEP, WIRE

NOW = 10**15
PID = 7
ALL_REDUCE = 2
MS = 1_000_000


def record(kind: int, begin_ns: int, lasted_ns: int = 0, **more: object) -> Rows:
    row = np.zeros(1, RECORD)
    row["kind"], row["begin_ns"], row["lasted_ns"], row["pid"] = kind, begin_ns, lasted_ns, PID
    row["function"] = ALL_REDUCE
    for name, value in more.items():
        row[name] = value
    return row


def step(begin_ns: int, *, peer: int = 1, is_send: int = 1, seq: int = 0, **waits: int) -> Rows:
    wait_ns = [waits.get(name, 0) for name in ("post", "gpu", "peer_wait", "wire", "flush")]
    return record(
        STEP, begin_ns, sum(wait_ns), wait_ns=wait_ns, peer=peer, is_send=is_send, seq=seq, bytes=1000
    )


def one_call(begin_ns: int, lasted_ns: int, seq: int = 0) -> Rows:
    """Enqueued, and an operation of one chunk 1 ms later."""
    return np.concatenate(
        [
            record(CALL, begin_ns, seq=seq, bytes=4000, peer=3),
            record(OP_BEGIN, begin_ns + MS, seq=seq),
            step(begin_ns + MS, seq=seq, gpu=MS, peer_wait=MS, wire=lasted_ns - MS),
            record(OP_END, begin_ns + MS, lasted_ns + MS, seq=seq),
        ]
    )


def take(calls: Calls, *records: Rows, now_ns: int = NOW, pids: dict[int, int] | None = None) -> None:
    calls.take(1, pids or {}, PID, np.concatenate(records), now_ns)


def ended(calls: Calls, now_ns: int = NOW + 2 * module.SETTLE_NS) -> list[Call]:
    calls.close(now_ns)
    over = list(calls.over)
    calls.over.clear()
    return over


def test_a_call_from_its_first_data_to_its_last_operation() -> None:
    calls = Calls()
    take(calls, one_call(NOW - 100 * MS, 5 * MS))
    (call,) = ended(calls)
    assert (call.function, call.seq, call.comm, call.bytes, call.peer) == (ALL_REDUCE, 0, 0, 4000, 3)
    assert call.enqueued_ns == NOW - 100 * MS
    assert call.start_ns == NOW - 98 * MS
    assert call.end_ns == NOW - 93 * MS
    assert (call.ops, call.ended, call.is_over) == (1, 1, True)
    assert len(calls) == 0


def test_waits_by_peer_and_direction() -> None:
    calls = Calls()
    take(
        calls,
        record(CALL, NOW - 50),
        record(OP_BEGIN, NOW - 40),
        step(NOW - 40, post=1, gpu=2, peer_wait=3, wire=4),
        step(NOW - 30, post=10, gpu=20, peer_wait=30, wire=40),
        step(NOW - 30, is_send=0, wire=7, flush=5),
        step(NOW - 30, peer=-2, is_send=0, wire=9),
        record(OP_END, NOW - 40, 30),
    )
    (call,) = ended(calls)
    assert set(call.peers) == {(1, True), (1, False), (-2, False)}
    sent, received = call.peers[1, True], call.peers[1, False]
    assert (sent.chunks, sent.bytes, sent.longest_ns) == (2, 2000, 100)
    assert [sent.wait_ns[i] for i in (POST, GPU, PEER, WIRE, FLUSH)] == [11, 22, 33, 44, 0]
    assert [received.wait_ns[i] for i in (WIRE, FLUSH)] == [7, 5]


def test_parts_that_come_one_after_the_other_are_one_call() -> None:
    whole = one_call(NOW - 100 * MS, 5 * MS)
    calls = Calls()
    for i in range(len(whole)):
        take(calls, whole[i : i + 1])
    (call,) = ended(calls)
    assert (call.ops, call.ended, call.peers[1, True].chunks) == (1, 1, 1)


def test_one_is_not_over_while_an_operation_goes_on_or_may_follow() -> None:
    calls = Calls()
    take(calls, one_call(NOW - 100 * MS, 5 * MS), record(OP_BEGIN, NOW))
    assert ended(calls) == []
    take(calls, record(OP_END, NOW, 100))
    assert ended(calls, NOW) == []
    assert len(ended(calls)) == 1


def test_one_that_stands_still_is_told_now_and_then_and_again_when_it_is_over() -> None:
    calls = Calls()
    take(calls, one_call(NOW - 100 * MS, 5 * MS), record(OP_BEGIN, NOW))
    stuck_ns = module.STUCK_NS
    for now_ns, expected in ((0.9, 0), (1.1, 1), (1.2, 0), (2.0, 0), (2.2, 1), (3.0, 0)):
        assert len(ended(calls, NOW + round(now_ns * stuck_ns))) == expected
    assert calls.counters["calls_stuck"] == 1
    later = NOW + 4 * stuck_ns
    take(calls, record(OP_BEGIN, NOW), now_ns=later)
    assert len(ended(calls, later + 2 * stuck_ns)) == 1
    assert calls.counters["calls_stuck"] == 2
    take(calls, record(OP_END, NOW, 100), record(OP_END, NOW, 100), now_ns=later + 3 * stuck_ns)
    (call,) = ended(calls, later + 3 * stuck_ns + 2 * module.SETTLE_NS)
    assert call.is_over


def test_one_without_operations_is_forgotten() -> None:
    calls = Calls()
    take(calls, record(CALL, NOW))
    assert ended(calls, NOW + 2 * module.ALONE_NS) == []
    assert (len(calls), calls.counters["calls_off_network"]) == (0, 1)


def test_a_graph_that_is_launched_again_gives_the_same_number() -> None:
    calls = Calls()
    take(calls, one_call(NOW - 100 * MS, 5 * MS))
    take(calls, one_call(NOW - 50 * MS, 6 * MS))
    assert [call.enqueued_ns for call in ended(calls)] == [NOW - 100 * MS, NOW - 50 * MS]


def test_slow_ones_keep_their_chunks() -> None:
    calls = Calls()
    for seq in range(20):
        take(calls, one_call(NOW - 100 * MS, 50 * MS if seq == 15 else 5 * MS, seq))
    over = ended(calls)
    assert [call.seq for call in over if call.is_slow] == [15]
    assert [call.seq for call in over if call.chunks is not None] == [0, 15]
    (slow,) = [call for call in over if call.is_slow]
    assert slow.chunks is not None
    assert slow.chunks["seq"].tolist() == [15]


def test_what_is_sent_for_another_process_is_its_call() -> None:
    calls = Calls()
    foreign = one_call(NOW - 100 * MS, 5 * MS)
    foreign["pid"] = 8
    take(calls, foreign, pids={8: 2, PID: 1})
    assert [call.owner for call in ended(calls)] == [2]
    take(calls, foreign, pids={PID: 1})
    assert ended(calls) == []
    assert calls.counters["records_of_others"] == 4


@pytest.mark.parametrize(
    "harm",
    [
        {"kind": 0}, {"kind": 9}, {"comm": 1024}, {"comm": 65535}, {"function": 15}, {"begin_ns": 2**64 - 1},
        {"begin_ns": 0}, {"lasted_ns": 2**64 - 1}, {"bytes": 2**63}, {"wait_ns": 2**64 - 1},
    ],
    ids=lambda harm: "-".join(f"{k}{v}" for k, v in harm.items()),
)  # fmt: skip
def test_what_is_not_sane_is_counted(harm: dict[str, int]) -> None:
    calls = Calls()
    row = record(STEP, NOW)
    for name, value in harm.items():
        row[name] = value
    take(calls, row)
    assert (len(calls), calls.counters["records_not_sane"]) == (0, 1)


def test_random_bytes_do_no_harm() -> None:
    random = np.random.default_rng(1)
    calls = Calls()
    for turn in range(20):
        rows = np.frombuffer(random.bytes(1000 * RECORD.itemsize), RECORD).copy()
        rows["begin_ns"] = NOW + turn - random.integers(0, 10**9, 1000).astype(np.uint64)
        for name, most in (
            ("lasted_ns", 10**9),
            ("bytes", 10**9),
            ("comm", 3),
            ("function", 3),
            ("kind", 5),
            ("seq", 9),
        ):
            rows[name] %= most
        rows["wait_ns"] %= np.uint64(10**9)
        rows["pid"] %= 3
        calls.take(1, {1: 1, 2: 2}, 0, rows, NOW + turn)
        calls.close(NOW + turn * module.SETTLE_NS)
    calls.forget(1)
    calls.forget(2)
    assert len(calls) == 0


def test_a_program_with_too_many_calls() -> None:
    calls = Calls()
    most = module.MOST_OPEN
    rows = np.repeat(record(CALL, NOW), most + 10)
    rows["seq"] = np.arange(most + 10)
    take(calls, rows)
    assert (len(calls), calls.counters["calls_too_many"]) == (most, 10)


def test_a_program_that_ends_leaves_what_it_did() -> None:
    calls = Calls()
    take(calls, one_call(NOW - 100 * MS, 5 * MS), record(CALL, NOW, seq=9))
    calls.forget(1)
    assert [call.seq for call in calls.over] == [0]
    assert len(calls) == 0
