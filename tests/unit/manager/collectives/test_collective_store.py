"""Calls put together from what ranks tell, and what is shown of them."""

from typing import Any

import numpy as np
import pytest

from cwdp.shared.bus.collectives import (
    CALL_ROW,
    CHUNK_ROW,
    ENQUEUED,
    FUNCTIONS,
    OVER,
    PEER_ROW,
    SLOW,
    CollectiveReport,
    Communicator,
)
from cwdp.shared.bus.packing import row_bytes
from manager.api.jobs.collective_metrics import collective_metrics
from manager.collectives.store import KEPT, MOST_JOBS, CollectiveStore
from manager.collectives.views import collectives

NOW = 10**15
MS = 1_000_000
ALL_REDUCE, SEND = FUNCTIONS.index("AllReduce"), FUNCTIONS.index("Send")
HOSTS = [f"h{n}" for n in range(8)]


def communicator(rank: int, job: str = "slurm:1", id_: int = 2**63 + 5) -> Communicator:
    return Communicator(id=id_, name="dp", rank=rank, ranks=4, nodes=4, pid=100 + rank, job=job)


def told(rank: int, *, job: str = "slurm:1", late_ns: int = 0, **call: Any) -> CollectiveReport:
    """A rank's part of a call, which waits for its GPU as long as it is late."""
    calls, peers, chunks = np.zeros(1, CALL_ROW), np.zeros(1, PEER_ROW), np.zeros(2, CHUNK_ROW)
    at = {
        "function": ALL_REDUCE, "flags": OVER, "seq": 7, "bytes": 4_000, "ops": 2, "chunks": 2,
        "enqueued_ns": NOW - 50 * MS, "start_ns": NOW + late_ns, "end_ns": NOW + 20 * MS, "peer": -1,
    }  # fmt: skip
    for name, value in (at | call).items():
        calls[name] = value
    peers["peer"], peers["is_send"], peers["chunks"] = (rank + 1) % 4, 1, 2
    peers["wait_ns"] = [[0, 2 * late_ns, 1 * MS, 3 * MS, 0]]
    chunks["wait_ns"] = 5
    chunks[0]["qpn"], chunks[0]["wr_id"], chunks[0]["posts"] = 0x77, 9, 2
    return CollectiveReport(
        host=f"h{rank}",
        comms=[communicator(rank, job)],
        calls=row_bytes(calls),
        peers=row_bytes(peers),
        chunks=row_bytes(chunks),
    )


def hear(store: CollectiveStore, *reports: CollectiveReport, now_ns: int | None = NOW) -> None:
    for report in reports:
        store.hear(report, HOSTS, now_ns)


def shown(store: CollectiveStore, **how: Any) -> list[dict[str, Any]]:
    answer = collectives(store, **{"job": "", "sort": "latest", "limit": 0} | how)
    return list(answer["collectives"])


def test_ranks_of_one_call_are_shown_together_with_the_last_one() -> None:
    store = CollectiveStore()
    hear(store, told(0), told(1, late_ns=8 * MS), told(2), told(3))
    (call,) = shown(store)
    assert (call["function"], call["seq"], call["bytes"]) == ("AllReduce", 7, 4_000)
    assert (call["job"], call["comm_name"], call["comm_id"]) == ("slurm:1", "dp", "8000000000000005")
    assert (call["ranks"], call["ranks_told"], call["is_over"]) == (4, 4, True)
    assert (call["last_rank"], call["last_host"], call["late_ns"]) == (1, "h1", 8 * MS)
    assert (call["wait"], call["wait_ns"]) == ("gpu", 8 * MS)
    assert call["lasted_ns"] == 20 * MS
    assert [rank["rank"] for rank in call["by_rank"]] == [0, 1, 2, 3]
    (peer,) = call["by_rank"][1]["peers"]
    assert (peer["peer"], peer["direction"], peer["waits_ns"]["network"]) == (2, "out", 3 * MS)
    chunks = call["by_rank"][1]["chunks"]
    joined = [(each["qpn"], each["wr_id"], each["work_requests"]) for each in chunks]
    assert joined == [(0x77, 9, 2), (None, None, 0)]


def test_one_that_stands_still_is_shown_until_it_is_over() -> None:
    store = CollectiveStore()
    hear(store, told(0), told(1, flags=0, open_ops=1))
    assert [call["is_over"] for call in shown(store)] == [False]
    hear(store, told(1, flags=OVER | SLOW))
    assert [(call["is_over"], call["is_slow"], call["ranks_told"]) for call in shown(store)] == [
        (True, True, 2)
    ]


