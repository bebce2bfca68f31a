"""`cwdp tcp`: what it asks and what it shows."""

import json
from typing import Any

import pytest
from click.testing import CliRunner

from cwdp.cli import main
from cwdp.cli.cluster import tcp
from manager.view.tcp_views import SORTS
from tests.unit.cli.answering import Answering, answering

ROW = {
    "host": "h2",
    "nic": "nic0",
    "service": "training",
    "local_addr": "10.1.0.2",
    "local_port": 41_106,
    "remote_addr": "10.2.0.2",
    "remote_port": 5202,
    "peer": "h4/nic0",
    "both_ends": True,
    "steered": None,
    "process": {"pid": 6722, "name": "iperf3", "cgroup": "/"},
    "bps": 20.9e6,
    "received_bps": 0.0,
    "rtt_us": 5_350,
    "bytes_retransmitted": 9_000,
}
STEERED = {"standing": "primary", "failed_over": False}
STEERED_ROW = ROW | {"steered": STEERED}
OVERRIDE = {"sport": 50_001, "backup_sport": None}
FAILED_OVER = ROW | {"steered": {"standing": "backup", "failed_over": True}}
STRANGER = ROW | {"peer": None, "both_ends": False, "process": None, "bps": None, "received_bps": None}
ANSWER: dict[str, Any] = {
    "connection_count": 12,
    "unlisted": 3,
    "connections": [ROW, STEERED_ROW, FAILED_OVER, STRANGER],
}


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> type[Answering]:
    return answering(monkeypatch, tcp, answer=ANSWER)


def _run(*arguments: str) -> str:
    result = CliRunner().invoke(main, ["tcp", *arguments], env={"COLUMNS": "80"})
    assert result.exit_code == 0, result.output
    return result.output


def test_both_sides_sort_by_the_same() -> None:
    assert tuple(SORTS) == tcp.SORTS


def test_connections_within_80_columns(client: type[Answering]) -> None:
    output = _run("--host", "h2", "--service", "training", "--sort", "resent", "--limit", "2")
    assert max(map(len, output.splitlines())) <= 80
    for shown in (
        "h2/nic0:41106 - h4/nic0:5202",
        "10.2.0.2:5202",
        "20.9M",
        "5,350.0 us",
        "own",
        "one",
        "4 of 12",
        "3 more",
    ):
        assert shown in output
    rows = [line.split() for line in output.splitlines()[1:5]]
    assert [row[-1] for row in rows] == ["own", "path", "backup", "one"]
    query = {"host": "h2", "service": "training", "sort": "resent", "limit": 2}
    assert client.asked == [("/v1/tcp", query)]


def test_what_an_operator_has_steered_is_marked(
    client: type[Answering], monkeypatch: pytest.MonkeyPatch
) -> None:
    marked = [row | {"override": OVERRIDE} for row in ANSWER["connections"]]
    assert "operator" not in _run()
    monkeypatch.setitem(ANSWER, "connections", [ROW, *marked])
    output = _run()
    assert client.asked
    assert max(map(len, output.splitlines())) <= 80
    rows = [line.split() for line in output.splitlines()[1:6]]
    assert [row[-1] for row in rows] == ["own", "own*", "path*", "backup*", "one*"]
    assert "*: an operator has steered it" in " ".join(output.split())


def test_json_is_what_the_manager_says(client: type[Answering]) -> None:
    assert json.loads(_run("--json")) == ANSWER
