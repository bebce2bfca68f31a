"""What the HTTP API answers of a job in a window: for a trace all times as they are, for charts values at even times."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from cwdp.shared.bus.collectives import FUNCTIONS, WAITS
from cwdp.shared.bus.records import WINDOW_NS
from manager.job_window.gathered import JobWindow
from manager.job_window.throughput import throughput_bps
from manager.jobs.flows import BurstColumns, Ints, Rows
from manager.view.json_values import Json, rounded

MOST_BURSTS = 20_000
"""Those of both ends count."""

BURST = ("start_ns", "end_ns", "bytes", "packets", "ce_marks", "naks", "resent", "bound_ns")
"""The numbers that a burst is told by, in this order."""

MOST_CHUNKS = 20_000
_WAITED = tuple(f"{wait}_ns" for wait in WAITS)
CHUNK = ("peer", "is_send", "channel", "step", "bytes", "begin_ns", *_WAITED, "qpn", "wr_id", "posts")
"""The numbers that a chunk of a call is told by, in this order; what it waited for one after the other."""

TRACE_STEP_NS = 10_000_000
CHART_STEPS = 300

Floats = NDArray[np.float64]


def trace(window: JobWindow) -> Json:
    """All that there is, at most `MOST_BURSTS` bursts; of queue pairs that do not fit in, those that send least are left out."""
    queue_pairs, left_out = _queue_pairs(window)
    edges_ns = _edges(window, TRACE_STEP_NS)
    starts_ns = window.job.starts_ns
    inside = (starts_ns >= window.since_ns) & (starts_ns <= window.until_ns)
    calls, chunks_left_out = _calls(window)
    return {
        "job": window.name,
        "is_inferred": window.job.is_inferred,
        "since_ns": window.since_ns,
        "until_ns": window.until_ns,
        "whole_since_ns": window.whole_since_ns,
        "starts_ns": starts_ns[inside].tolist(),
        "changes": [
            {"at_ns": one.at_ns, "before_ns": one.before_ns, "after_ns": one.after_ns}
            for one in window.job.changes
            if window.since_ns <= one.at_ns <= window.until_ns
        ],
        "burst": BURST,
        "queue_pairs": queue_pairs,
        "throughput": {
            "every_ns": TRACE_STEP_NS,
            "bps": _whole(throughput_bps(window.flows, edges_ns)),
        },
        "delays": [
            {**flow._asdict(), "time_ns": one.time_ns.tolist(), "owd_ns": one.owd_ns.tolist()}
            | {"bound_ns": int(one.bound_ns.max())}
            for flow, one in window.samples.items()
        ],
        "probes": [
            {
                "src": src,
                "dst": dst,
                "paths": one.paths,
                "start_ns": one.start_ns.tolist(),
                "mean_ns": _whole(one.mean_ns),
                "max_ns": _whole(one.max_ns),
            }
            for (src, dst), one in window.paths.items()
        ],
        "queues": [
            {**one.link._asdict(), "start_ns": one.start_ns.tolist(), "queue_ns": _whole(one.queue_ns)}
            for one in window.queues
        ],
        "chunk": CHUNK,
        "calls": calls,
        "left_out": left_out | dict(window.left_out) | {"chunks": chunks_left_out},
    }


def series(window: JobWindow, now_s: float) -> Json:
    """Values over time for charts; times are seconds since 1970, of which `now_s` is the end of the window."""
    step_ns = (window.until_ns - window.since_ns) // CHART_STEPS
    edges_ns = _edges(window, step_ns)
    middle, most = _delays(window, edges_ns)
    starts_ns = window.job.starts_ns

    def in_s(at_ns: Ints) -> list[float]:
        return [round(now_s - (window.until_ns - each) * 1e-9, 4) for each in at_ns.tolist()]

    return {
        "from_s": in_s(edges_ns[:-1]),
        "lasts_s": step_ns * 1e-9,
        "bps": _whole(throughput_bps(window.flows, edges_ns)),
        "owd_p50_ns": _whole(middle),
        "owd_max_ns": _whole(most),
        "probe_owd_ns": _whole(_probed(window, edges_ns)),
        "iterations": {"start_s": in_s(starts_ns[:-1]), "duration_ns": np.diff(starts_ns).tolist()},
        "changes": [
            {"at_s": in_s(np.array([one.at_ns]))[0], "before_ns": one.before_ns, "after_ns": one.after_ns}
            for one in window.job.changes
        ],
    }


def _queue_pairs(window: JobWindow) -> tuple[list[Json], Json]:
    rows, bursts_left_out, pairs_left_out, room = [], 0, 0, MOST_BURSTS
    for i, flow in enumerate(window.flows.flows):
        sent, came = _told(window, i)
        count = len(sent) + len(came)
        if count > room:
            bursts_left_out += count
            pairs_left_out += 1
            continue
        room -= count
        rows.append({**flow._asdict(), "sent": _numbers(sent), "came": _numbers(came)})
    return rows, {"queue_pairs": pairs_left_out, "bursts": bursts_left_out}


def _calls(window: JobWindow) -> tuple[list[Json], int]:
    """Calls with their ranks and the chunks of these, and how many chunks are left out."""
    rows, left_out, room = [], 0, MOST_CHUNKS
    for call in window.calls:
        ranks: list[Json] = []
        for name, rank in sorted(call.ranks.items()):
            fits = len(rank.chunks) <= room
            room -= len(rank.chunks) if fits else 0
            left_out += 0 if fits else len(rank.chunks)
            ranks.append(
                {
                    **name._asdict(),
                    "enqueued_ns": rank.enqueued_ns or None,
                    "start_ns": rank.start_ns,
                    "end_ns": rank.end_ns,
                    "is_over": rank.is_over,
                    "is_enqueued": rank.is_enqueued,
                    "chunks": _chunks(rank.chunks) if fits else [],
                }
            )
        rows.append(
            {
                "comm_id": f"{call.comm.id:016x}",
                "comm_name": call.comm.name,
                "function": FUNCTIONS[call.function],
                "seq": call.seq,
                "bytes": call.bytes,
                "ranks": ranks,
            }
        )
    return rows, left_out


def _chunks(rows: Rows) -> list[list[int]]:
    waits = dict(zip(_WAITED, rows["wait_ns"].T, strict=True))
    columns = [waits[name] if name in waits else rows[name] for name in CHUNK]
    return [list(numbers) for numbers in zip(*(column.tolist() for column in columns), strict=True)]


def _told(window: JobWindow, flow: int) -> tuple[BurstColumns, BurstColumns]:
    """What each end told itself of the bursts that began before the window's end."""
    flows = window.flows
    src, dst, _ = flows.flows[flow]
    sent, came = flows.left.of(flow), flows.arrived.of(flow)
    return _begun(window, src, sent), _begun(window, dst, came)


