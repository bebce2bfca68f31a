"""`cwdp steer tcp`: what it asks of a manager, and what it says."""

from typing import Any

import pytest
from click.testing import CliRunner

from cwdp.cli import main
from cwdp.cli.local import steer_tcp
from cwdp.errors import ManagerError

NAME = "h1/nic0:40001 - h3/nic0:5201"
NEAR = {
    "host": "h1",
    "nic": "nic0",
    "addr": "10.1.0.1",
    "port": 40_001,
    "sport": 50_001,
    "backup_sport": 50_002,
}
FAR = {"host": "h3", "nic": "nic0", "addr": "10.2.0.1", "port": 5201, "sport": 50_003, "backup_sport": None}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str, Any]]:
    """What a manager was asked that does as it is told."""
    asked: list[tuple[str, str, Any]] = []

    class Client:
        def __init__(self, url: str | None) -> None:
            assert url == "unix:///x"

        def put(self, path: str, document: Any, *, why: str | None) -> Any:
            asked.append(("put", path, document | ({} if why is None else {"why": why})))
            if document["sport"] == 1:
                raise ManagerError("the manager refused: no", "do this")
            return {"near": NEAR, "far": FAR}

        def delete(self, path: str, query: Any, *, why: str | None) -> Any:
            asked.append(("delete", path, query | ({} if why is None else {"why": why})))
            return {}

    monkeypatch.setattr(steer_tcp, "ManagerClient", Client)
    return asked


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(main, ["steer", "tcp", *arguments, "--manager", "unix:///x"])
    return result.exit_code, result.output


@pytest.mark.parametrize("words", [(NAME,), tuple(NAME.split())], ids=["in one word", "in three"])
def test_a_connection_is_steered_and_released(
    asked: list[tuple[str, str, Any]], words: tuple[str, ...]
) -> None:
    assert run("set", *words, "--sport", "50001", "--backup", "50002", "--back-sport", "50003") == (
        0,
        f"{NAME} leaves from 50001, backed up by 50002; comes back from 50003\n",
    )
    assert run("unset", *words) == (0, f"{NAME} is left to the planner\n")
    wanted = {
        "connection": NAME,
        "sport": 50_001,
        "backup_sport": 50_002,
        "back_sport": 50_003,
        "back_backup_sport": None,
    }
    assert asked == [
        ("put", "/v1/steer/tcp", wanted),
        ("delete", "/v1/steer/tcp", {"connection": NAME}),
    ]


def test_what_a_change_is_for_goes_with_it(asked: list[tuple[str, str, Any]]) -> None:
    assert run("set", NAME, "--sport", "50001", "--why", " s1 is being mended ")[0] == 0
    assert run("unset", NAME, "--why", "s1 is well")[0] == 0
    assert [each["why"] for _, _, each in asked] == ["s1 is being mended", "s1 is well"]


@pytest.mark.parametrize("why", ["x" * 201, "two\nlines", "\x1b[31mred"], ids=["long", "lines", "escape"])
def test_what_cannot_be_kept_is_refused_before_anybody_is_asked(
    asked: list[tuple[str, str, Any]], why: str
) -> None:
    status, output = run("set", NAME, "--sport", "50001", "--why", why)
    assert (status, asked) == (2, [])
    assert "why" in output


def test_what_a_manager_refuses_is_said_with_the_next_step(asked: list[tuple[str, str, Any]]) -> None:
    status, output = run("set", NAME, "--sport", "1")
    assert asked
    assert (status, output) == (1, "error: the manager refused: no\n  do this\n")


def test_a_connection_must_be_named() -> None:
    status, output = run("unset")
    assert status == 2
    assert "END - END" in output
