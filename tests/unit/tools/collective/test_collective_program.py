"""Collectives of processes on this host: their results, who sends what when, and over which queue pairs."""

import itertools

import pytest
from collective_world import Run

from tools.collective import Collective, Truth

KB = 1024
IN_FLIGHT = 8


def by_connection(truth: Truth) -> dict[tuple[str, int, int, int], list[dict[str, int]]]:
    """The chunks of each call to a peer by a channel, in the order in which they were posted."""
    chunks = sorted(truth.chunks, key=lambda chunk: chunk["posted_ns"])
    ways: dict[tuple[str, int, int, int], list[dict[str, int]]] = {}
    for chunk in chunks:
        way = chunk["function"], chunk["seq"], chunk["peer"], chunk["channel"]
        ways.setdefault(way, []).append(chunk)
    return ways


@pytest.mark.parametrize("ranks", [2, 3, 4])
@pytest.mark.parametrize("channels", [1, 2])
def test_an_all_reduce_goes_round_a_ring_twice(run: Run, ranks: int, channels: int) -> None:
    what = Collective(bytes=120 * KB, chunk_bytes=8 * KB, iterations=3, more=("--channels", str(channels)))
    for rank, truth in enumerate(run.to_the_end(what, ranks)):
        ways = by_connection(truth)
        assert set(ways) == {
            ("AllReduce", seq, (rank + 1) % ranks, channel) for seq in range(3) for channel in range(channels)
        }
        for chunks in ways.values():
            assert [chunk["step"] for chunk in chunks] == list(range(len(chunks)))
            assert sum(chunk["bytes"] for chunk in chunks) == 120 * KB // channels // ranks * 2 * (ranks - 1)
        assert [(call["seq"], call["bytes"]) for call in truth.calls] == [(seq, 120 * KB) for seq in range(3)]


def test_an_all_to_all_is_a_call_to_and_from_each_peer(run: Run) -> None:
    what = Collective("all-to-all", bytes=40 * KB, chunk_bytes=16 * KB, iterations=2)
    for rank, truth in enumerate(run.to_the_end(what, 4)):
        calls = [(call["function"], call["seq"], call["peer"]) for call in truth.calls]
        to, others = [(rank + i) % 4 for i in (1, 2, 3)], [(rank - i) % 4 for i in (1, 2, 3)]
        assert [call for call in calls if call[0] == "Send"] == [("Send", i, to[i % 3]) for i in range(6)]
        assert [call for call in calls if call[0] == "Recv"] == [("Recv", i, others[i % 3]) for i in range(6)]
        for chunks in by_connection(truth).values():
            assert [chunk["bytes"] for chunk in chunks] == [16 * KB, 16 * KB, 8 * KB]


def test_even_ranks_send_to_the_next_one(run: Run) -> None:
    what = Collective("send", bytes=96 * KB, chunk_bytes=16 * KB, more=("--channels", "3"))
    truths = run.to_the_end(what, 4)
    assert [{chunk["peer"] for chunk in truth.chunks} for truth in truths] == [{1}, set(), {3}, set()]
    assert [[call["function"] for call in truth.calls] for truth in truths] == [["Send"], ["Recv"]] * 2


def test_no_more_than_eight_chunks_of_a_connection_are_under_way(run: Run) -> None:
    truths = run.to_the_end(Collective("send", bytes=512 * KB, chunk_bytes=4 * KB))
    for chunks in by_connection(truths[0]).values():
        for first, later in zip(chunks, chunks[IN_FLIGHT:], strict=False):
            assert first["done_ns"] <= later["posted_ns"]


def test_chunks_take_queue_pairs_in_turn(run: Run) -> None:
    what = Collective("send", bytes=96 * KB, chunk_bytes=8 * KB, iterations=2, more=("--qps", "3"))
    chunks = run.to_the_end(what)[0].chunks
    turns = [chunk["qpn"] for chunk in chunks[:3]]
    assert len(set(turns)) == 3
    assert [chunk["qpn"] for chunk in chunks] == list(itertools.islice(itertools.cycle(turns), len(chunks)))
    assert {chunk["work_requests"] for chunk in chunks} == {1}


@pytest.mark.parametrize(
    ("options", "requests"),
    [
        (("--qps", "3", "--split"), 3),
        (("--adaptive-routing",), 2),
        (("--qps", "2", "--split", "--adaptive-routing"), 4),
    ],
)
def test_work_requests_of_a_chunk(run: Run, options: tuple[str, ...], requests: int) -> None:
    what = Collective("send", bytes=200 * KB, chunk_bytes=50 * KB, more=options)
    chunks = run.to_the_end(what)[0].chunks
    assert {chunk["work_requests"] for chunk in chunks} == {requests}
    assert len({chunk["wr_id"] for chunk in chunks}) == len(chunks)


def test_a_slow_rank_makes_all_iterations_long(run: Run) -> None:
    what = Collective(iterations=3, more=("--compute-ms", "40", "--slow-rank", "1", "--slow", "150%"))
    truths = run.to_the_end(what)
    ready_ms = [
        {(each["gpu_ready_ns"] - each["begin_ns"]) // 10**6 for each in truth.iterations} for truth in truths
    ]
    assert ready_ms == [{40}, {100}]
    for truth in truths:
        assert all(each["end_ns"] - each["begin_ns"] > 60_000_000 for each in truth.iterations)


def test_a_receiver_that_stands_still_is_waited_for(run: Run) -> None:
    still = ("--stall-rank", "1", "--stall-ms", "150", "--stall-every-ms", "300")
    truth = run.to_the_end(Collective("send", bytes=64 * KB, chunk_bytes=4 * KB, more=still))[0]
    assert truth.chunks[0]["posted_ns"] - truth.iterations[0]["begin_ns"] > 100_000_000
