"""`cwdp steer list --host`: queue pairs that are to be steered, whatever moves them."""

import json
from typing import Any

import pytest
from click.testing import CliRunner

from cwdp.cli import main
from cwdp.cli.local import steer
from cwdp.shared.bus.messages import ACTUATORS

ROWS = [
    {
        "host": "h1", "nic": f"nic{i % 2}", "dst": "10.2.0.1", "qpn": 4711 + i, "sport": 50_000,
        "backup_sport": 50_001 if i else None, "flow_label": False, "set_by": "planner" if i else "operator",
        "actuator": actuator, "refused": actuator == "sqd",
    }
    for i, actuator in enumerate(ACTUATORS)
]  # fmt: skip


@pytest.fixture(autouse=True)
def manager(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A manager that answers with these rows, and what it was asked."""
    served: dict[str, Any] = {"rows": ROWS, "connections": []}

    class Client:
        def __init__(self, _url: str | None) -> None:
            pass

        def get(self, path: str, query: Any) -> Any:
            served["asked"] = path, query
            return {"steered": served["rows"], "connections": served["connections"]}

    monkeypatch.setattr(steer, "ManagerClient", Client)
    return served


def run(*arguments: str) -> str:
    result = CliRunner().invoke(main, ["steer", "list", "--host", "h1", *arguments], env={"COLUMNS": "80"})
    assert result.exit_code == 0, result.output
    return result.output


def test_every_actuator_is_shown_within_80_columns(manager: dict[str, Any]) -> None:
    output = run()
    assert manager["asked"] == ("/v1/steered", {"host": "h1"})
    lines = output.splitlines()
    assert max(map(len, lines)) <= 80
    assert [line.split()[6] for line in lines[1:]] == list(ACTUATORS)
    assert lines[1].split() == ["nic0", "10.2.0.1", "4711", "50000", "-", "operator", ACTUATORS[0]]
    assert [line for line in lines if "refused" in line] == [line for line in lines if " sqd" in line]


def test_one_interface_and_json() -> None:
    assert json.loads(run("--dev", "nic1", "--json")) == {
        "steered": [row for row in ROWS if row["nic"] == "nic1"],
        "connections": [],
    }


def test_none(manager: dict[str, Any]) -> None:
    manager["rows"] = []
    assert run() == "nothing of h1 is to be steered\n"


def test_connections_are_listed_with_what_they_do(manager: dict[str, Any]) -> None:
    manager["connections"] = [
        {
            "connection": f"h1/nic0:4000{i} - h3/nic0:5201", "nic": "nic0", "sport": 50_001, "backup_sport": 50_002 if i else None,
            "set_by": "planner" if i else "operator", "standing": standing,
        }
        for i, standing in enumerate(["primary", "backup", "unconfirmed", None])
    ]  # fmt: skip
    output = run()
    assert max(map(len, output.splitlines())) <= 80
    assert ACTUATORS[0] in output
    lines = [line.rstrip() for line in output.splitlines()[-4:]]
    assert lines[0].split(maxsplit=6)[3:] == ["50001", "-", "operator", "its path"]
    assert [line.split(maxsplit=6)[6] for line in lines] == [
        "its path",
        "its backup",
        "its own ports",
        "not yet",
    ]
    manager["rows"] = []
    assert [line.rstrip() for line in run("--dev", "nic0").splitlines()[1:]] == lines
    assert run("--dev", "nic1") == "nothing of h1 is to be steered\n"


@pytest.mark.parametrize(
    "command", [["set", "--sport", "50000"], ["unset"]], ids=lambda command: str(command[0])
)
def test_a_reason_is_nobodys_to_keep_without_a_manager(command: list[str]) -> None:
    told = ["--dev", "nic0", "--dst", "10.2.0.1", "--qpn", "7", "--why", "to see"]
    result = CliRunner().invoke(main, ["steer", *command, *told])
    assert result.exit_code == 2
    assert "give --host too" in result.stderr
