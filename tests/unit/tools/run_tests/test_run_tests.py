"""The table at the end of `make test`: what ran, what did not, why, and whether that is a failure."""

import io
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec
import need
import pytest
from rich.console import Console

from tools.run_tests import __main__ as command
from tools.run_tests import tiers
from tools.run_tests.results import Results
from tools.run_tests.table import Tier, report

NO_NATS = "not installed: nats-server"
LINT = Tier("lint", 0, 12.0, 12.0, Results())
UNIT = Tier("unit", 0, 65.4, 65.4, Results(passed=900))
NO_ROOT = Tier("kernel", 0, 1.0, 1.0, Results(skipped={"needs root": 7}))
CRASHED = Tier("lab", -9, 30.0, 30.0, None)
TESTS = """
import pytest

def test_passes():
    pass

def test_fails():
    assert False

@pytest.fixture
def broken():
    raise OSError

def test_errs(broken):
    pass

@pytest.mark.skip(reason="a fence")
def test_by_mark():
    pass

@pytest.mark.parametrize("n", [1, 2])
def test_by_call(n):
    pytest.skip("a gate")
"""
ENDS = """
import os
import pytest

@pytest.mark.parametrize("n", range(5))
def test_it(n):
    if n == 2:
        os._exit(STATUS)
"""
WORKERS = tiers.TESTS["unit"][:-1]


def reported(of: Sequence[Tier], ci: bool = False) -> tuple[int, list[str]]:
    """The exit status, and the lines."""
    said = io.StringIO()
    status = report(of, Console(file=said, width=120), ci)
    return status, [" ".join(line.split()) for line in said.getvalue().splitlines()]


@pytest.mark.parametrize("ci", [False, True])
def test_all_is_well(ci: bool) -> None:
    few = Tier("kernel", 0, 1.0, 1.0, Results(passed=5, skipped={"this kernel has fq": 2}))
    status, lines = reported([LINT, UNIT, few], ci)
    assert status == 0
    assert lines == [
        "tier passed failed skipped took processor why",
        "lint ok - - - 12 s 12 s",
        "unit ok 900 - - 1 min 05 s 1 min 05 s",
        "kernel ok 5 - 2 1 s 1 s 2 skipped: this kernel has fq",
        "905 passed, 0 failed, 2 skipped",
    ]


def test_a_failed_test_fails_the_run() -> None:
    status, lines = reported([Tier("unit", 1, 3.0, 3.0, Results(passed=8, failed=2)), UNIT])
    assert status == 1
    assert "unit FAILED 8 2 - 3 s 3 s" in lines
    assert lines[-1] == "908 passed, 2 failed, 0 skipped"


def test_a_failed_check_counts() -> None:
    status, lines = reported([Tier("lint", 2, 3.0, 3.0, Results(failed=1)), UNIT])
    assert status == 1
    assert lines[-1] == "900 passed, 1 failed, 0 skipped"


@pytest.mark.parametrize("ci", [False, True])
def test_a_tier_without_results_has_failed(ci: bool) -> None:
    status, lines = reported([UNIT, CRASHED], ci)
    assert status == 1
    assert "lab FAILED - 1 - 30 s 30 s ended with status -9 before it could say" in lines
    assert lines[-1] == "900 passed, 1 failed, 0 skipped"


def test_a_tier_that_could_not_end_well_has_failed() -> None:
    status, lines = reported([Tier("unit", 4, 3.0, 3.0, Results(passed=8))])
    assert status == 1
    assert lines[-1] == "8 passed, 1 failed, 0 skipped"


def test_a_tier_in_which_nothing_ran_is_said_aloud() -> None:
    status, lines = reported([UNIT, NO_ROOT])
    assert status == 0
    assert "kernel DID NOT RUN - - 7 1 s 1 s no test ran" in lines
    assert lines[-2:] == [
        "NOT EVERYTHING RAN: no test of the tier kernel did",
        "900 passed, 0 failed, 7 skipped",
    ]


def test_a_tier_in_which_nothing_ran_has_failed_in_ci() -> None:
    status, lines = reported([UNIT, NO_ROOT, Tier("lab", 5, 1.0, 1.0, Results())], ci=True)
    assert status == 1
    assert "kernel FAILED - 1 7 1 s 1 s no test ran" in lines
    assert "lab FAILED - 1 - 1 s 1 s no test ran" in lines
    assert lines[-1] == "900 passed, 2 failed, 7 skipped"


def test_what_is_not_installed_is_said_aloud() -> None:
    status, lines = reported([Tier("unit", 0, 1.0, 1.0, Results(passed=9, skipped={NO_NATS: 3}))])
    assert status == 0
    assert f"unit INCOMPLETE 9 - 3 1 s 1 s 3 skipped: {NO_NATS}" in lines
    assert lines[-2] == f"NOT EVERYTHING RAN: 3 tests of the tier unit did not: {NO_NATS}"