def test_of_what_uprobes_saw_it_is_said_that_no_end_is_known() -> None:
    store = CollectiveStore()
    hear(store, told(0, flags=ENQUEUED, ops=0), told(1, flags=OVER))
    (call,) = shown(store)
    assert (call["is_over"], call["is_enqueued"], call["ranks_told"]) == (False, True, 2)
    assert [rank["is_enqueued"] for rank in call["by_rank"]] == [True, False]
    metrics = {metric.name: metric.samples for metric in collective_metrics(1, store.latest(9, 9))}
    assert metrics["cwdp_collective_seconds"] == []
    later = {"start_ns": NOW + 100 * MS, "end_ns": NOW + 100 * MS}
    hear(store, told(0, flags=ENQUEUED, **later))
    assert len(shown(store)) == 2


def test_a_number_that_is_used_again_later_is_another_call() -> None:
    store = CollectiveStore()
    hear(store, told(0), told(1))
    again = {"start_ns": NOW + 100 * MS, "end_ns": NOW + 110 * MS}
    hear(store, told(1, **again), told(0, **again))
    assert [call["ranks_told"] for call in shown(store)] == [2, 2]
    assert [call["lasted_ns"] for call in shown(store)] == [10 * MS, 20 * MS]


def test_parts_that_come_in_any_order_find_their_call() -> None:
    store = CollectiveStore()
    again = {"start_ns": NOW + 100 * MS, "end_ns": NOW + 110 * MS}
    hear(store, told(0), told(0, **again), told(1, **again), told(1, late_ns=30 * MS, end_ns=NOW + 40 * MS))
    assert [call["ranks_told"] for call in shown(store)] == [2, 2]
    assert [call["late_ns"] for call in shown(store)] == [0, 30 * MS]


def test_point_to_point_calls_of_ranks_are_not_one() -> None:
    store = CollectiveStore()
    hear(store, told(0, function=SEND), told(1, function=SEND))
    assert [call["ranks_told"] for call in shown(store)] == [1, 1]


def test_sorted_limited_and_of_one_job() -> None:
    store = CollectiveStore()
    for seq, lasted in enumerate((30, 10, 20)):
        start = NOW + seq * 100 * MS
        hear(store, told(0, seq=seq, start_ns=start, end_ns=start + lasted * MS, job=f"slurm:{seq % 2}"))
    assert [call["seq"] for call in shown(store)] == [2, 1, 0]
    assert [call["seq"] for call in shown(store, sort="slowest", limit=2)] == [0, 2]
    assert [call["seq"] for call in shown(store, job="slurm:1")] == [1]
    assert shown(store, job="another") == []
    assert store.jobs == ["slurm:1", "slurm:0"]


def test_no_more_than_so_many_are_kept() -> None:
    store = CollectiveStore()
    for seq in range(KEPT + 10):
        hear(store, told(0, seq=seq, start_ns=NOW + seq, end_ns=NOW + seq))
    assert [call["seq"] for call in shown(store)] == list(range(KEPT + 9, 9, -1))
    for number in range(MOST_JOBS + 5):
        hear(store, told(0, job=f"pbs:{number}"))
    assert len(store.jobs) == MOST_JOBS
    assert "slurm:1" not in store.jobs


@pytest.mark.parametrize(
    "harm",
    [
        {"comm": 1}, {"comm": 2**32 - 1}, {"function": 99}, {"bytes": 2**60}, {"start_ns": -(2**63)}, {"end_ns": 2**63 - 1},
        {"start_ns": NOW + 10**15}, {"start_ns": NOW - 10**14},
    ],
    ids=["communicator", "far communicator", "function", "bytes", "past", "future", "later", "earlier"],
)  # fmt: skip
def test_what_is_not_sane_is_not_taken(harm: dict[str, int]) -> None:
    store = CollectiveStore()
    hear(store, told(0, **harm))
    assert (shown(store), store.reports["not_sane"]) == ([], 1)


def test_reports_that_are_none() -> None:
    store = CollectiveStore()
    whole = told(0)
    torn = CollectiveReport(host="h0", comms=whole.comms, calls=whole.calls[:-1], peers=b"", chunks=b"")
    strange = CollectiveReport(host="elsewhere", comms=[], calls=b"", peers=b"", chunks=b"")
    hear(store, torn, strange)
    assert (store.reports["not_sane"], store.reports["unknown_host"]) == (1, 1)
    lost = np.zeros(1, PEER_ROW)
    lost["call"] = 2**32 - 1
    hear(
        store,
        CollectiveReport(host="h0", comms=whole.comms, calls=whole.calls, peers=row_bytes(lost), chunks=b""),
    )
    (call,) = shown(store)
    assert (call["wait"], call["by_rank"][0]["peers"]) == (None, [])


def test_before_the_timeline_is_known() -> None:
    store = CollectiveStore()
    hear(store, told(0), now_ns=None)
    assert len(shown(store)) == 1
