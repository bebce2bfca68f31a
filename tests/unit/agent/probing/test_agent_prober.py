"""The prober over a dataplane in arithmetic: nothing is lost silently, whatever happens."""

import errno

import numpy as np
import pytest
from agent_fakes import MS, FakeDataplane, edges, make_prober, schedule
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from cwdp.agent.probing.packets import Path, requests
from cwdp.agent.probing.prober import REPLY_TIMEOUT_NS, Prober, ProbeResults
from cwdp.agent.probing.sender import MAX_BATCH
from cwdp.dataplane import abi

START_NS = 5_000 * MS
TICK_NS = 20 * MS


def _drive(prober: Prober, ticks: int, start_ns: int = START_NS, *, carrier: bool = True) -> int:
    """Call send at 50 Hz; the time after it."""
    for tick in range(ticks):
        prober.send(start_ns + tick * TICK_NS, carrier=carrier)
    return start_ns + ticks * TICK_NS


def _drain(prober: Prober, now_ns: int) -> ProbeResults:
    drained = prober.drain(now_ns + REPLY_TIMEOUT_NS)
    assert drained is not None
    return drained


def test_every_probe_that_is_sent_is_answered_once(monkeypatch: pytest.MonkeyPatch) -> None:
    dataplane = FakeDataplane()
    prober = make_prober(monkeypatch, dataplane, schedule(edges(2, 4, 1000.0)))
    drained = _drain(prober, _drive(prober, 51))
    assert dataplane.sent == list(range(1000, 1000 + 2000))
    assert drained.answered.all()
    assert drained.sent.all()
    assert (drained.slots["tag"] >> np.uint64(32)).tolist() == dataplane.sent
    assert np.bincount(drained.path[::2]).tolist() == pytest.approx([125] * 8)
    assert prober.counters["pairs_sent"] == 1000
    assert prober.counters["probes_answered"] == 2000
    assert sum(prober.counters.values()) == 3000
    assert prober.drain(START_NS * 2) is None


def test_results_are_drained_up_to_the_first_probe_that_may_still_be_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    dataplane = FakeDataplane(answers=lambda seq: seq != 1045)
    prober = make_prober(monkeypatch, dataplane, schedule(edges()))
    now_ns = _drive(prober, 4)
    assert prober.waited_ns == 0
    drained = prober.drain(now_ns)
    assert drained is not None
    assert (len(drained.path), drained.answered.all()) == (40, True)
    assert prober.waited_ns == 2 * TICK_NS
    assert prober.drain(now_ns + REPLY_TIMEOUT_NS - 2 * TICK_NS - 1) is None
    drained = prober.drain(now_ns + REPLY_TIMEOUT_NS - 2 * TICK_NS)
    assert drained is not None
    assert (len(drained.path), np.flatnonzero(~drained.answered).tolist()) == (80, [5])
    assert prober.waited_ns == 0


