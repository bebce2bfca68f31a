"""`cwdp collective`: what it asks and what it shows."""

import json
from typing import Any

import pytest
from click.testing import CliRunner

from cwdp.cli import main
from cwdp.cli.jobs import collective
from tests.unit.cli.answering import Answering, answering

ROW: dict[str, Any] = {
    "job": "slurm:[bold]7",
    "comm_id": "00000000000000ff",
    "comm_name": "dp",
    "function": "AllReduce",
    "seq": 1042,
    "bytes": 64_000_000,
    "start_ns": 5_000_000_000,
    "lasted_ns": 12_300_000,
    "ranks": 8,
    "ranks_told": 7,
    "is_over": True,
    "is_enqueued": False,
    "is_slow": True,
    "last_rank": 3,
    "last_host": "h4",
    "late_ns": 8_000_000,
    "wait": "gpu",
    "wait_ns": 7_900_000,
    "by_rank": [],
}
STUCK = ROW | {
    "job": "",
    "start_ns": 3_000_000_000,
    "is_over": False,
    "ranks": 0,
    "wait": None,
    "wait_ns": 0,
    "last_rank": -1,
}


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> type[Answering]:
    monkeypatch.setenv("COLUMNS", "160")
    answer = {"collectives": [ROW, STUCK], "count": 2, "jobs": []}
    return answering(monkeypatch, collective, answer=answer)


def test_a_table(client: type[Answering]) -> None:
    done = CliRunner().invoke(main, ["collective"])
    assert done.exit_code == 0
    lines = done.output.splitlines()
    assert lines[1].split() == [
        "slurm:[bold]7", "AllReduce", "1042", "64M", "-0", "ns", "12.3", "ms", "7/8", "3", "on", "h4", "8,000.0", "us",
        "7,900.0", "us", "gpu",
    ]  # fmt: skip
    assert lines[2].split()[0] == "-"
    assert "12.3 ms so far" in lines[2]
    assert client.asked == [("/v1/collectives", {"job": "", "sort": "latest", "limit": "20"})]


def test_of_what_uprobes_saw_no_end_is_shown(client: type[Answering]) -> None:
    client.answer = {"collectives": [STUCK | {"is_enqueued": True}], "count": 1, "jobs": []}
    lines = CliRunner().invoke(main, ["collective"]).output.splitlines()
    assert lines[1].split() == [
        "-",
        "AllReduce",
        "1042",
        "64M",
        "-0",
        "ns",
        "enqueued",
        "7",
        "-",
        "-",
        "0",
        "ns",
        "-",
    ]


def test_options_and_json(client: type[Answering]) -> None:
    asked = ["collective", "--job", "slurm:7", "--slowest", "--limit", "0", "--json"]
    done = CliRunner().invoke(main, asked)
    assert json.loads(done.output) == client.answer
    assert client.asked == [("/v1/collectives", {"job": "slurm:7", "sort": "slowest", "limit": "0"})]


def test_none(client: type[Answering]) -> None:
    client.answer = {"collectives": [], "count": 0, "jobs": []}
    done = CliRunner().invoke(main, ["collective"])
    assert done.exit_code == 0
    assert "0 collectives" in done.output


def test_a_limit_that_is_none() -> None:
    assert CliRunner().invoke(main, ["collective", "--limit", "-1"]).exit_code == 2
