"""What the synthetic manager answers of jobs that send in bursts."""

import time
from collections.abc import Mapping

from synthetic import Json, RefusedError, Synthetic

Query = Mapping[str, str]


def iterations(world: Synthetic, query: Query) -> Json:
    """A ring of which one rank is late, and one job of which little is known."""
    rows = [_in_bursts(world, i, name) for i, name in enumerate(world.in_bursts)]
    if "job" in query:
        rows = [row | _ranks(world, row) for row in rows if row["name"] == query["job"]]
        if not rows:
            raise RefusedError(404, f"no job is called {query['job']}", "`cwdp job` lists those that send")
    return {"job_count": len(world.in_bursts), "jobs": rows}


def _in_bursts(world: Synthetic, i: int, name: str) -> Json:
    late = [{"nic": f"{world.hosts[1]}/nic0", "late_ns": 79_600_000}]
    return {
        "name": name,
        "is_inferred": i == 0,
        "confidence": 0.91 if i == 0 else 1.0,
        "nics": 8,
        "queue_pairs": 8,
        "kinds": ["ring"] if i == 0 else [],
        "period_ns": 529_000_000 if i == 0 else None,
        "window_ns": 30 * 10**9,
        "iterations": 56 if i == 0 else 0,
        "last_iteration_ns": 544_000_000 if i == 0 else None,
        "stragglers": late if i == 0 else [],
    }


def _ranks(world: Synthetic, row: Json) -> Json:
    late = {one["nic"] for one in row["stragglers"]}
    ranks = [
        {
            "nic": f"{host}/nic0",
            "late_ns": None if not late else 79_600_000 if f"{host}/nic0" in late else 900_000 - 600_000 * i,
            "straggler": f"{host}/nic0" in late,
            "bytes": 18_200_000 * (i + 1),
        }
        for i, host in enumerate(world.hosts[:8])
    ]
    return {"ranks": sorted(ranks, key=lambda rank: -(rank["late_ns"] or 0)), "communicators": []}


def job_series(world: Synthetic, query: Query) -> Json:
    """Iterations of 0.4 s, and of 0.53 s for the last 12 s; a burst in each."""
    (row,) = iterations(world, query)["jobs"]
    now_s = time.time()
    from_s = [now_s - 30 + 0.1 * i for i in range(300)]
    is_late = [at_s > now_s - 12 for at_s in from_s]
    phase = [at_s % (0.53 if late else 0.4) for at_s, late in zip(from_s, is_late, strict=True)]
    bps = [4e10 if each < 0.2 else 0.0 for each in phase]
    starts_s = [now_s - 30 + 0.4 * i for i in range(45)] + [now_s - 12 + 0.53 * i for i in range(21)]
    if row["period_ns"] is None:
        starts_s = []
    return {
        "from_s": from_s,
        "lasts_s": 0.1,
        "bps": [*bps[:-10], *[None] * 10],
        "owd_p50_ns": [9e3 + 1e3 * each if i % 7 == 0 else None for i, each in enumerate(phase)],
        "owd_max_ns": [9e4 + 1e5 * each if i % 7 == 0 else None for i, each in enumerate(phase)],
        "probe_owd_ns": [None if i < 240 else 8e3 + 2e4 * each for i, each in enumerate(phase)],
        "iterations": {
            "start_s": starts_s,
            "duration_ns": [
                530_000_000 if at_s >= now_s - 12 else 400_000_000 + 4_000_000 * (i % 3)
                for i, at_s in enumerate(starts_s)
            ],
        },
        "changes": [{"at_s": now_s - 12, "before_ns": 402_000_000, "after_ns": 530_000_000}]
        if starts_s
        else [],
    }


def causes(world: Synthetic, query: Query) -> Json:
    return {"causes": world.causes}
