"""Metrics of collectives: what they say, and that their number has a limit."""

import pytest

from cwdp.shared.bus.collectives import FUNCTIONS, Communicator
from manager.api.jobs.collective_metrics import MOST_FUNCTIONS, MOST_JOBS, collective_metrics
from manager.collectives.store import Collective

COMM = Communicator(id=1, name="world", rank=0, ranks=2, nodes=2, job="slurm:1", pid=1)
MS = 10**6


def call(function: str = "AllReduce", lasted_ms: int = 10, size: int = 10**6) -> Collective:
    return Collective("slurm:1", COMM, FUNCTIONS.index(function), 1, size, 0, 2 * MS, lasted_ms * MS)


def samples(jobs: int, latest: list[tuple[str, list[Collective]]]) -> dict[tuple[str, ...], float]:
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in collective_metrics(jobs, latest)
        for sample in family.samples
    }


def test_what_is_told_of_a_job() -> None:
    assert samples(1, [("slurm:1", [call(), call(lasted_ms=20), call(lasted_ms=8)])]) == {
        ("cwdp_collective_jobs",): 1,
        ("cwdp_collective_seconds", "slurm:1", "AllReduce"): pytest.approx(0.01),
        ("cwdp_collective_bps", "slurm:1", "AllReduce"): pytest.approx(8e8),
        ("cwdp_collective_late_seconds", "slurm:1", "AllReduce"): pytest.approx(0.002),
        ("cwdp_collective_series_left_out", "jobs"): 0,
        ("cwdp_collective_series_left_out", "functions"): 0,
    }


def test_calls_of_no_known_size_have_no_speed() -> None:
    found = samples(1, [("slurm:1", [call(size=0)])])
    assert ("cwdp_collective_bps", "slurm:1", "AllReduce") not in found
    assert found["cwdp_collective_seconds", "slurm:1", "AllReduce"] == pytest.approx(0.01)


def test_there_are_never_more_than_so_many_series() -> None:
    calls = [call(function) for function in FUNCTIONS]
    found = samples(1_000, [(f"slurm:{i}", calls) for i in range(MOST_JOBS)])
    assert len(found) == 3 * MOST_JOBS * MOST_FUNCTIONS + 3
    assert found["cwdp_collective_series_left_out", "jobs"] == 900
    assert found["cwdp_collective_series_left_out", "functions"] == MOST_JOBS * (
        len(FUNCTIONS) - MOST_FUNCTIONS
    )
