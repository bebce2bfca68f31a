"""Metrics of jobs that send in bursts: what they say, and that their number has a limit."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.registry import Collector

from manager.api.jobs.iteration_metrics import (
    MOST_CAUSES,
    MOST_JOBS,
    MOST_STRAGGLERS,
    JobCause,
    cause_metrics,
    iteration_metrics,
)
from manager.jobs.flows import Flow
from manager.jobs.inference import Job
from manager.jobs.stragglers import Lateness
from manager.jobs.symptoms import Symptoms
from manager.jobs.windows import SHORT

MS = 10**6
RING = Job(
    named="",
    owners=frozenset(),
    flows=(Flow("h2/nic0", "h10/nic0", 7), Flow("h10/nic0", "h2/nic0", 8)),
    sent_bytes={"h2/nic0": 15 * 10**9, "h10/nic0": 15 * 10**9},
    communicators=(),
    starts_ns=np.array([0, 500, 1000, 1504], np.int64) * MS,
    changes=(),
    ranks=(
        Lateness("h10/nic0", 80 * MS, is_straggler=True),
        Lateness("h2/nic0", -80 * MS, is_straggler=False),
    ),
    confidence=0.91,
    likeness=0.9,
    window=SHORT,
    lately=Symptoms(),
)


def samples(jobs: list[Job]) -> dict[tuple[str, ...], float]:
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in iteration_metrics(jobs)
        for sample in family.samples
    }


def test_what_is_told_of_a_job() -> None:
    assert samples([RING]) == {
        ("cwdp_jobs_sending_in_bursts",): 1,
        ("cwdp_job_iteration_seconds", "h2"): pytest.approx(0.5013, abs=1e-4),
        ("cwdp_job_last_iteration_seconds", "h2"): pytest.approx(0.504),
        ("cwdp_job_nics", "h2"): 2,
        ("cwdp_job_load_bps", "h2"): pytest.approx(8e9),
        ("cwdp_job_confidence_ratio", "h2"): 0.91,
        ("cwdp_job_straggler_late_seconds", "h2", "h10/nic0"): pytest.approx(0.08),
        ("cwdp_job_series_left_out", "jobs"): 0,
        ("cwdp_job_series_left_out", "stragglers"): 0,
    }


def test_a_job_without_a_rhythm_has_no_iterations() -> None:
    found = samples([replace(RING, starts_ns=np.zeros(0, np.int64), ranks=())])
    assert {key[0] for key in found} == {
        *("cwdp_jobs_sending_in_bursts", "cwdp_job_nics", "cwdp_job_load_bps"),
        *("cwdp_job_confidence_ratio", "cwdp_job_series_left_out"),
    }


def test_no_job_has_no_series() -> None:
    assert set(samples([]).values()) == {0}


def test_more_jobs_and_stragglers_than_there_are_series_for_are_counted() -> None:
    many = tuple(Lateness(f"h{i}/nic0", 80 * MS, is_straggler=True) for i in range(9))
    jobs = [replace(RING, ranks=many)] * (MOST_JOBS + 7)
    found = samples(jobs)
    assert found["cwdp_jobs_sending_in_bursts",] == MOST_JOBS + 7
    assert found["cwdp_job_series_left_out", "jobs"] == 7
    assert found["cwdp_job_series_left_out", "stragglers"] == MOST_JOBS * (9 - MOST_STRAGGLERS)
    assert len(found) == 3 + MOST_JOBS * (5 + MOST_STRAGGLERS)
    assert ("cwdp_job_nics", f"h2#{MOST_JOBS}") in found


def test_names_that_processes_give_are_values_whatever_is_in_them() -> None:
    class Jobs(Collector):
        def collect(self) -> Any:
            return iteration_metrics([replace(RING, named='a"} 1\\n\ncwdp_up{x="')])

    registry = CollectorRegistry()
    registry.register(Jobs())
    lines = generate_latest(registry).decode().splitlines()
    assert 'cwdp_job_nics{job_name="a\\"} 1\\\\n\\ncwdp_up{x=\\""} 2.0' in lines
    assert not [line for line in lines if line.startswith("cwdp_up")]


def test_causes_are_counted_by_kind_and_cost_each_of_their_jobs() -> None:
    causes = [
        JobCause("contention", ("h1", "h2"), 30_000_000),
        JobCause("nic", ("h1",), 0),
        JobCause("contention", ("h1", "h3"), 90_000_000),
    ]
    counts, costs = cause_metrics(causes)
    assert {sample.labels["kind"]: sample.value for sample in counts.samples if sample.value} == {
        "contention": 2,
        "nic": 1,
    }
    assert {tuple(sample.labels.values()): sample.value for sample in costs.samples} == {
        ("h1", "contention"): pytest.approx(0.09),
        ("h2", "contention"): pytest.approx(0.03),
        ("h1", "nic"): 0,
        ("h3", "contention"): pytest.approx(0.09),
    }


def test_only_so_many_causes_have_series() -> None:
    jobs = tuple(f"h{i}" for i in range(MOST_CAUSES + 9))
    _, costs = cause_metrics([JobCause("link", jobs, 1)])
    assert len(costs.samples) == MOST_CAUSES
