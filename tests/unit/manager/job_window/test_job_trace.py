"""`/v1/trace`, and the trace that `cwdp job NAME --trace` makes of it: exact, in order, bounded."""

import asyncio
import json
from collections import defaultdict
from decimal import Decimal
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from job_fleet import NAMES, OWD_NS, PROBED_NS, QUEUED_NS, JobFleet

from cwdp.cli.chrome_trace import chrome_trace, left_out
from cwdp.shared.bus.collectives import (
    CALL_ROW,
    CHUNK_ROW,
    FUNCTIONS,
    OVER,
    PEER_ROW,
    CollectiveReport,
    Communicator,
)
from cwdp.shared.bus.packing import row_bytes
from cwdp.shared.bus.records import EGRESS, INGRESS
from manager.job_window import answers
from manager.job_window.gathered import gather
from manager.jobs.inference import Job
from tools.sim.jobs.judging import NOW_NS
from tools.sim.jobs.world import named

SINCE_NS = NOW_NS - 10 * 10**9 + 7


def job_of(fleet: JobFleet) -> Job:
    (found,) = fleet.state.jobs.jobs
    return found


def answer_of(fleet: JobFleet, since_ns: int = SINCE_NS) -> dict[str, Any]:
    window = asyncio.run(gather(fleet.state, fleet.name, job_of(fleet), since_ns, NOW_NS))
    return json.loads(json.dumps(answers.trace(window)))  # type: ignore[no-any-return]


def trace_of(answer: dict[str, Any]) -> dict[str, Any]:
    """As a program reads it, decimals whole."""
    return json.loads("".join(chrome_trace(answer)), parse_float=Decimal)  # type: ignore[no-any-return]


def ns(microseconds: Decimal) -> int:
    found = microseconds * 1000
    assert found == int(found)
    return int(found)


@pytest.fixture(scope="module")
def fleet() -> JobFleet:
    made = JobFleet()
    made.stamp()
    made.probe()
    return made


def test_every_burst_is_there_to_the_nanosecond(fleet: JobFleet) -> None:
    trace = trace_of(answer_of(fleet))
    assert trace["displayTimeUnit"] == "ns"
    assert trace["otherData"]["timeline_since_ns"] == str(SINCE_NS)
    assert trace["otherData"]["left_out"] == {
        "queue_pairs": 0,
        "bursts": 0,
        "nic_pairs": 0,
        "links": 0,
        "chunks": 0,
    }
    names = {
        event["pid"]: event["args"]["name"]
        for event in trace["traceEvents"]
        if event["name"] == "process_name"
    }
    found = defaultdict(set)
    for event in trace["traceEvents"]:
        if event["ph"] == "X" and "args" in event:
            args = event["args"]
            start_ns = SINCE_NS + ns(event["ts"]) - args.get("began_before_ns", 0)
            told = args["direction"], args["peer"], args["qpn"], args["bytes"], args["packets"]
            found[names[event["pid"]]].add((start_ns, SINCE_NS + ns(event["ts"]) + ns(event["dur"]), *told))
    for nic in NAMES:
        rows = fleet.world.rings[named(nic)]
        rows = rows[(rows["end_ns"] >= SINCE_NS) & (rows["start_ns"] <= NOW_NS)]
        assert len(rows) > 20
        assert found[nic] == {
            (
                int(row["start_ns"]),
                int(row["end_ns"]),
                {EGRESS: "sent", INGRESS: "came"}[int(row["direction"])],
                fleet.world.owners[row["addr"].tobytes()],
                int(row["qpn"]),
                int(row["bytes"]),
                int(row["packets"]),
            )
            for row in rows
        }


def test_events_are_in_order_and_slices_of_a_track_do_not_overlap(fleet: JobFleet) -> None:
    events = [event for event in trace_of(answer_of(fleet))["traceEvents"] if event["ph"] != "M"]
    times = [ns(event["ts"]) for event in events]
    assert times == sorted(times)
    assert times[0] >= 0
    tracks = defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            tracks[event["tid"]].append((ns(event["ts"]), ns(event["dur"])))
    assert len(tracks) == 1 + 2 * len(NAMES)
    for slices in tracks.values():
        assert all(start + lasts <= later for (start, lasts), (later, _) in pairwise(slices))


