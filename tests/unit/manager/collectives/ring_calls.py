"""Four ranks on four hosts of two NICs each, and what they tell of the calls of a ring."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from cwdp.shared.bus.collectives import CALL_ROW, FUNCTIONS, OVER, PEER_ROW, CollectiveReport, Communicator
from cwdp.shared.bus.packing import row_bytes
from cwdp.shared.bus.records import packed_address

NOW, MS, S = 10**15, 10**6, 10**9
RANKS, JOB = 4, "slurm:1"
HOSTS = [f"h{rank + 1}" for rank in range(RANKS)]
NICS = {
    packed_address(f"10.0.{i}.{rank + 1}"): f"h{rank + 1}/nic{i}" for rank in range(RANKS) for i in range(2)
}


def told(rank: int, *spans_ns: tuple[int, int], **how: Any) -> CollectiveReport:
    """A rank of a ring tells of calls; each sends 1,000 bytes in two chunks and is sent as many."""
    peers = np.zeros(2 * len(spans_ns), PEER_ROW)
    calls = np.zeros(len(spans_ns), CALL_ROW)
    calls["function"], calls["flags"] = FUNCTIONS.index("AllReduce"), how.get("flags", OVER)
    calls["start_ns"], calls["end_ns"] = zip(*spans_ns, strict=True)
    peers["call"] = np.repeat(np.arange(len(spans_ns)), 2)
    peers["peer"] = [(rank + 1) % RANKS, (rank - 1) % RANKS] * len(spans_ns)
    peers["is_send"], peers["bytes"], peers["chunks"] = [1, 0] * len(spans_ns), 1_000, 2
    comm = Communicator(
        id=how.get("comm", 2**63 + 5),
        name="dp",
        rank=rank,
        ranks=RANKS,
        nodes=RANKS,
        pid=how.get("pid", 100 + rank),
        job=JOB,
    )
    host = how.get("host", HOSTS[rank])
    return CollectiveReport(
        host=host, comms=[comm], calls=row_bytes(calls), peers=row_bytes(peers), chunks=b""
    )


def iterations() -> Iterator[CollectiveReport]:
    """40 s of an all-reduce of 100 ms every 500 ms, which rank 2 begins 60 ms late."""
    for i in range(80):
        start_ns = NOW - (80 - i) * 500 * MS
        for rank in range(RANKS):
            late_ns = 60 * MS if rank == 2 else 0
            yield told(rank, (start_ns + late_ns, start_ns + 160 * MS))
