"""`cwdp doctor`: what people and scripts see; the checks themselves are tested in tests/unit/doctor."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from cwdp.cli import main
from cwdp.doctor.result import GRAVITY


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["doctor", *arguments])


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """Of an agent on the loopback interface, without a credential and with a bus that nobody serves."""
    path = tmp_path / "agent.toml"
    path.write_text(
        f'nics = ["lo"]\nnats = "nats://127.0.0.1:1"\n'
        f'credential = "{tmp_path}/agent.creds"\nkeys = "{tmp_path}/keys.toml"\n'
    )
    return path


def test_programs_get_every_check_and_a_status(config: Path) -> None:
    result = run("--json", "--config", str(config))
    found = json.loads(result.output)
    assert (result.exit_code, found["verdict"]) == (1, "fail")
    assert found.keys() == {"host", "verdict", "checks"}
    checks = {(check["name"], check["of"]): check for check in found["checks"]}
    assert {frozenset(check) for check in found["checks"]} == {
        frozenset({"name", "of", "verdict", "what", "next_step"})
    }
    assert {check["verdict"] for check in found["checks"]} <= set(GRAVITY)
    assert checks["bus", ""]["verdict"] == "fail"
    assert "refused" in checks["bus", ""]["what"]
    assert "cwdp agent join" in checks["credential", ""]["next_step"]
    assert "XDP" in {name for name, of in checks if of == "lo"}


def test_people_get_what_is_wrong_and_the_next_step(tmp_path: Path) -> None:
    result = run("--config", str(tmp_path / "none.toml"))
    assert result.exit_code == 1
    assert "fail configuration" in " ".join(result.output.split())
    assert "-> create it" in result.output
    assert result.output.rstrip().endswith("cwdp does not work here as it is configured")
