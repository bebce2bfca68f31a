"""The main command: quick and lazy, with errors for people; finding the manager; the tables."""

import socket
import subprocess
import sys
from io import StringIO
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner
from rich.console import Console

from cwdp.cli import COMMANDS, client, main, reading, tables
from cwdp.cli.client import ManagerClient
from cwdp.cli.cluster import clock, host, owd
from cwdp.cli.lazy import LazyGroup
from cwdp.errors import ConfigError, CwdpError, ManagerError, PrivilegeError


def _imported_by(*arguments: str) -> set[str]:
    """What a run of the command has imported in the end."""
    script = (
        "import sys\nfrom cwdp.cli import main\n"
        f"try: main({list(arguments)!r}, prog_name='cwdp')\nexcept SystemExit: pass\n"
        "print('MODULES', *sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(done.stdout.rpartition("MODULES")[2].split())


def test_help_names_every_command_and_imports_none_of_them() -> None:
    output = CliRunner().invoke(main, ["--help"]).output
    assert all(name in output and text in output for name, (_, text) in COMMANDS.items())
    imported = _imported_by("--help")
    assert not imported & {"scipy", "numpy", "rich", "aiohttp", "nats", "manager", "tools"}


def test_commands_on_a_host_import_neither_the_manager_nor_scipy() -> None:
    for command in ("dataplane", "agent"):
        assert not _imported_by(command, "--help") & {"scipy", "manager"}


def test_commands_that_read_are_small() -> None:
    assert not _imported_by("clock", "--help") & {"scipy", "numpy", "manager", "aiohttp", "nats"}


@pytest.mark.parametrize("name", ["agent", "clock", "dataplane", "host", "manager", "owd"])
def test_every_command_has_help(name: str) -> None:
    result = CliRunner().invoke(main, [name, "--help"])
    assert result.exit_code == 0, result.output


class _Failing(LazyGroup):
    """A group with one command, which fails."""

    def __init__(self, error: BaseException) -> None:
        super().__init__("x", commands_by_path={})
        self._error = error

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command:
        del ctx

        def fail() -> None:
            raise self._error

        return click.Command(cmd_name, callback=fail)


@pytest.mark.parametrize(
    ("error", "status", "output"),
    [
        (
            ManagerError("it is not there", "start it\nor not"),
            1,
            "error: it is not there\n  start it\n  or not\n",
        ),
        (ConfigError("wrong", "right it"), 2, "error: wrong\n  right it\n"),
        (PrivilegeError("you may not"), 1, "error: you may not\n"),
        (KeyboardInterrupt(), 130, ""),
    ],
)
def test_errors_become_a_message_and_an_exit_status(error: BaseException, status: int, output: str) -> None:
    result = CliRunner().invoke(_Failing(error), ["fail"])
    assert (result.exit_code, result.stderr, result.stdout) == (status, output, "")


def test_usage_errors_exit_with_2() -> None:
    for arguments in (
        ["nonsense"],
        ["owd", "--sort", "x"],
        ["clock", "--watch", "0"],
        ["manager", "run", "--x"],
    ):
        assert CliRunner().invoke(main, arguments).exit_code == 2


def test_a_wrong_config_is_a_message_with_status_2(tmp_path: Path) -> None:
    path = tmp_path / "manager.toml"
    path.write_text("probe = 1")
    result = CliRunner().invoke(main, ["manager", "run", "--config", str(path)])
    assert result.exit_code == 2
    assert result.stderr.startswith(f"error: {path}: Object contains unknown field `probe`\n  known keys")


def test_the_version() -> None:
    assert CliRunner().invoke(main, ["--version"]).output.startswith("cwdp 0.")


@pytest.mark.parametrize("url", ["x", "unix://", "ftp://x", "http://", "/run/cwdp/manager.sock"])
def test_a_manager_url_of_another_form(url: str) -> None:
    with pytest.raises(ConfigError, match="no manager URL"):
        ManagerClient(url)


@pytest.fixture
def run_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    patterns = (f"{tmp_path}/manager.sock", f"{tmp_path}/lab/*/manager.sock")
    monkeypatch.setattr(client, "SOCKETS", patterns)
    return tmp_path


def test_without_a_manager_the_next_step_is_named(run_dir: Path) -> None:
    result = CliRunner().invoke(main, ["clock"], env={"CWDP_MANAGER": None})
    assert result.exit_code == 1
    assert "cwdp manager run" in result.stderr


def test_one_manager_is_found_and_several_are_named(run_dir: Path) -> None:
    labs = [run_dir / "lab" / name / "manager.sock" for name in ("one", "two")]
    for path in labs:
        path.parent.mkdir(parents=True)
    labs[0].touch()
    assert ManagerClient(None).url == f"unix://{labs[0]}"
    labs[1].touch()
    with pytest.raises(ManagerError, match="several") as caught:
        ManagerClient(None)
    assert all(f"--manager unix://{path}" in caught.value.hint for path in labs)


def test_a_manager_that_does_not_answer(tmp_path: Path) -> None:
    path = tmp_path / "manager.sock"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
        with pytest.raises(ManagerError, match="Connection refused") as caught:
            ManagerClient(f"unix://{path}").get("/v1/clock")
    assert isinstance(caught.value, CwdpError)
    assert "cwdp manager run" in caught.value.hint


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "-"), (0, "0 ns"), (-12.4, "-12 ns"), (9999, "9,999 ns"), (12345, "12.3 us"), (3.2e10, "32.0 s")],
)
def test_durations_read_well(value: float | None, text: str) -> None:
    assert tables.duration(value) == text