def tier_of(folder: Path, workers: Sequence[str]) -> Tier:
    """What became of the tests in a folder."""
    path = folder / "results.json"
    plugin = ("-p", "tools.run_tests.results", f"--results={path}", *workers)
    only = (
        "-c",
        os.devnull,
        f"--rootdir={folder}",
        "-p",
        "no:cacheprovider",
        "--continue-on-collection-errors",
    )
    command = [sys.executable, "-m", "pytest", *plugin, *only, folder]
    status = subprocess.run(command, check=False, capture_output=True).returncode
    return Tier("unit", status, 1.0, 1.0, msgspec.json.decode(path.read_bytes(), type=Results))


@pytest.mark.parametrize("workers", [(), WORKERS], ids=["one process", "workers"])
def test_the_results_of_a_tier(tmp_path: Path, workers: Sequence[str]) -> None:
    (tmp_path / "test_it.py").write_text(TESTS)
    (tmp_path / "test_broken.py").write_text("import no_such_module")
    tier = tier_of(tmp_path, workers)
    failures = ["test_broken.py", "test_it.py::test_errs", "test_it.py::test_fails"]
    assert tier.results == Results(passed=1, failed=3, skipped={"a fence": 1, "a gate": 2}, failures=failures)


SHY = """
import pathlib
import pytest

@pytest.mark.parametrize("n", range(2))
def test_shy(n, pytestconfig):
    seen = pathlib.Path(f"{__file__}-{n}")
    if not seen.exists():
        seen.touch()
        pytest.fail("so many others")
"""
NEVER = """
def test_never():
    assert False
"""


@pytest.mark.parametrize(
    ("files", "never", "failed", "alone"),
    [(1, "", 0, 2), (1, NEVER, 1, 2), (3, "", 0, 6), (3, NEVER, 1, 6), (4, "", 8, 0), (4, NEVER, 9, 0)],
)
def test_what_fails_in_few_files_is_run_once_more_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, files: int, never: str, failed: int, alone: int
) -> None:
    """In more it is no accident."""
    for number in range(files):
        (tmp_path / f"test_shy{number}.py").write_text(SHY + (never if number == 0 else ""))
    (tmp_path / "pytest.ini").write_text("[pytest]")
    monkeypatch.setenv("PYTHONPATH", str(Path(tiers.__file__).parents[2]))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(tiers.TESTS, "unit", ("-n", "2", "."))
    tier = tiers.run("unit")
    assert tier.results is not None
    assert (tier.results.failed, len(tier.results.alone)) == (failed, alone)
    assert tier.failed(ci=True) == failed
    status, lines = reported([tier])
    assert status == (failed > 0)
    assert sum(line.startswith("PASSED BY ITSELF ONLY: ") for line in lines) == alone


@pytest.mark.parametrize("status", [0, 1])
def test_a_worker_that_ends_in_the_midst_of_a_test_has_failed(tmp_path: Path, status: int) -> None:
    (tmp_path / "test_it.py").write_text(ENDS.replace("STATUS", str(status)))
    assert tier_of(tmp_path, WORKERS).failed(ci=False) == 1


def test_a_tier_that_ends_early_has_no_results(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiers, "_pytest", lambda *_: ["sh", "-c", "kill -9 $$"])
    assert tiers.run("unit").results is None


@pytest.mark.parametrize(
    ("name", "uid", "may_sudo", "begins"),
    [
        ("lab", 0, True, [sys.executable]),
        ("lab", 1000, True, ["sudo", "env", "CI=yes"]),
        ("lab", 1000, False, [sys.executable]),
        ("unit", 1000, True, [sys.executable]),
    ],
)
def test_a_tier_that_needs_root_gets_it_where_it_may(
    name: str, uid: int, may_sudo: bool, begins: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CI", "yes")
    monkeypatch.setattr(os, "geteuid", lambda: uid)
    monkeypatch.setattr(tiers, "_may_sudo", lambda: may_sudo)
    assert tiers._pytest(name, Path("results"), ())[: len(begins)] == begins


def test_an_unknown_tier_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["run_tests", "unit", "units"])
    assert command.main() == 2
    assert "lint, types, unit, kernel, page, lab, rdma" in capsys.readouterr().err


@pytest.mark.parametrize("what", ["cwdp-no-such-program", Path("/no/such/file")])
def test_what_is_missing_is_a_skip_but_in_ci(what: str | Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match=r"^not installed: "):
        need.installed(what)
    monkeypatch.setenv("CI", "1")
    with pytest.raises(pytest.fail.Exception, match=r"^not installed: "):
        need.installed(what)


def test_want_of_root_is_a_skip_but_in_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match=r"^needs root, for a test$"):
        need.root("for a test")
    monkeypatch.setenv("CI", "1")
    with pytest.raises(pytest.fail.Exception, match=r"^needs root, for a test$"):
        need.root("for a test")


def test_what_is_there_is_no_matter() -> None:
    need.installed("sh")
    need.installed(Path(__file__))
