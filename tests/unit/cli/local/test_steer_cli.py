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
    served: dict[str, Any] = {"rows": ROWS}

    class Client:
        def __init__(self, _url: str | None) -> None:
            pass

        def get(self, path: str, query: Any) -> Any:
            served["asked"] = path, query
            return {"steered": served["rows"]}

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
        "steered": [row for row in ROWS if row["nic"] == "nic1"]
    }


def test_none(manager: dict[str, Any]) -> None:
    manager["rows"] = []
    assert run() == "no queue pair of h1 is to be steered\n"