def _text(renderable: Any) -> str:
    out = StringIO()
    Console(file=out, width=80).print(renderable)
    return out.getvalue()


def _clock_row(**changes: Any) -> dict[str, Any]:
    return {
        "host": "gpu-node-17",
        "state": "set_aside",
        "offset_ns": -8_640_004_726_085_905,
        "drift_ppb": -41_478.56,
        "bound_ns": 12_345.6,
        "edges_used": 18,
        "edges_rejected": 2,
        "residual_p99_ns": 8.4,
        "age_s": 0.2,
        "discipline_source": "adjtimex",
        "discipline_ppb": 1204.0,
        "discipline_changes": 34,
        "discipline_changed_s": 12.34,
        "widened": None,
        "clock_changed_s": None,
        "cause": None,
    } | changes


def _clock_lines(*rows: dict[str, Any], allowance_ns: float = 0.0) -> list[str]:
    answer = {"timeline": "0123456789", "allowance_ns": allowance_ns, "hosts": rows}
    lines = _text(clock.table(answer)).splitlines()
    assert max(map(len, lines)) <= 80
    return [" ".join(line.split()) for line in lines]


CLOCK_NOTES = [
    "timeline 01234567; edges used of all measured",
    "discipline: rate that it gives, how often that changed, the last time",
]


def test_the_clock_table_has_one_line_a_host_within_80_columns() -> None:
    small = {"host": "h1", "state": "synced", "offset_ns": -2_052_471_651}
    assert _clock_lines(_clock_row(**small), _clock_row(**small, edges_rejected=0)) == [
        "host state offset s drift ppb bound edges discipline",
        "h1 synced -2.052471651 -41478.6 12.3 us 18/20 +1.20 ppm, 34x, 12 s",
        "h1 synced -2.052471651 -41478.6 12.3 us 18/18 +1.20 ppm, 34x, 12 s",
        *CLOCK_NOTES,
    ]


def test_the_discipline_moves_below_the_host_where_it_does_not_fit_beside_it() -> None:
    assert _clock_lines(_clock_row(), _clock_row(state="synced", edges_rejected=0)) == [
        "host state offset s drift ppb bound edges",
        "gpu-node-17 set aside -8640004.726085905 -41478.6 12.3 us 18/20",
        "discipline +1.20 ppm, 34x, 12 s",
        "gpu-node-17 synced -8640004.726085905 -41478.6 12.3 us 18/18",
        "discipline +1.20 ppm, 34x, 12 s",
        *CLOCK_NOTES,
    ]