def _begun(window: JobWindow, nic: str, bursts: BurstColumns) -> BurstColumns:
    return bursts.take(bursts.start_ns <= window.until_ns if nic in window.telling else slice(0))


def _numbers(bursts: BurstColumns) -> list[list[int]]:
    columns = [getattr(bursts, name).astype(np.int64) for name in BURST]
    found: list[list[int]] = np.stack(columns, axis=1).tolist()
    return found


def _edges(window: JobWindow, step_ns: int) -> Ints:
    return np.arange(window.since_ns, window.until_ns + 1, step_ns, dtype=np.int64)


def _delays(window: JobWindow, edges_ns: Ints) -> tuple[Floats, Floats]:
    """Median and longest delay of the data packets that left between edges, NaN for none, shapes (edges - 1,)."""
    middle, most = (np.full(len(edges_ns) - 1, np.nan) for _ in range(2))
    if window.samples:
        time_ns = np.concatenate([one.time_ns for one in window.samples.values()])
        owd_ns = np.concatenate([one.owd_ns for one in window.samples.values()])
        order = np.argsort(time_ns, kind="stable")
        bounds = np.searchsorted(time_ns[order], edges_ns)
        for i, (first, end) in enumerate(zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True)):
            if end > first:
                found = owd_ns[order[first:end]]
                middle[i], most[i] = np.median(found), found.max()
    return middle, most


def _probed(window: JobWindow, edges_ns: Ints) -> Floats:
    """The mean over pairs of NICs of what probes took on average, by the window in which they left, shape (edges - 1,)."""
    sums, counts = np.zeros((2, len(edges_ns) - 1))
    for one in window.paths.values():
        place = np.searchsorted(edges_ns, one.start_ns + WINDOW_NS // 2, "right") - 1
        is_known = (place >= 0) & (place < len(sums)) & np.isfinite(one.mean_ns)
        np.add.at(sums, place[is_known], one.mean_ns[is_known])
        np.add.at(counts, place[is_known], 1)
    with np.errstate(invalid="ignore"):
        return np.where(counts > 0, sums / counts, np.nan)


def _whole(values: Floats | Sequence[float]) -> list[int | None]:
    return [rounded(value) for value in values]
