"""The commands that show and record facts of a host."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from rich.console import Console

from cwdp.cli import main
from cwdp.cli.audit.facts import render
from cwdp.shared.audit.facts import HostFacts, Subject


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["audit", *arguments])


def shown(found: HostFacts, width: int = 80) -> list[str]:
    console = Console(width=width, highlight=False, color_system=None)
    with console.capture() as told:
        console.print(render(found))
    return [line.rstrip() for line in told.get().splitlines()]


def test_facts_of_a_host_as_tables() -> None:
    nics = [
        Subject(
            kind="nic",
            name=f"eth{i}",
            role="back",
            facts={"mtu_bytes": 9000, "is_up": True, "speed_bps": 10**11 * (1 + i // 2)},
        )
        for i in range(3)
    ]
    host = Subject(
        kind="host", facts={"cpus": 8, "governors": [], "swap_bytes": 4096}, missing={"product": "no DMI"}
    )
    found = HostFacts(
        host="gpu-17", taken_s=0, subjects=[host, *nics], troubles={"dcb": "timed out after 5 s"}
    )
    assert shown(found) == [
        "gpu-17",
        "product     not available: no DMI",
        "cpus        8",
        "governors   none",
        "swap_bytes  4,096",
        "",
        "NICs, back: eth0, eth1, eth2",
        "is_up      yes",
        "mtu_bytes  9,000",
        "speed_bps  100 Gb/s  eth0 eth1",
        "speed_bps  200 Gb/s  eth2",
        "",
        "dcb: timed out after 5 s",
    ]


def test_text_of_a_host_is_no_markup() -> None:
    host = Subject(kind="host", facts={"product": "[red]x[/red]"}, missing={"os": "[bold]"})
    assert "product  [red]x[/red]" in shown(HostFacts(host="[b]", taken_s=0, subjects=[host]))


def test_facts_as_json_and_of_a_recording(tmp_path: Path) -> None:
    folder = tmp_path / "new"
    written = run("record", str(folder))
    assert written.exit_code == 0, written.output
    told = run("facts", "--root", str(folder), "--json")
    assert told.exit_code == 0, told.output
    found = json.loads(told.output)
    assert found.keys() == {"host", "version", "taken_s", "subjects", "troubles", "walks", "asked"}
    assert found["subjects"][0].keys() == {"kind", "name", "role", "facts", "missing"}
    assert found["subjects"][0]["facts"]["cpus"] >= 1


def test_a_folder_that_is_in_use_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    done = run("record", str(tmp_path))
    assert done.exit_code == 2
    assert "is not empty" in done.output
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize("given", ["eth0", "eth0=middle", "=back"])
def test_a_role_that_is_none(given: str, tmp_path: Path) -> None:
    done = run("facts", "--root", str(tmp_path), "--role", given)
    assert done.exit_code == 2
    assert f"{given} is no role of a NIC" in done.output


def test_a_role_is_given(tmp_path: Path) -> None:
    done = run("facts", "--root", str(tmp_path), "--role", "eth7=back")
    assert done.exit_code == 0, done.output
    assert "NICs, back: eth7" in done.output