def test_an_answer_that_takes_long_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    dataplane = FakeDataplane(answers=lambda _: False)
    prober = make_prober(monkeypatch, dataplane, schedule(edges()))
    now_ns = _drive(prober, 2)
    assert prober.drain(now_ns + REPLY_TIMEOUT_NS // 2) is None
    assert all(dataplane.reply(seq) for seq in dataplane.sent)
    drained = prober.drain(now_ns + REPLY_TIMEOUT_NS // 2 + 1)
    assert drained is not None
    assert drained.answered.all()


def test_what_is_not_answered_is_lost_and_a_late_reply_changes_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    dataplane = FakeDataplane(answers=lambda seq: seq % 5 != 0)
    prober = make_prober(monkeypatch, dataplane, schedule(edges()))
    drained = _drain(prober, _drive(prober, 6))
    lost = [seq for seq in dataplane.sent if seq % 5 == 0]
    assert np.array(dataplane.sent)[~drained.answered].tolist() == lost
    assert drained.sent.all()
    assert prober.counters["probes_lost"] == len(lost) == 40
    assert not any(dataplane.reply(seq) for seq in lost)


def test_what_never_left_the_host_is_unsent_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    dataplane = FakeDataplane(unstamped={1001, 1006})
    prober = make_prober(monkeypatch, dataplane, schedule(edges()))
    drained = _drain(prober, _drive(prober, 3))
    assert np.flatnonzero(~drained.sent).tolist() == [1, 6]
    assert not drained.answered[[1, 6]].any()
    assert (prober.counters["probes_unsent"], prober.counters["probes_lost"]) == (2, 0)


@pytest.mark.parametrize("at_most", [1, 3, 7])
def test_a_kernel_that_takes_a_part_is_asked_again(monkeypatch: pytest.MonkeyPatch, at_most: int) -> None:
    dataplane = FakeDataplane(at_most=at_most)
    prober = make_prober(monkeypatch, dataplane, schedule(edges()))
    assert _drain(prober, _drive(prober, 6)).answered.all()
    assert dataplane.sent == list(range(1000, 1200))


@pytest.mark.parametrize("code", [errno.ENOBUFS, errno.ENETUNREACH, errno.EPERM, errno.EAGAIN, 9999])
def test_an_error_costs_one_packet_and_is_counted(monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    dataplane = FakeDataplane(errors=[0, code, code, 0, code], at_most=10)
    prober = make_prober(monkeypatch, dataplane, schedule(edges()))
    drained = _drain(prober, _drive(prober, 6))
    assert len(dataplane.sent) == 200 - 3
    assert prober.counters[f"send_{errno.errorcode.get(code, str(code)).lower()}"] == 3
    assert prober.counters["probes_unsent"] == np.count_nonzero(~drained.sent) == 3


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30)
@given(before=st.integers(0, 300), silent=st.sets(st.integers(0, 599)))
def test_the_sequence_number_wraps(monkeypatch: pytest.MonkeyPatch, before: int, silent: set[int]) -> None:
    first = 2**32 - 2 * before
    dataplane = FakeDataplane(answers=lambda seq: (seq - first) % 2**32 not in silent)
    prober = make_prober(monkeypatch, dataplane, schedule(edges()), seq=first % 2**32)
    drained = _drain(prober, _drive(prober, 16))
    assert dataplane.sent == [(first + n) % 2**32 for n in range(600)]
    assert np.flatnonzero(~drained.answered).tolist() == sorted(silent)
    assert prober.seq == (first + 600) % 2**32


def test_a_full_table_holds_back_and_overwrites_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    dataplane = FakeDataplane()
    prober = make_prober(monkeypatch, dataplane, schedule(edges(2, 4, 1_000_000.0)))
    now_ns = _drive(prober, 5)
    assert len(dataplane.sent) == abi.SLOTS
    assert prober.counters["pairs_held_back"] == 4 * 20_000 - abi.SLOTS // 2
    drained = _drain(prober, now_ns)
    assert drained.answered.all()
    assert len(drained.path) == abi.SLOTS
    prober.send(now_ns, carrier=True)
    assert len(dataplane.sent) == abi.SLOTS + 40_000


def test_a_stall_is_not_made_up_for(monkeypatch: pytest.MonkeyPatch) -> None:
    prober = make_prober(monkeypatch, FakeDataplane(), schedule(edges(2, 4, 1000.0)))
    prober.send(START_NS, carrier=True)
    prober.send(START_NS + 3_000 * MS, carrier=True)
    assert prober.counters["pairs_sent"] == 100
    assert prober.counters["pairs_skipped"] == 2900
    prober.send(START_NS + 3_020 * MS, carrier=True)
    assert prober.counters["pairs_sent"] == 120


def test_a_rate_below_one_pair_a_stall_still_sends(monkeypatch: pytest.MonkeyPatch) -> None:
    prober = make_prober(monkeypatch, FakeDataplane(), schedule(edges(1, 1, 2.0)))
    _drive(prober, 151)
    assert prober.counters["pairs_sent"] == 6
    assert prober.counters["pairs_skipped"] == 0


def test_without_carrier_probes_are_held_back_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    dataplane = FakeDataplane()
    prober = make_prober(monkeypatch, dataplane, schedule(edges()))
    now_ns = _drive(prober, 11, carrier=False)
    assert dataplane.sent == []
    assert prober.counters["pairs_held_back"] == 200
    assert prober.drain(now_ns * 2) is None
    prober.send(now_ns, carrier=True)
    assert len(dataplane.sent) == 40


def test_a_new_schedule_knows_nothing_of_the_old_ones_probes(monkeypatch: pytest.MonkeyPatch) -> None:
    dataplane = FakeDataplane(answers=lambda _: False)
    old = make_prober(monkeypatch, dataplane, schedule(edges()))
    now_ns = _drive(old, 6)
    under_way = list(dataplane.sent)
    old.close()
    assert old.counters["probes_abandoned"] == len(under_way) == 200
    new = make_prober(monkeypatch, dataplane, schedule(edges(3, 2)), old.seq)
    assert all(dataplane.reply(seq) for seq in under_way)
    dataplane.answers = lambda _: True
    drained = _drain(new, _drive(new, 6, now_ns))
    assert (drained.slots["tag"] >> np.uint64(32)).min() > max(under_way)
    assert (new.counters["probes_answered"], new.counters["probes_lost"]) == (200, 0)


def test_long_batches_are_cut_to_what_one_call_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    dataplane = FakeDataplane()
    calls: list[int] = []
    take = dataplane.take

    def counted(seqs: list[int]) -> tuple[int, int]:
        calls.append(len(seqs))
        return take(seqs)

    monkeypatch.setattr(dataplane, "take", counted)
    prober = make_prober(monkeypatch, dataplane, schedule(edges(64, 64, 100_000.0)))
    _drive(prober, 2)
    assert max(calls) == MAX_BATCH
    assert sum(calls) == 4000


def test_a_schedule_of_nothing_sends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    prober = make_prober(monkeypatch, FakeDataplane(), schedule([]))
    assert prober.drain(_drive(prober, 3)) is None


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25)
@given(
    rate=st.floats(1.0, 20_000.0),
    steps=st.lists(st.tuples(st.integers(1, 300), st.booleans(), st.booleans()), min_size=1, max_size=30),
)
def test_every_pair_that_was_due_is_accounted_for(
    monkeypatch: pytest.MonkeyPatch, rate: float, steps: list[tuple[int, bool, bool]]
) -> None:
    dataplane = FakeDataplane(answers=lambda seq: seq % 7 != 0)
    prober = make_prober(monkeypatch, dataplane, schedule(edges(2, 4, rate)))
    now_ns = START_NS
    prober.send(now_ns, carrier=True)
    for gap_ms, carrier, drain in steps:
        now_ns += gap_ms * MS
        prober.send(now_ns, carrier=carrier)
        if drain:
            prober.drain(now_ns)
    prober.drain(now_ns + REPLY_TIMEOUT_NS)
    count = prober.counters
    due = int((now_ns - START_NS) * 1e-9 * rate)
    accounted = count["pairs_sent"] + count["pairs_held_back"] + count["pairs_skipped"]
    assert accounted == pytest.approx(due, abs=1)
    assert 2 * count["pairs_sent"] == len(dataplane.sent) == count["probes_answered"] + count["probes_lost"]


def _requests(count: int) -> NDArray[np.void]:
    return requests([Path(0, "10.0.0.1", "10.0.9.9", 50_000 + i, 50_000 + i) for i in range(count)], 1, 4791)


@pytest.mark.parametrize("peers", [0, 2])
def test_requests_beside_the_schedule_are_told_and_counted_nowhere(
    monkeypatch: pytest.MonkeyPatch, peers: int
) -> None:
    """Whether there are others of their family or none; an odd number of them moves no pair."""
    dataplane = FakeDataplane(answers=lambda seq: seq != 1041, unstamped={1042})
    prober = make_prober(monkeypatch, dataplane, schedule(edges(peers, 4, 1000.0) if peers else []))
    now_ns = _drive(prober, 2)
    first = prober.seq
    dataplane.answers, dataplane.unstamped = (lambda seq: seq != first + 1), {first + 2}
    told: list[tuple[list[bool], list[bool]]] = []
    for _ in range(2):
        assert prober.ask(_requests(5), now_ns, lambda *of: told.append((of[0].tolist(), of[1].tolist())))
    prober.send(now_ns, carrier=True)
    drained = prober.drain(now_ns + REPLY_TIMEOUT_NS)
    assert told == [
        ([True, True, False, True, True], [True, False, False, True, True]),
        ([True] * 5, [True] * 5),
    ]
    if peers:
        assert drained is not None
        assert (len(drained.path), drained.answered.all()) == (80, True)
        assert np.bincount(drained.path[::2]).tolist() == [5] * 8
    else:
        assert drained is None
    assert prober.counters["probes_answered"] == (80 if peers else 0)
    assert prober.counters["probes_lost"] == prober.counters["probes_unsent"] == 0


def test_requests_beside_the_schedule_wait_for_room_and_are_not_told_when_it_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    prober = make_prober(monkeypatch, FakeDataplane(), schedule([]))
    told: list[object] = []
    times = abi.SLOTS // MAX_BATCH
    for place in range(times + 1):
        assert prober.ask(_requests(MAX_BATCH), START_NS, lambda *of: told.append(of)) == (place < times)
    prober.close()
    assert (told, prober.counters["probes_abandoned"]) == ([], 0)
