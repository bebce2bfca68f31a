"""`cwdp job`: what it asks and what it shows."""

import json
from typing import Any

import pytest
from click.testing import CliRunner

from cwdp.cli import main
from cwdp.cli.cluster import job
from tests.unit.cli.answering import Answering, answering

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


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> type[Answering]:
    return answering(monkeypatch, job)


def _run(*arguments: str) -> str:
    result = CliRunner().invoke(main, ["job", *arguments], env={"COLUMNS": "80"})
    assert result.exit_code == 0, result.output
    assert max(map(len, result.output.splitlines())) <= 80
    return result.output


def test_jobs_within_80_columns(client: type[Answering]) -> None:
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


def test_all_of_one_job(client: type[Answering]) -> None:
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


def test_json_is_what_the_manager_says(client: type[Answering]) -> None:
    client.answer = {"job_count": 1, "jobs": [WHOLE]}
    assert json.loads(_run("h2", "--json")) == client.answer


TRACE: dict[str, Any] = {
    "job": "h2",
    "since_ns": 1_700_000_000_000_000_007,
    "until_ns": 1_700_000_010_000_000_007,
    "whole_since_ns": 1_700_000_000_000_000_007,
    "starts_ns": [1_700_000_000_000_001_008, 1_700_000_000_300_000_000],
    "changes": [],
    "burst": ["start_ns", "end_ns", "bytes"],
    "queue_pairs": [
        {
            "src": "h2/nic0",
            "dst": "h4/nic0",
            "qpn": 7,
            "sent": [[1_700_000_000_000_001_008, 1_700_000_000_020_000_000, 25_000_000]],
            "came": [],
        }
    ],
    "throughput": {"every_ns": 10_000_000, "bps": [None]},
    "delays": [],
    "probes": [],
    "queues": [],
    "chunk": [],
    "calls": [],
    "left_out": {"queue_pairs": 0, "bursts": 0, "nic_pairs": 0, "links": 3, "chunks": 0},
}


def test_a_trace_is_json_and_what_it_lacks_is_said_beside_it(client: type[Answering]) -> None:
    client.answer = TRACE
    result = CliRunner().invoke(main, ["job", "h2", "--trace", "10s"])
    assert result.exit_code == 0, result.output
    assert client.asked == [("/v1/trace", {"job": "h2", "window_ns": 10_000_000_000})]
    assert result.stderr == "left out: 3 links without queues\n"
    assert '"ts":1.001,"dur":19998.992' in result.stdout
    events = json.loads(result.stdout)["traceEvents"]
    assert [event["name"] for event in events if event["ph"] == "X"] == ["iteration 1", "25MB"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--trace", "10s"], "of the job NAME"),
        (["h2", "--trace", "10s", "--json"], "JSON of its own"),
        (["h2", "--trace", "10s", "--watch"], "JSON of its own"),
        *(
            (["h2", "--trace", text], "is no span from 1ms to 300s")
            for text in ("301s", "0s", "10", "-1s", "10m")
        ),
    ],
)
def test_a_trace_that_cannot_be(client: type[Answering], arguments: list[str], said: str) -> None:
    result = CliRunner().invoke(main, ["job", *arguments])
    assert result.exit_code == 2
    assert said in " ".join(result.output.split())
    assert client.asked == []
