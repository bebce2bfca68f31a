"""Collectives as plain data. No I/O."""

from typing import Any

import numpy as np

from cwdp.shared.bus.collectives import FUNCTIONS, WAITS
from manager.collectives.store import Collective, CollectiveStore, RankCall

SORTS = ("latest", "slowest")


def collectives(store: CollectiveStore, *, job: str, sort: str, limit: int) -> dict[str, Any]:
    """The last calls.

    Args:
        store: what is known.
        job: of this one only; "" for all.
        sort: of SORTS.
        limit: how many; 0 for all.
    """
    found = list(store.of(job))
    found.sort(key=lambda call: call.lasted_ns if sort == "slowest" else call.start_ns, reverse=True)
    listed = found[:limit] if limit else found
    return {"collectives": [_shown(call) for call in listed], "count": len(found), "jobs": store.jobs}


def _shown(call: Collective) -> dict[str, Any]:
    ranks = sorted(call.ranks.values(), key=lambda rank: rank.id)
    last = max(ranks, key=lambda rank: rank.start_ns)
    kind, wait_ns = _longest_wait(last)
    return {
        "job": call.job,
        "comm_id": f"{call.comm.id:016x}",
        "comm_name": call.comm.name,
        "function": FUNCTIONS[call.function],
        "seq": call.seq,
        "bytes": call.bytes,
        "start_ns": call.start_ns,
        "lasted_ns": call.lasted_ns,
        "bps": round(8e9 * call.bytes / call.lasted_ns) if call.lasted_ns and call.bytes else None,
        "ranks": call.comm.ranks,
        "ranks_told": len(ranks),
        "is_over": call.is_over,
        "is_enqueued": call.is_enqueued,
        "is_slow": any(rank.is_slow for rank in ranks),
        "last_rank": last.id.rank,
        "last_host": last.id.host,
        "late_ns": call.late_ns,
        "wait": kind,
        "wait_ns": wait_ns,
        "by_rank": [_rank(rank) for rank in ranks],
    }


def _rank(rank: RankCall) -> dict[str, Any]:
    return {
        "host": rank.id.host,
        "pid": rank.id.pid,
        "rank": rank.id.rank,
        "peer": rank.peer,
        "enqueued_ns": rank.enqueued_ns or None,
        "start_ns": rank.start_ns,
        "end_ns": rank.end_ns,
        "is_over": rank.is_over,
        "is_enqueued": rank.is_enqueued,
        "operations": rank.ops,
        "operations_open": rank.open_ops,
        "peers": [_peer(row) for row in rank.peers],
        "chunks": [_chunk(row) for row in rank.chunks],
    }


def _peer(row: np.void) -> dict[str, Any]:
    return {
        "peer": int(row["peer"]),
        "direction": "out" if row["is_send"] else "in",
        "chunks": int(row["chunks"]),
        "bytes": int(row["bytes"]),
        "waits_ns": dict(zip(WAITS, row["wait_ns"].tolist(), strict=True)),
        "longest_ns": int(row["longest_ns"]),
    }


def _chunk(row: np.void) -> dict[str, Any]:
    return {
        "peer": int(row["peer"]),
        "direction": "out" if row["is_send"] else "in",
        "channel": int(row["channel"]),
        "step": int(row["step"]),
        "bytes": int(row["bytes"]),
        "start_ns": int(row["begin_ns"]),
        "qpn": int(row["qpn"]) if row["posts"] else None,
        "wr_id": int(row["wr_id"]) if row["posts"] else None,
        "work_requests": int(row["posts"]),
        "waits_ns": dict(zip(WAITS, row["wait_ns"].tolist(), strict=True)),
    }


def _longest_wait(rank: RankCall) -> tuple[str | None, int]:
    """What a rank's operations waited for longest, and for how long each of them did on average; None where nothing is known."""
    if not len(rank.peers) or not rank.ops:
        return None, 0
    sums = rank.peers["wait_ns"].sum(axis=0, dtype=np.float64) / rank.ops
    return WAITS[int(sums.argmax())], round(float(sums.max()))
