"""Collectives over real verbs: what the manager tells of them is what they were, chunk by chunk."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from tools.rdma.guest import COLLECTIVES
from tools.rdma.scenarios.collectives import (
    ALL_TO_ALL,
    PARTS,
    PLAIN,
    SEVERAL,
    SLOW,
    SLOW_RANK,
    STILL,
    STILL_RANK,
)

Report = dict[str, Any]
Chunk = tuple[Any, ...]

TOLD = (PLAIN, ALL_TO_ALL, SEVERAL)
NEAR_NS = 50_000_000
"""The machine is emulated, and its two processors are shared: a thread may stand still between two readings of the clock."""


@pytest.fixture(scope="module")
def collectives(report: Report) -> Report:
    found: Report = report[COLLECTIVES]
    if "error" in found:
        logs = [f"== {name}\n{text}" for name, text in found.get("logs", {}).items()]
        pytest.fail("\n".join([found["error"], *logs]))
    return found


@pytest.fixture(params=TOLD)
def part(request: pytest.FixtureRequest, collectives: Report) -> Report:
    found: Report = collectives[request.param]
    return found


def ranks_of(part: Report) -> Iterator[tuple[Report, Report]]:
    """Each rank's part of each call, with the call."""
    for call in part["told"]:
        for rank in call["by_rank"]:
            yield call, rank


def told_chunks(call: Report, rank: Report) -> Iterator[Chunk]:
    for chunk in rank["chunks"]:
        if chunk["direction"] == "out":
            names = ("peer", "channel", "step", "bytes", "qpn", "wr_id", "work_requests")
            yield (rank["rank"], call["function"], call["seq"], *(chunk[name] for name in names))


def true_chunks(part: Report) -> Iterator[tuple[Chunk, Report]]:
    for rank, truth in enumerate(part["truth"]):
        for chunk in truth["chunks"]:
            names = ("function", "seq", "peer", "channel", "step", "bytes", "qpn", "wr_id", "work_requests")
            yield (rank, *(chunk[name] for name in names)), chunk


@pytest.mark.parametrize("name", PARTS)
def test_all_ranks_have_the_right_result(collectives: Report, name: str) -> None:
    truths = collectives[name]["truth"]
    assert [(truth["status"], truth["error"]) for truth in truths] == [(0, "")] * len(truths)
    assert [truth["end"]["wrong"] for truth in truths] == [0] * len(truths)


def test_every_call_is_told_with_its_bytes(part: Report) -> None:
    told = Counter(
        (rank["rank"], call["function"], call["seq"], call["bytes"], rank["is_over"])
        for call, rank in ranks_of(part)
    )
    true = Counter(
        (rank, call["function"], call["seq"], call["bytes"], True)
        for rank, truth in enumerate(part["truth"])
        for call in truth["calls"]
    )
    assert told == true


def test_what_went_to_each_peer_is_told(part: Report) -> None:
    told, true = Counter[Chunk](), Counter[Chunk]()
    for call, rank in ranks_of(part):
        for peer in rank["peers"]:
            if peer["direction"] == "out":
                told[rank["rank"], call["function"], call["seq"], peer["peer"]] += peer["bytes"]
    for (rank, function, seq, peer, *_), chunk in true_chunks(part):
        true[rank, function, seq, peer] += chunk["bytes"]
    assert told == true


def test_every_chunk_that_is_told_is_one_that_was_sent(part: Report) -> None:
    true = {chunk for chunk, _ in true_chunks(part)}
    calls_told = 0
    for call, rank in ranks_of(part):
        told = set(told_chunks(call, rank))
        calls_told += bool(told)
        of_this_call = {chunk for chunk in true if chunk[:3] == (rank["rank"], call["function"], call["seq"])}
        assert told in (set(), of_this_call)
    assert calls_told


def test_when_chunks_were_handed_over_and_done(collectives: Report) -> None:
    """The timeline less the machine's clock is the same for all hosts, as they share one kernel."""
    part = collectives[PLAIN]
    true = dict(true_chunks(part))
    ahead_ns: list[int] = []
    for call, rank in ranks_of(part):
        chunks = [chunk for chunk in rank["chunks"] if chunk["direction"] == "out"]
        for name, chunk in zip(told_chunks(call, rank), chunks, strict=True):
            waits_ns = chunk["waits_ns"]
            handed_ns = chunk["start_ns"] + sum(waits_ns[kind] for kind in ("buffer", "gpu", "peer"))
            ahead_ns += [
                handed_ns - true[name]["posted_ns"],
                handed_ns + waits_ns["network"] - true[name]["done_ns"],
            ]
    assert max(ahead_ns) - min(ahead_ns) < NEAR_NS


def test_the_slow_rank_is_the_last_one(collectives: Report) -> None:
    calls = collectives[SLOW]["told"]
    assert [(call["last_rank"], call["wait"]) for call in calls] == [(SLOW_RANK, "gpu")] * len(calls)
    assert len(calls) == PARTS[SLOW].iterations


def test_the_rank_before_one_that_stands_still_waits_for_its_peer(collectives: Report) -> None:
    waited_ns = Counter[tuple[int, int]]()
    for _, rank in ranks_of(collectives[STILL]):
        for peer in rank["peers"]:
            if peer["direction"] == "out":
                waited_ns[rank["rank"], peer["peer"]] += peer["waits_ns"]["peer"]
    assert waited_ns.most_common(1)[0][0] == (STILL_RANK - 1, STILL_RANK)
