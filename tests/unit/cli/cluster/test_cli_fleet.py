"""`cwdp fleet init` and `server`, and what they refuse."""

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from cwdp.cli import main
from manager.identity.authority import Authority


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["fleet", *arguments])


def test_an_authority_is_made_once(here: Path) -> None:
    assert run("init", "--dir", "a").exit_code == 0
    first = Authority.load(here / "a").root
    again = run("init", "--dir", "a")
    assert again.exit_code == 1
    assert "already" in again.output
    assert Authority.load(here / "a").root == first
    assert (here / "a/authority.json").stat().st_mode & 0o077 == 0


def test_servers_of_a_cluster_know_each_other_and_where_their_files_will_lie(here: Path) -> None:
    run("init", "--dir", "a")
    routes = [f"10.0.0.{number}:6222" for number in (1, 2, 3)]
    for number, route in enumerate(routes, start=1):
        options = [each for other in routes for each in ("--route", other)]
        made = run(
            *("server", f"b{number}", "--dir", "a", "--listen", f"10.0.0.{number}:4222"),
            *("--cluster", route, *options, "--home", "/srv/bus"),
        )
        assert made.exit_code == 0, made.output
        text = (here / f"b{number}/nats-server.conf").read_text()
        assert all(json.dumps(f"nats-route://{other}") in text for other in routes)
        assert set(re.findall(r'_(?:file|dir): "([^"]*)/[^/"]*"', text)) == {"/srv/bus"}
        assert str(here) not in text
        assert (here / f"b{number}/server.key").stat().st_mode & 0o077 == 0
    assert len({(here / f"b{number}/server.pem").read_text() for number in (1, 2, 3)}) == 3


@pytest.mark.parametrize(
    "options",
    [
        ["--listen", "nonsense"],
        ["--listen", "10.0.0.1:4222", "--cluster", "10.0.0.1"],
        ["--listen", "10.0.0.1:4222", "--cluster", "10.0.0.1:6222"],
        ["--listen", "10.0.0.1:4222", "--route", "10.0.0.1:6222"],
    ],
)
def test_addresses_that_are_none_are_refused(here: Path, options: list[str]) -> None:
    run("init", "--dir", "a")
    refused = run("server", "b1", "--dir", "a", *options)
    assert refused.exit_code == 2
    assert not (here / "b1").exists()


@pytest.mark.usefixtures("here")
def test_a_server_needs_an_authority() -> None:
    refused = run("server", "b1", "--dir", "nowhere", "--listen", "10.0.0.1:4222")
    assert refused.exit_code == 1
    assert "cwdp fleet init" in refused.output