@pytest.mark.parametrize(
    ("row", "why"),
    [
        ({"widened": "clock_changed", "clock_changed_s": 1.23}, "clock changed 1.2 s ago, being found anew"),
        (
            {"state": "holdover", "widened": "out_of_touch"},
            "out of touch, last synced 0.2 s ago: not confirmed, the bound grows",
        ),
        (
            {"state": "set_aside", "cause": "its clock lies or steps", "age_s": 75.0},
            "its clock lies or steps, last synced 75 s ago",
        ),
        ({"widened": "allowance"}, None),
    ],
)
def test_below_a_host_stands_why_its_bound_is_wide(row: dict[str, Any], why: str | None) -> None:
    lines = _clock_lines(_clock_row(host="h1") | row, _clock_row(host="h2", state="synced"))
    below = lines[3:-4]
    assert below == ([] if why is None else [why])


def test_an_allowance_in_all_bounds_is_told_once() -> None:
    rows = [_clock_row(host="h1", widened="allowance")] * 2
    lines = _clock_lines(*rows, allowance_ns=251.0)
    assert lines[-1] == "bounds hold an allowance of 251 ns for what is not seen yet"


@pytest.mark.parametrize(
    ("told", "text"),
    [
        ({}, "+1.20 ppm, 34x, 12 s"),
        ({"discipline_ppb": -123_456.0}, "-123.5 ppm, 34x, 12 s"),
        ({"discipline_changes": 0, "discipline_changed_s": None}, "+1.20 ppm, steady"),
        ({"discipline_changed_s": None}, "+1.20 ppm, 34x"),
        ({"discipline_changed_s": 3.21}, "+1.20 ppm, 34x, 3.2 s"),
        ({"discipline_changed_s": 120.0}, "+1.20 ppm, 34x, 2 min"),
        ({"discipline_changed_s": 9000.0}, "+1.20 ppm, 34x, 2 h"),
        ({"discipline_changed_s": 1e6}, "+1.20 ppm, 34x, 12 d"),
        ({"discipline_source": "raw"}, "+1.20 ppm, 34x, 12 s"),
        ({"discipline_source": "none", "discipline_ppb": None}, "not readable"),
        ({"discipline_source": None, "discipline_ppb": None, "discipline_changes": None}, "-"),
    ],
)
def test_disciplines_read_well(told: dict[str, Any], text: str) -> None:
    assert clock.discipline(_clock_row(**told)) == text


def test_a_live_view_goes_on_until_it_is_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []

    def sleep(pause_s: float) -> None:
        pauses.append(pause_s)
        if len(pauses) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(reading.time, "sleep", sleep)
    monkeypatch.setattr(
        ManagerClient, "get", lambda *_: {"timeline": "t", "allowance_ns": 0.0, "hosts": [_clock_row()]}
    )
    for arguments in (["--watch", "2", "--json"], ["--watch", "2"]):
        pauses.clear()
        result = CliRunner().invoke(main, ["clock", "--manager", "unix:///x", *arguments])
        assert (result.exit_code, result.stderr, pauses) == (130, "", [2.0, 2.0, 2.0])
        assert "gpu-node-17" in result.stdout


def test_tables_bear_what_is_not_known_yet() -> None:
    row = dict.fromkeys(_clock_row()) | {
        "host": "a",
        "state": "unsynced",
        "edges_used": 0,
        "edges_rejected": 0,
    }
    assert "a unsynced - - - 0/0 -" in _clock_lines(row)
    assert "0 of 0 paths" in _text(owd.table({"paths": [], "path_count": 0, "window_s": 10.0}))
    row = {"host": "a", "state": "up", "clock_state": "unsynced", "nics": [], "last_seen_s": 0.1}
    assert "up" in _text(host.table({"hosts": [row], "transports": {"xdp": 0, "ud": 0}}))


def test_nics_that_cannot_probe_each_other_are_told_of() -> None:
    nic = {
        "ifname": "eth0",
        "ipv4": "10.0.0.1",
        "ipv6": None,
        "carrier": True,
        "mode": "absent",
        "reason": "ok",
    }
    row = {"host": "a", "state": "up", "clock_state": "synced", "last_seen_s": 0.1}
    row["nics"] = [nic | {"transport": "ud"}]
    alike = _text(host.table({"hosts": [row], "transports": {"xdp": 0, "ud": 3}}))
    assert " ud " in alike
    assert "no path between" not in alike
    mixed = _text(host.table({"hosts": [row], "transports": {"xdp": 2, "ud": 3}}))
    assert "3 NICs probe by UD queue pairs, 2 by XDP: no path between the two kinds" in mixed
    assert max(map(len, mixed.splitlines())) <= 80
