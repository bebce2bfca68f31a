"""`cwdp path` of a TCP connection, and of TCP between two hosts."""

import json
from typing import Any

import pytest
from click.testing import CliRunner, Result

from cwdp.cli import main
from cwdp.cli.client import ManagerClient

NAME = "h1/nic0:40001 - h3/nic0:5201"
NODES = ["10.254.1.1", "10.254.2.1", None]
OWD = {"pulses": 500, "min_ns": 15_200, "p50_ns": 25_300, "bound_ns": 180}
PAIR = {
    "src": "h1/nic0",
    "dst": "h3/nic0",
    "dst_addr": "10.2.0.1",
    "protocol": "tcp",
    "paths_known": 2,
    "paths_between_leaves": 2,
    "ports_traced": 2,
    "confidence": 0.998,
    "ports": [
        {"sport": 50_001, "in_use": True, "nodes": NODES},
        {"sport": 50_009, "in_use": False, "nodes": ["10.254.1.1", "10.254.2.2", "10.254.1.2"]},
    ],
}
WAY = {
    "src": "h1/nic0",
    "dst": "h3/nic0",
    "local_port": 40_001,
    "remote_port": 5201,
    "standing": "primary",
    "set_by": "operator",
    "path": {"sport": 50_001, "nodes": NODES, "links": [], "owd": OWD},
    "backup": {"sport": 50_009, "nodes": None, "links": None, "owd": None},
    "known": PAIR,
}
BACK = WAY | {
    "src": "h3/nic0",
    "dst": "10.1.0.1",
    "local_port": 5201,
    "remote_port": 40_001,
    "standing": None,
    "set_by": None,
    "path": None,
    "backup": None,
    "known": None,
}
ANSWER = {"connection": NAME, "service": "x", "ways": [WAY, BACK]}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    asked: list[Any] = []

    def get(_client: object, path: str, query: Any = None) -> Any:
        assert path == "/v1/path"
        asked.append(query)
        return ANSWER if "connection" in query else {"pairs": [PAIR] if query["dst"] == "h3" else []}

    monkeypatch.setattr(ManagerClient, "get", get)
    return asked


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["path", *arguments, "--manager", "unix:///x"], env={"COLUMNS": "80"})


@pytest.mark.parametrize("words", [(NAME,), tuple(NAME.split())], ids=["in one word", "in three"])
def test_a_connection_is_shown_both_ways(asked: list[Any], words: tuple[str, ...]) -> None:
    result = run(*words)
    assert result.exit_code == 0, result.output
    assert asked == [{"connection": NAME}]
    lines = result.output.splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[0] == "h1/nic0:40001 > h3/nic0:5201: by its path; set by an operator"
    rows = [line.split() for line in lines]
    assert [
        "path",
        "50001",
        "10.254.1.1",
        ">",
        "10.254.2.1",
        ">",
        "?",
        "25.3",
        "us",
        "15.2",
        "us",
        "180",
        "ns",
    ] in rows
    assert ["backup", "50009", "not", "traced", "yet", "-", "-", "-"] in rows
    assert "h3/nic0:5201 > 10.1.0.1:40001: by its own ports" in lines
    assert "50001*" in result.output
    assert json.loads(run(*words, "--json").output) == ANSWER


def test_paths_of_tcp_between_two_hosts(asked: list[Any]) -> None:
    assert "50001*" in run("h1", "h3", "--tcp").output
    assert asked == [{"src": "h1", "dst": "h3", "protocol": "tcp"}]
    result = run("h1", "h4", "--tcp")
    assert result.exit_code == 1
    assert "no path of TCP is known from 'h1' to 'h4'" in result.output
    assert "`cwdp tcp` lists them" in result.output


@pytest.mark.parametrize("words", [("h1",), ("h1", "h2", "h3")])
def test_other_words_are_wrong_usage(asked: list[Any], words: tuple[str, ...]) -> None:
    result = run(*words)
    assert (result.exit_code, asked) == (2, [])
    assert "Give SRC and DST" in result.output