def test_iterations_delays_and_queues_are_on_the_same_axis(fleet: JobFleet) -> None:
    trace = trace_of(answer_of(fleet))
    events = trace["traceEvents"]
    starts_ns = job_of(fleet).starts_ns
    iterations = [event for event in events if event["name"].startswith("iteration ")]
    assert [SINCE_NS + ns(event["ts"]) for event in iterations] == starts_ns[starts_ns >= SINCE_NS][
        :-1
    ].tolist()
    counters = defaultdict(list)
    for event in events:
        if event["ph"] == "C":
            counters[event["name"].split(",")[0]].append(event["args"])
    assert {args["ns"] for args in counters["delay of data to h2/nic0"]} == {OWD_NS}
    assert [args["mean ns"] for args in counters["delay of probes to h2/nic0"]][::29] == [
        PROBED_NS,
        PROBED_NS + QUEUED_NS,
    ]
    queues = {name: args for name, args in counters.items() if name.startswith("queue ")}
    longest = max(args[-1]["ns"] for args in queues.values())
    assert QUEUED_NS / 3 < longest < 1.2 * QUEUED_NS
    assert max(args["bit/s"] for args in counters["sends"]) > 1e9
    assert left_out(answer_of(fleet)) is None


def test_ends_that_are_told_later_than_the_next_beginning_are_cut(fleet: JobFleet) -> None:
    answer = answer_of(fleet) | {"starts_ns": [], "changes": [], "delays": [], "probes": [], "queues": []}
    rows = [
        [SINCE_NS - 5, SINCE_NS + 900],
        [SINCE_NS + 600, SINCE_NS + 600],
        [SINCE_NS + 601, SINCE_NS + 2_001],
    ]
    sent = [row + [0] * (len(answers.BURST) - 2) for row in rows]
    answer["queue_pairs"] = [{"src": "a/b", "dst": "c/d", "qpn": 3, "sent": sent, "came": []}]
    found = [event for event in trace_of(answer)["traceEvents"] if event["ph"] == "X"]
    assert [(str(event["ts"]), str(event["dur"])) for event in found] == [
        ("0.000", "0.600"),
        ("0.600", "0.000"),
        ("0.601", "1.400"),
    ]
    assert [event["args"].get("began_before_ns") for event in found] == [5, None, None]


