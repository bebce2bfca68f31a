"""With the shim and the plug-in: each chunk in the ring has the queue pair and the work requests by which it was sent."""

from collections.abc import Iterator
from contextlib import ExitStack

import numpy as np
import pytest
from collective_world import TIMEOUT_S, Run
from numpy.typing import NDArray

from cwdp.nccl.ring import CALL, GPU, OP_END, PEER, STEP, WIRE, Ring
from tools.collective import Collective, Truth
from tools.nccl import FakeAgent

KB = 1024
FUNCTIONS = {"AllReduce": 2, "Recv": 6, "Send": 10}
SHAPES = {
    "one chunk": Collective("send", bytes=4 * KB, chunk_bytes=4 * KB),
    "a ring": Collective(bytes=120 * KB, chunk_bytes=4 * KB, iterations=3, more=("--channels", "2")),
    "to all": Collective(
        "all-to-all", bytes=64 * KB, chunk_bytes=8 * KB, iterations=3, more=("--channels", "2")
    ),
    "in turn": Collective(bytes=120 * KB, chunk_bytes=8 * KB, more=("--qps", "4")),
    "split": Collective(
        "all-to-all",
        bytes=120 * KB,
        chunk_bytes=40 * KB,
        more=("--qps", "2", "--split", "--adaptive-routing"),
    ),
}


def observed(
    run: Run, agent: FakeAgent, what: Collective, ranks: int, **environment: str
) -> list[tuple[Truth, NDArray[np.void]]]:
    """What each rank says, and what is in its ring."""
    with ExitStack() as stack:
        job = stack.enter_context(run.started(what, ranks, run.observed(agent.path, **environment)))
        rings = [agent.accept(TIMEOUT_S) for _ in range(ranks)]
        truths = job.finish(TIMEOUT_S)
    assert [(truth.status, truth.error) for truth in truths] == [(0, "")] * ranks
    assert [(truth.end["wrong"], truth.end["profiler_failed"]) for truth in truths] == [(0, 0)] * ranks
    by_pid = {ring.pid: ring for ring in rings}
    return [(truth, _whole(by_pid[truth.begin["pid"]])) for truth in truths]


def _whole(ring: Ring) -> NDArray[np.void]:
    assert not any(ring.counts().values())
    return ring.read()


def sent(records: NDArray[np.void]) -> Iterator[tuple[int, ...]]:
    """What the plug-in says of chunks that were sent."""
    steps = records[(records["kind"] == STEP) & (records["is_send"] == 1)]
    names = ("function", "seq", "peer", "channel", "step", "bytes", "qpn", "wr_id", "posts")
    return zip(*(steps[name].tolist() for name in names), strict=True)


def posted(truth: Truth) -> Iterator[tuple[int, ...]]:
    """The same as the program knows it."""
    names = ("seq", "peer", "channel", "step", "bytes", "qpn", "wr_id", "work_requests")
    for chunk in truth.chunks:
        yield FUNCTIONS[chunk["function"]], *(chunk[name] for name in names)


@pytest.mark.parametrize("shape", SHAPES)
def test_every_chunk_has_its_queue_pair(run: Run, agent: FakeAgent, shape: str) -> None:
    for truth, records in observed(run, agent, SHAPES[shape], 2 if shape == "one chunk" else 3):
        assert sorted(sent(records)) == sorted(posted(truth))


@pytest.mark.parametrize("version", [1, 2, 3, 4, 5, 6])
def test_versions_before_the_fourth_know_no_queue_pair(run: Run, agent: FakeAgent, version: int) -> None:
    what = Collective(bytes=64 * KB, chunk_bytes=8 * KB, more=("--profiler-version", str(version)))
    for truth, records in observed(run, agent, what, 2):
        assert truth.begin["profiler_version"] == version
        told = [row if version >= 4 else (*row[:5], 0, 0, 0, 0) for row in posted(truth)]
        assert sorted(sent(records)) == sorted(told)


def test_without_the_shim_there_are_chunks_without_queue_pairs(run: Run, agent: FakeAgent) -> None:
    for truth, records in observed(run, agent, SHAPES["a ring"], 2, NCCL_IBVERBS_LIB="libibverbs.so.1"):
        assert sorted(sent(records)) == sorted((*row[:6], 0, 0, 0) for row in posted(truth))


def test_without_an_agent_nothing_is_asked_for(run: Run, agent: FakeAgent) -> None:
    agent.close()
    truths = run.to_the_end(SHAPES["a ring"], 2, run.observed(agent.path))
    assert [(truth.begin["profiler_version"], truth.begin["mask"]) for truth in truths] == [(6, 0)] * 2


def test_calls_operations_and_times(run: Run, agent: FakeAgent) -> None:
    for truth, records in observed(run, agent, SHAPES["to all"], 3):
        calls, steps = records[records["kind"] == CALL], records[records["kind"] == STEP]
        names = ("function", "seq", "peer", "bytes")
        assert list(zip(*(calls[name].tolist() for name in names), strict=True)) == [
            (FUNCTIONS[call["function"]], *(call[name] for name in names[1:])) for call in truth.calls
        ]
        assert np.count_nonzero(records["kind"] == OP_END) == 2 * len(calls)
        sums = {is_send: int(steps["bytes"][steps["is_send"] == is_send].sum()) for is_send in (0, 1)}
        assert sums == {0: 3 * 2 * 64 * KB, 1: 3 * 2 * 64 * KB}
        posted_ns = {chunk["wr_id"]: (chunk["posted_ns"], chunk["done_ns"]) for chunk in truth.chunks}
        for step in steps[steps["is_send"] == 1]:
            handed_ns = int(step["begin_ns"] + step["wait_ns"][: PEER + 1].sum())
            began_ns, done_ns = posted_ns[int(step["wr_id"])]
            assert began_ns <= handed_ns <= step["begin_ns"] + step["lasted_ns"]
            assert done_ns <= step["begin_ns"] + step["lasted_ns"]


def test_a_receiver_that_stands_still_is_seen_by_its_peer(run: Run, agent: FakeAgent) -> None:
    still = ("--stall-rank", "1", "--stall-ms", "100", "--stall-every-ms", "200")
    what = Collective("send", bytes=64 * KB, chunk_bytes=4 * KB, iterations=60, more=still)
    (_, records), _ = observed(run, agent, what, 2)
    waits_ns = records["wait_ns"][records["kind"] == STEP]
    assert waits_ns[:, PEER].max() > 50_000_000
    assert waits_ns[:, PEER].sum() > 4 * waits_ns.sum(axis=0)[[GPU, WIRE]].sum()


def test_a_slow_rank_waits_for_its_own_gpu(run: Run, agent: FakeAgent) -> None:
    what = Collective(
        bytes=64 * KB, chunk_bytes=8 * KB, more=("--compute-ms", "20", "--slow-rank", "1", "--slow", "400%")
    )
    for rank, (_, records) in enumerate(observed(run, agent, what, 2)):
        first = records[(records["kind"] == STEP) & (records["is_send"] == 1) & (records["step"] == 0)]
        assert (int(first["wait_ns"][0][GPU]) > 90_000_000) == (rank == 1)
