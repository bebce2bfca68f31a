"""Collectives over real verbs: what the manager tells of them is what they were, chunk by chunk."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from tools.rdma.guest import COLLECTIVES, COLLECTIVES_AGENTS
from tools.rdma.scenarios.collectives import agents
from tools.rdma.scenarios.collectives.parts import (
    ALL_TO_ALL,
    JOB,
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


@pytest.fixture(scope="module")
def collectives(report: Report) -> Report:
    return found(report, COLLECTIVES)


@pytest.fixture(scope="module")
def with_agents(report: Report) -> Report:
    return found(report, COLLECTIVES_AGENTS)


@pytest.fixture(params=[PLAIN, ALL_TO_ALL, SEVERAL, COLLECTIVES_AGENTS])
def part(request: pytest.FixtureRequest, report: Report) -> Report:
    if request.param == COLLECTIVES_AGENTS:
        return found(report, COLLECTIVES_AGENTS)
    one: Report = found(report, COLLECTIVES)[request.param]
    return one


def found(report: Report, name: str) -> Report:
    scenario: Report = report[name]
    if "error" in scenario:
        logs = [f"== {who}\n{text}" for who, text in scenario.get("logs", {}).items()]
        pytest.fail("\n".join([scenario["error"], *logs]))
    return scenario


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


def assert_right(truths: list[Report]) -> None:
    assert [(truth["status"], truth["error"]) for truth in truths] == [(0, "")] * len(truths)
    ends = [(truth["end"]["wrong"], truth["end"]["profiler_failed"]) for truth in truths]
    assert ends == [(0, 0)] * len(truths)


@pytest.mark.parametrize("name", PARTS)
def test_all_ranks_have_the_right_result(collectives: Report, name: str) -> None:
    assert_right(collectives[name]["truth"])


def test_they_have_it_beside_agents_too(with_agents: Report) -> None:
    assert_right(with_agents["truth"])


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


@pytest.mark.parametrize("name", [PLAIN, ALL_TO_ALL, SEVERAL])
def test_when_chunks_were_handed_over_and_done(collectives: Report, name: str) -> None:
    """Here the timeline is the clock of the machine: a chunk is posted before the plug-in is told so, and done before it hears of it."""
    true = dict(true_chunks(collectives[name]))
    for call, rank in ranks_of(collectives[name]):
        chunks = [chunk for chunk in rank["chunks"] if chunk["direction"] == "out"]
        for which, chunk in zip(told_chunks(call, rank), chunks, strict=True):
            waits_ns = chunk["waits_ns"]
            ready_ns = chunk["start_ns"] + waits_ns["buffer"]
            handed_ns = ready_ns + waits_ns["gpu"] + waits_ns["peer"]
            assert ready_ns <= true[which]["posted_ns"] <= handed_ns
            assert true[which]["done_ns"] <= handed_ns + waits_ns["network"]


@pytest.mark.parametrize("name", PARTS)
def test_nothing_was_lost_on_the_way_to_the_reader(collectives: Report, name: str) -> None:
    lost = ("plugin_records_dropped", "plugin_events_unfollowed", "plugin_handles_stale", "records_not_sane")
    for counters in collectives[name]["counters"].values():
        assert [counters[name] for name in lost] == [0] * len(lost)


def test_the_slow_rank_is_the_last_one(collectives: Report) -> None:
    assert_last(collectives[SLOW], SLOW_RANK, PARTS[SLOW].iterations)


def test_the_manager_says_so_too(with_agents: Report) -> None:
    assert_last(with_agents, agents.SLOW_RANK, agents.WHAT.iterations)


def test_the_slow_rank_is_why_the_job_is_slow_though_no_host_sees_its_packets(with_agents: Report) -> None:
    found = [each for each in with_agents["causes"] if each["kind"] != "unknown"]
    assert [(each["kind"], each["jobs"]) for each in found] == [("compute", [JOB])]
    (host,) = {rank["host"] for _, rank in ranks_of(with_agents) if rank["rank"] == agents.SLOW_RANK}
    assert found[0]["rank"].partition("/")[0] == host


def test_the_command_shows_them(with_agents: Report) -> None:
    """Wrapped where the terminal ends, so only a beginning is looked for."""
    assert with_agents["shown"].count("slurm") == agents.WHAT.iterations
    assert f"{agents.WHAT.iterations} collectives" in with_agents["shown"]


def assert_last(part: Report, rank: int, calls: int) -> None:
    last = [(call["job"], call["last_rank"], call["wait"]) for call in part["told"]]
    assert last == [(JOB, rank, "gpu")] * calls


def test_who_sends_to_a_rank_that_stands_still_waits_for_it_and_no_other_does(collectives: Report) -> None:
    waited_ns = Counter[tuple[int, int]]()
    for _, rank in ranks_of(collectives[STILL]):
        for peer in rank["peers"]:
            if peer["direction"] == "out":
                waited_ns[rank["rank"], peer["peer"]] += peer["waits_ns"]["peer"]
    (longest, longest_ns), (_, other_ns) = waited_ns.most_common(2)
    assert longest == (STILL_RANK - 1, STILL_RANK)
    assert longest_ns > 2 * other_ns