def test_what_does_not_fit_is_left_out_and_counted(fleet: JobFleet, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = answer_of(fleet)
    counts = [len(each["sent"]) + len(each["came"]) for each in whole["queue_pairs"]]
    monkeypatch.setattr(answers, "MOST_BURSTS", counts[0] + counts[1])
    answer = answer_of(fleet)
    assert [each["qpn"] for each in answer["queue_pairs"]] == [
        each["qpn"] for each in whole["queue_pairs"][:2]
    ]
    assert answer["left_out"] == {
        "queue_pairs": 2,
        "bursts": sum(counts[2:]),
        "nic_pairs": 0,
        "links": 0,
        "chunks": 0,
    }
    assert left_out(answer) == f"2 queue pairs, those that send least, {sum(counts[2:])} bursts of these"


def test_what_is_not_kept_any_more_is_told() -> None:
    fleet = JobFleet()
    fleet.fill("h2/nic0", NOW_NS - 5 * 10**9)
    answer = answer_of(fleet)
    assert answer["whole_since_ns"] == fleet.state.traffic.bursts.whole_since_ns(("h2", "nic0")) > SINCE_NS
    assert "of which not all are kept" in str(left_out(answer))


def test_a_job_of_which_nothing_else_is_known_has_bursts_all_the_same() -> None:
    answer = answer_of(JobFleet())
    assert answer["delays"] == answer["probes"] == answer["queues"] == []
    assert len(answer["queue_pairs"]) == len(NAMES)
    assert trace_of(answer)["traceEvents"]
    empty = answer_of(JobFleet(), NOW_NS - 10**6)
    assert [each for each in empty["queue_pairs"] if each["sent"]] == []
    assert not [event for event in trace_of(empty)["traceEvents"] if event["ph"] == "X"]


def test_values_for_charts_are_those_of_the_trace(fleet: JobFleet) -> None:
    since_ns = NOW_NS - 30 * 10**9
    window = asyncio.run(gather(fleet.state, fleet.name, job_of(fleet), since_ns, NOW_NS))
    found = answers.series(window, 1.7e9)
    json.dumps(found)
    assert len(found["from_s"]) == len(found["bps"]) == len(found["owd_p50_ns"]) == 300
    assert found["from_s"][0] == 1.7e9 - 30
    left = window.flows.left.bursts
    sent = int(left.bytes[left.start_ns >= since_ns].sum())
    carried = sum(bps * 0.1 / 8 for bps in found["bps"] if bps is not None)
    assert carried == pytest.approx(sent, rel=0.05)
    assert found["bps"][-1] is None
    assert {value for value in found["owd_p50_ns"] if value is not None} == {OWD_NS}
    assert found["probe_owd_ns"][-2] == PROBED_NS + QUEUED_NS
    lasted_ns = np.diff(job_of(fleet).starts_ns)
    assert found["iterations"]["duration_ns"] == lasted_ns.tolist()
    assert found["iterations"]["start_s"][-1] == pytest.approx(
        1.7e9 - (NOW_NS - int(job_of(fleet).starts_ns[-2])) * 1e-9, abs=1e-3
    )


CHUNKS = 6
WAITED_NS = (10, 20, 0, 2_900_000, 0)


def reduce_all(fleet: JobFleet, seq: int, start_ns: int) -> None:
    """Each rank tells of an all-reduce, in six chunks to the next one, each a ms after the one before."""
    for rank, nic in enumerate(NAMES):
        calls, peers, chunks = np.zeros(1, CALL_ROW), np.zeros(0, PEER_ROW), np.zeros(CHUNKS, CHUNK_ROW)
        calls["function"], calls["flags"], calls["seq"] = FUNCTIONS.index("AllReduce"), OVER, seq
        calls["start_ns"], calls["end_ns"], calls["bytes"] = start_ns + rank, start_ns + 20_000_001, 10**6
        chunks["peer"], chunks["is_send"], chunks["bytes"] = (rank + 1) % len(NAMES), 1, 512
        chunks["begin_ns"] = start_ns + 1_000_003 * np.arange(CHUNKS)
        chunks["wait_ns"] = WAITED_NS
        chunks["qpn"], chunks["wr_id"], chunks["posts"] = 77, np.arange(CHUNKS), 1
        comm = Communicator(
            id=2**63 + 5, name="dp", rank=rank, ranks=len(NAMES), nodes=len(NAMES), pid=100 + rank, job=""
        )
        report = CollectiveReport(
            host=named(nic)[0],
            comms=[comm],
            calls=row_bytes(calls),
            peers=row_bytes(peers),
            chunks=row_bytes(chunks),
        )
        fleet.state.collectives.hear(report, [named(each)[0] for each in NAMES], NOW_NS)


def test_calls_of_ranks_and_their_chunks_are_on_the_same_axis() -> None:
    """Each chunk to the nanosecond with what it waited for in it; those that overlap in threads beside each other."""
    fleet = JobFleet()
    begun_ns = NOW_NS - 3 * 10**9 + 1
    reduce_all(fleet, 1, begun_ns)
    reduce_all(fleet, 2, SINCE_NS - 10_000_000)
    reduce_all(fleet, 3, SINCE_NS - 10**9)
    trace = trace_of(answer_of(fleet))
    names = {e["pid"]: e["args"]["name"] for e in trace["traceEvents"] if e["name"] == "process_name"}
    threads = {e["tid"]: e["args"]["name"] for e in trace["traceEvents"] if e["name"] == "thread_name"}
    for rank in range(len(NAMES)):
        name = f"rank {rank}, h{rank + 1}, process {100 + rank}"
        mine = [e for e in trace["traceEvents"] if e["ph"] == "X" and names[e["pid"]] == name]
        calls = [e for e in mine if threads[e["tid"]] == "calls of dp"]
        assert [(e["name"], e["args"].get("began_before_ns")) for e in calls] == [
            ("AllReduce 2, 1MB", 10_000_000 - rank),
            ("AllReduce 1, 1MB", None),
        ]
        chunks = [e for e in mine if e["name"] == "512B" and ns(e["ts"]) + SINCE_NS >= begun_ns]
        assert [(ns(e["ts"]) + SINCE_NS - begun_ns, ns(e["dur"]), e["args"]["wr_id"]) for e in chunks] == [
            (1_000_003 * i, sum(WAITED_NS), i) for i in range(CHUNKS)
        ]
        assert len({e["tid"] for e in chunks}) == 3
        assert {threads[e["tid"]] for e in chunks} == {f"to rank {(rank + 1) % 4}, channel 0"}
        waits = [(e["name"], ns(e["ts"]) + SINCE_NS - begun_ns, ns(e["dur"])) for e in mine if not e["args"]]
        assert [each for each in waits if 0 <= each[1] < 10**6] == [
            ("buffer", 0, 10),
            ("gpu", 10, 20),
            ("network", 30, 2_900_000),
        ]


def test_more_chunks_than_fit_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "MOST_CHUNKS", 2 * CHUNKS + 1)
    fleet = JobFleet()
    reduce_all(fleet, 1, NOW_NS - 3 * 10**9)
    answer = answer_of(fleet)
    assert [len(rank["chunks"]) for rank in answer["calls"][0]["ranks"]] == [CHUNKS, CHUNKS, 0, 0]
    assert left_out(answer) == f"{2 * CHUNKS} chunks of calls"
