"""`cwdp job`: what it asks and what it shows."""

import json
from typing import Any

import pytest
from click.testing import CliRunner

from cwdp.cli import main
from cwdp.cli.cluster import job

ROW: dict[str, Any] = {
    "name": "h2",
    "is_inferred": True,
    "confidence": 0.91,
    "nics": 4,
    "queue_pairs": 4,
    "kinds": ["ring"],
    "period_ns": 529_000_000,
    "iterations": 56,
    "last_iteration_ns": 544_000_000,
    "stragglers": [{"nic": f"h{i}/nic0", "late_ns": 79_600_000} for i in (4, 6, 8)],
}
FRESH = ROW | {
    "name": "slurm [bold]7",
    "is_inferred": False,
    "kinds": [],
    "period_ns": None,
    "last_iteration_ns": None,
    "stragglers": [],
}
WHOLE = ROW | {
    "processes": [{"host": "h2", "pid": 77, "job": None}],
    "communicators": [{"kind": "ring", "nics": ["h2/nic0", "h4/nic0"]}],
    "starts_ns": [0, 400_000_000, 929_000_000],
    "changes": [{"at_ns": 400_000_000, "before_ns": 400_000_000, "after_ns": 529_000_000}],
    "ranks": [
        {"nic": "h4/nic0", "late_ns": 79_600_000, "straggler": True, "bytes": 18_200_000},
        {"nic": "h2/nic0", "late_ns": None, "straggler": False, "bytes": 0},
    ],
}


class _Client:
    """A manager that gives one answer and notes what it was asked."""

    answer: dict[str, Any]
    asked: list[tuple[str, Any]]

    def __init__(self, _url: str | None) -> None:
        pass

    def get(self, path: str, query: Any = None) -> Any:
        _Client.asked.append((path, query))
        return _Client.answer


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> type[_Client]:
    monkeypatch.setattr(job, "ManagerClient", _Client)
    _Client.asked = []
    return _Client


def _run(*arguments: str) -> str:
    result = CliRunner().invoke(main, ["job", *arguments], env={"COLUMNS": "80"})
    assert result.exit_code == 0, result.output
    assert max(map(len, result.output.splitlines())) <= 80
    return result.output


def test_jobs_within_80_columns(client: type[_Client]) -> None:
    client.answer = {"job_count": 2, "jobs": [ROW, FRESH]}
    output = _run()
    for shown in (
        "529.0 ms",
        "544.0 ms",
        "h4/nic0 79.6 ms +2",
        "91%",
        "told",
        "slurm [bold]7",
        "2 jobs",
    ):
        assert shown in " ".join(output.split()), output
    assert client.asked == [("/v1/iterations", {})]


def test_all_of_one_job(client: type[_Client]) -> None:
    client.answer = {"job_count": 2, "jobs": [WHOLE]}
    output = _run("h2")
    for shown in (
        "ring of h2/nic0, h4/nic0",
        "processes: h2/77",
        "2 iterations, median 464.5 ms; the last: 400.0 ms 529.0 ms",
        "from 400.0 ms to 529.0 ms an iteration",
        "18.2M",
    ):
        assert shown in " ".join(output.split()), output
    assert client.asked == [("/v1/iterations", {"job": "h2"})]


def test_json_is_what_the_manager_says(client: type[_Client]) -> None:
    client.answer = {"job_count": 1, "jobs": [WHOLE]}
    assert json.loads(_run("h2", "--json")) == client.answer
