"""NCCL's calls played to the plug-in, by each version of the interface, and what of them is in the ring."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from cwdp.nccl.ring import CALL, FLUSH, GPU, OP_BEGIN, OP_END, PEER, RECORDS, STEP, WIRE, Comm, Ring
from tools.nccl import Built, FakeAgent, Player

VERSIONS = (1, 2, 3, 4, 5, 6)
EVENTS, NONE = 30, 0
ALL_REDUCE, SEND = 2, 10
SLOTS = 8192
Start = Callable[..., tuple[Player, Ring]]


@pytest.fixture
def start(built: Built, agent: FakeAgent) -> Iterator[Start]:
    """A program with a communicator, and its ring."""
    with ExitStack() as stack:

        def started(version: int = 6, **environment: str) -> tuple[Player, Ring]:
            player = stack.enter_context(Player(built, version, agent.path, **environment))
            player.tell("init 17")
            ring = agent.accept()
            assert player.answer() == ["mask", str(EVENTS)]
            return player, ring

        yield started


def of_kind(records: NDArray[np.void], kind: int) -> NDArray[np.void]:
    return records[records["kind"] == kind]


@pytest.mark.parametrize("version", VERSIONS)
def test_all_events_in_order(start: Start, version: int) -> None:
    player, ring = start(version)
    assert player.do("play 2 2 3 5") == 0
    records = ring.read()
    of_a_call = [CALL, *[OP_BEGIN, STEP, STEP, STEP, OP_END] * 2]
    assert records["kind"].tolist() == of_a_call * 2
    assert records["seq"].tolist() == [5] * 11 + [6] * 11
    assert set(records["function"].tolist()) == {ALL_REDUCE}
    assert set(records["comm"].tolist()) == {0}
    assert set(records["pid"].tolist()) == {player.pid}
    assert of_kind(records, CALL)["bytes"].tolist() == [4000, 4000]
    assert of_kind(records, OP_END)["channel"].tolist() == [0, 1, 0, 1]
    assert of_kind(records, STEP)["is_send"].tolist() == [1, 1, 1, 0, 0, 0] * 2
    assert of_kind(records, STEP)["step"].tolist() == [0, 1, 2] * 4
    assert set(of_kind(records, STEP)["peer"].tolist()) == {1}
    assert set(of_kind(records, STEP)["bytes"].tolist()) == {4096 if version >= 4 else 0}
    ends = records["begin_ns"] + records["lasted_ns"]
    assert (np.diff(ends.astype(np.int64)) >= 0).all()
    assert not any(ring.counts().values())


@pytest.mark.parametrize("version", VERSIONS)
def test_a_chunk_has_the_work_requests_of_its_last_attempt(start: Start, version: int) -> None:
    player, ring = start(version)
    assert player.do("play 2 2 3 5") == 0
    steps = of_kind(ring.read(), STEP)
    told = [tuple(step) for step in steps[["qpn", "wr_id", "posted_bytes", "posts"]].tolist()]
    joined = (17, 3, 4096, 2) if version >= 4 else (0, 0, 0, 0)
    assert told == [joined if sent else (0, 0, 0, 0) for sent in steps["is_send"]]


@pytest.mark.parametrize("version", VERSIONS)
def test_waits_add_up_to_what_a_step_lasted(start: Start, version: int) -> None:
    player, ring = start(version)
    player.do("play 1 2 50 0")
    steps = of_kind(ring.read(), STEP)
    waits = steps["wait_ns"]
    assert (waits.sum(axis=1) == steps["lasted_ns"]).all()
    sent, received = waits[steps["is_send"] == 1], waits[steps["is_send"] == 0]
    assert sent[:, GPU].any()
    assert sent[:, WIRE].any()
    assert sent[:, PEER].any() == (version >= 4)
    assert not sent[:, FLUSH].any()
    assert received[:, FLUSH].any()
    assert not received[:, PEER].any()


@pytest.mark.parametrize("version", VERSIONS)
def test_what_is_known_of_a_communicator(start: Start, version: int) -> None:
    player, ring = start(version)
    player.do("play 1 0 0 0")
    told = Comm(17, 3, 8, 2, "played") if version >= 4 else Comm(0x11, 3, 0, 0, "")
    assert ring.comm(0) == told
    assert ring.comm(1024) is None


@pytest.mark.parametrize("version", VERSIONS)
def test_point_to_point_calls_are_numbered_here(start: Start, version: int) -> None:
    player, ring = start(version)
    assert player.do("p2p 3 1 1") == 0
    records = ring.read()
    calls = of_kind(records, CALL)
    assert calls["seq"].tolist() == [0, 1, 2]
    assert calls["peer"].tolist() == [1, 1, 1]
    assert set(records["function"].tolist()) == {SEND}
    assert of_kind(records, STEP)["seq"].tolist() == [0, 1, 2]


def test_a_full_ring_drops_and_counts(start: Start) -> None:
    player, ring = start()
    assert player.do(f"play {RECORDS + 100} 0 0 0") == 0
    assert ring.counts()["records_dropped"] == 100
    first = ring.read()
    assert first["seq"].tolist() == list(range(RECORDS))
    assert len(ring.read()) == 0
    player.do("play 3 0 0 7")
    assert ring.read()["seq"].tolist() == [7, 8, 9]


def test_it_goes_round_many_times(start: Start) -> None:
    player, ring = start()
    seen = []
    for turn in range(5):
        player.do(f"play 20000 0 0 {turn * 20000}")
        seen += [*ring.read(15000)["seq"].tolist(), *ring.read()["seq"].tolist()]
    assert seen == list(range(100_000))


def test_threads_at_once_lose_nothing(start: Start) -> None:
    player, ring = start()
    player.tell("threads 4 500 2 4")
    taken = []
    while (got := sum(map(len, taken))) < 4 * 500 * 13:
        taken.append(ring.read())
        assert got + ring.counts()["records_dropped"] == got
    assert player.answer() == ["failed", "0"]
    records = np.concatenate(taken)
    assert len(ring.read()) == 0
    assert np.bincount(of_kind(records, STEP)["seq"].astype(int)).tolist() == [8] * 2000
    assert np.bincount(of_kind(records, OP_END)["seq"].astype(int)).tolist() == [2] * 2000


def test_no_agent(built: Built, agent: FakeAgent, tmp_path: Path) -> None:
    with Player(built, 6, tmp_path / "none") as player:
        assert player.do("init 1") == NONE
        player.do("play 5 2 2 0")
        assert len([*Path(f"/proc/{player.pid}/fd").iterdir()]) == 3
        assert player.end() == (0, "")


def test_a_later_communicator_meets_an_agent_that_came_late(built: Built, tmp_path: Path) -> None:
    with Player(built, 6, tmp_path / "late") as player:
        assert player.do("init 1") == NONE
        with FakeAgent(tmp_path / "late") as agent:
            assert player.do("init 2") == EVENTS
            ring = agent.accept()
            assert player.do("play 1 1 1 0") == 0
            assert len(ring.read()) == 4


def test_turned_off(built: Built) -> None:
    with Player(built, 6, "off") as player:
        assert player.do("init 1") == NONE


def test_a_new_agent_gets_the_same_ring(start: Start, agent: FakeAgent) -> None:
    player, ring = start()
    player.do("play 2 1 1 0")
    assert len(ring.read(3)) == 3
    agent.close()
    player.do("play 1 0 0 9")
    with FakeAgent(agent.path) as newer:
        assert player.do("init 18") == EVENTS
        again = newer.accept()
        assert again.read()["seq"].tolist() == [0, 1, 1, 1, 1, 9]
        assert again.comm(1) == Comm(18, 3, 8, 2, "played")


def test_calls_look_for_a_new_agent_by_themselves(start: Start, agent: FakeAgent) -> None:
    player, _ = start()
    agent.close()
    with FakeAgent(agent.path) as newer:
        player.do("paced 1000 3")
        assert len(newer.accept().read()) > 0


def test_a_child_has_a_ring_of_its_own(start: Start, agent: FakeAgent) -> None:
    player, ring = start()
    player.tell("fork")
    childs = agent.accept()
    assert player.answer() == ["child", "0"]
    assert len(ring.read()) == 0
    records = childs.read()
    assert records["kind"].tolist() == [CALL, OP_BEGIN, STEP, OP_END]
    assert childs.pid != ring.pid
    assert player.do("play 1 0 0 0") == 0
    assert len(ring.read()) == 1


def test_wrong_arguments_do_nothing(start: Start) -> None:
    player, ring = start()
    assert player.do("wrong") == 0
    assert ring.counts()["handles_stale"] > 0
    ring.read()
    assert player.do("play 1 1 1 0") == 0
    assert len(ring.read()) == 4


def test_too_many_events_under_way_are_not_followed(start: Start) -> None:
    player, ring = start()
    assert player.do(f"hold {SLOTS + 5}") == 5
    assert ring.counts()["events_unfollowed"] == 5
    assert player.do("play 1 0 0 0") == 0


def test_an_operation_for_another_process_keeps_its_name(start: Start) -> None:
    player, ring = start()
    call = 1 << 60 | ALL_REDUCE << 56 | 700 << 44 | 12345
    assert player.do(f"foreign 4242 {call:x}") == 0
    records = ring.read()
    assert records["kind"].tolist() == [OP_BEGIN, STEP, OP_END]
    assert set(records["pid"].tolist()) == {4242}
    assert set(records["comm"].tolist()) == {700}
    assert set(records["seq"].tolist()) == {12345}


def test_loaded_again(start: Start) -> None:
    player, ring = start()
    player.do("play 1 1 1 0")
    player.do("finalize")
    assert player.do("reopen") == 0
    assert player.do("init 18") == EVENTS
    assert player.do("play 1 1 1 0") == 0
    assert ring.read()["comm"].tolist() == [0] * 4 + [1] * 4


def test_communicators_beyond_its_places_are_not_followed(start: Start) -> None:
    player, ring = start()
    for _ in range(1024):
        assert player.do("init 5") == EVENTS
    assert ring.counts()["comms_unfollowed"] == 1
    assert player.do("play 1 1 1 0") == 0
    assert [kind for kind in ring.read()["kind"].tolist() if kind == CALL] == []


def test_descriptors_that_the_program_closed_are_not_used(start: Start) -> None:
    player, ring = start()
    player.do("closefds")
    assert player.do("init 18") == EVENTS
    assert player.do("play 1 0 0 0") == 0
    assert len(ring.read()) == 1


def test_the_job_is_told(start: Start) -> None:
    _, ring = start(SLURM_JOB_ID="4711\n")
    assert ring.job == "SLURM_JOB_ID=4711?"
