"""What the HTTP API answers of jobs' iterations."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from manager.hosts.order import in_order
from manager.jobs.inference import Job
from manager.jobs.names import named
from manager.view.json_values import Json, rounded


def jobs(found: Sequence[Job], name: str = "") -> Json | None:
    """Jobs, those of most NICs first; with `name`, that one only, and all that is known of it; None where there is none."""
    by_name = named(found)
    if name:
        job = by_name.get(name)
        rows = [] if job is None else [_row(name, job) | _more(job)]
        return {"job_count": len(found), "jobs": rows} if rows else None
    return {"job_count": len(found), "jobs": [_row(each, job) for each, job in by_name.items()]}


def _row(name: str, job: Job) -> Json:
    lasted_ns = np.diff(job.starts_ns)
    return {
        "name": name,
        "is_inferred": job.is_inferred,
        "confidence": round(job.confidence, 3),
        "nics": len(job.members),
        "queue_pairs": len(job.flows),
        "kinds": sorted({each.kind for each in job.communicators}),
        "period_ns": None if job.period_ns is None else rounded(job.period_ns),
        "window_ns": job.window.length_ns,
        "iterations": len(lasted_ns),
        "last_iteration_ns": int(lasted_ns[-1]) if len(lasted_ns) else None,
        "stragglers": [{"nic": one.nic, "late_ns": one.late_ns} for one in job.stragglers],
    }


def _more(job: Job) -> Json:
    late = {one.nic: one for one in job.ranks}
    ranks: list[Any] = [
        {
            "nic": nic,
            "late_ns": late[nic].late_ns if nic in late else None,
            "straggler": nic in late and late[nic].is_straggler,
            "bytes": job.sent_bytes.get(nic, 0),
        }
        for nic in [*late, *in_order(nic for nic in job.members if nic not in late)]
    ]
    return {
        "processes": [
            {"host": one.host, "pid": one.pid, "job": one.job or None}
            for one in sorted(job.owners, key=lambda one: (one.host, one.pid))
        ],
        "communicators": [{"kind": each.kind, "nics": in_order(each.members)} for each in job.communicators],
        "starts_ns": job.starts_ns.tolist(),
        "changes": [
            {"at_ns": one.at_ns, "before_ns": one.before_ns, "after_ns": one.after_ns} for one in job.changes
        ],
        "ranks": ranks,
    }
