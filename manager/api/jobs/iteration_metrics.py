"""Metrics of jobs whose queue pairs send in bursts, at most so many of them. Pure."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple, get_args

import numpy as np
from prometheus_client.core import Metric

from manager.api.metric_families import NS, Labels, gauge, gauges, labelled_gauges
from manager.causes.cause import Kind
from manager.jobs.inference import Job
from manager.jobs.names import named

MOST_JOBS = 100
"""That have series of their own: those of most NICs."""

MOST_STRAGGLERS = 4
"""Of a job, the latest."""

MOST_CAUSES = 200
"""Of all jobs, the oldest."""

JOB = ("job_name",)
"""Not `job`: Prometheus calls its targets so."""


def iteration_metrics(jobs: Sequence[Job]) -> Iterator[Metric]:
    """What is known of each job, and how many jobs and stragglers have no series.

    Args:
        jobs: those of most NICs first.
    """
    chosen = named(jobs[:MOST_JOBS])
    yield gauge("cwdp_jobs_sending_in_bursts", "Jobs whose queue pairs send in bursts.", len(jobs))
    periods: dict[Labels, float] = {}
    latest: dict[Labels, float] = {}
    late: dict[Labels, float] = {}
    stragglers_left_out = 0
    for name, job in chosen.items():
        if job.period_ns is not None:
            periods[name,] = job.period_ns * NS
            latest[name,] = float(np.diff(job.starts_ns)[-1]) * NS
        stragglers = job.stragglers
        late |= {(name, one.nic): one.late_ns * NS for one in stragglers[:MOST_STRAGGLERS]}
        stragglers_left_out += len(stragglers[MOST_STRAGGLERS:])
    text = "An iteration of a job, the mean of 30 s (of long ones 300 s), or since it changed."
    yield labelled_gauges("cwdp_job_iteration_seconds", text, JOB, periods)
    yield labelled_gauges("cwdp_job_last_iteration_seconds", "The last iteration of a job.", JOB, latest)
    nics: dict[Labels, float] = {(name,): float(len(job.members)) for name, job in chosen.items()}
    yield labelled_gauges("cwdp_job_nics", "NICs of a job.", JOB, nics)
    sent: dict[Labels, float] = {(name,): _sent_bps(job) for name, job in chosen.items()}
    yield labelled_gauges(
        "cwdp_job_load_bps", "What a job sends, the mean of 30 s (of long iterations 300 s).", JOB, sent
    )
    sure: dict[Labels, float] = {(name,): job.confidence for name, job in chosen.items()}
    yield labelled_gauges("cwdp_job_confidence_ratio", "How sure it is that it is one job.", JOB, sure)
    text = "By how much a NIC for which the others of a job wait is late, the median over iterations."
    yield labelled_gauges("cwdp_job_straggler_late_seconds", text, (*JOB, "nic"), late)
    left_out = {"jobs": len(jobs) - len(chosen), "stragglers": stragglers_left_out}
    yield gauges("cwdp_job_series_left_out", "Jobs and stragglers without series.", "what", left_out)


class JobCause(NamedTuple):
    """A cause that holds: its kind, its jobs by name, and what an iteration would gain without it."""

    kind: Kind
    jobs: tuple[str, ...]
    costs_ns: int


def cause_metrics(causes: Sequence[JobCause]) -> Iterator[Metric]:
    """How many causes of slow jobs hold, by kind, and what they cost each job.

    Args:
        causes: those that do, the oldest first.
    """
    count = Counter(dict.fromkeys(get_args(Kind), 0))
    count.update(cause.kind for cause in causes)
    yield gauges("cwdp_job_causes", "Causes of slow jobs that hold.", "kind", count)
    costs: dict[Labels, float] = {}
    for cause in causes:
        for job in cause.jobs:
            costs[job, cause.kind] = max(costs.get((job, cause.kind), 0.0), cause.costs_ns * NS)
    shown = dict(list(costs.items())[:MOST_CAUSES])
    text = "By how much an iteration would be shorter without a cause that holds; 0 where that is not known."
    yield labelled_gauges("cwdp_job_cause_costs_seconds", text, (*JOB, "kind"), shown)


def _sent_bps(job: Job) -> float:
    return 8 * sum(job.sent_bytes.values()) / (job.window.length_ns * NS)
