"""Two tiers are run beside each other: both come to their ends, what both print is shown, and both are ended early."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from rich.console import Console

from tools.run_tests import tiers
from tools.run_tests.side_by_side import LONG, NICENESS, run_all
from tools.run_tests.table import report

MEET = """
import os
import pathlib
import time

def test_it():
    print("this is", "NAME")
    mine, other = pathlib.Path("NAME"), pathlib.Path("OTHER")
    mine.write_text(str(os.nice(0)))
    while not other.exists():
        time.sleep(0.01)
    time.sleep(REST_S)
"""
LAST = f"import os\ndef test_it():\n    assert os.nice(0) == {min(os.nice(0) + NICENESS, 19)}\n"
PATIENT, LATER = "unit", "page"
CHECKOUT = Path(tiers.__file__).parents[2]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """One with a test of each of the two tiers, which wait for each other; the long one takes longer."""
    for name, other, rest_s in ((LONG, PATIENT, "1"), (PATIENT, LONG, "0")):
        (tmp_path / f"of_{name}").mkdir()
        text = MEET.replace("NAME", name).replace("OTHER", other).replace("REST_S", rest_s)
        (tmp_path / f"of_{name}" / f"test_{name}.py").write_text(text)
        monkeypatch.setitem(tiers.TESTS, name, ("-s", "--timeout", "30", f"of_{name}"))
    monkeypatch.setitem(tiers.TESTS, LATER, (f"of_{LATER}",))
    (tmp_path / "pytest.ini").write_text("[pytest]")
    monkeypatch.setenv("PYTHONPATH", str(CHECKOUT))
    monkeypatch.setattr(tiers, "NEED_ROOT", ())
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_both_run_at_once_and_only_one_gives_way(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (folder / f"of_{LATER}").mkdir()
    (folder / f"of_{LATER}" / "test_later.py").write_text(LAST)
    found = run_all([PATIENT, LATER, LONG])
    assert [tier.name for tier in found] == [PATIENT, LATER, LONG]
    assert [tier.results.passed for tier in found if tier.results is not None] == [1, 1, 1]
    assert all(tier.processor_s > 0.1 for tier in found)
    assert (folder / PATIENT).read_text() == str(min(os.nice(0) + NICENESS, 19))
    assert (folder / LONG).read_text() == str(os.nice(0))
    shown = capfd.readouterr().out
    assert shown.index(f"== {PATIENT}") < shown.index(f"== {LONG}") < shown.index(f"this is {LONG}")
    assert report(found, Console(), ci=True) == 0


def test_one_that_fails_ends_no_other(folder: Path) -> None:
    (folder / f"of_{LONG}" / "test_no.py").write_text("def test_no():\n    assert False\n")
    patient, long = run_all([PATIENT, LONG])
    assert patient.failed(ci=True) == 0
    assert long.failed(ci=True) == 1


def test_both_end_early_with_their_command(folder: Path) -> None:
    (folder / f"of_{LONG}" / "test_z.py").write_text("import time\ndef test_it():\n    time.sleep(60)\n")
    (folder / f"of_{PATIENT}" / "test_z.py").write_text("import time\ndef test_it():\n    time.sleep(60)\n")
    program = (
        "import signal, sys\n"
        "from tools.run_tests import tiers\n"
        "from tools.run_tests.side_by_side import run_all\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))\n"
        "tiers.NEED_ROOT = ()\n"
        f"tiers.TESTS.update({ {name: tiers.TESTS[name] for name in (LONG, PATIENT)}!r})\n"
        f"run_all([{PATIENT!r}, {LONG!r}])\n"
    )
    process = subprocess.Popen([sys.executable, "-c", program], cwd=folder, start_new_session=True)
    try:
        deadline_s = time.monotonic() + 30
        while not all((folder / name).exists() for name in (LONG, PATIENT)):
            assert time.monotonic() < deadline_s
            time.sleep(0.05)
        process.terminate()
        assert process.wait(20) == 143
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
