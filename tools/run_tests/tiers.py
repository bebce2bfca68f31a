"""Run a tier of the tests to its end."""

import itertools
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from tools.processes import ended_processor_s
from tools.run_tests.results import Results
from tools.run_tests.table import CHECKS, Tier

LONGEST = ("--timeout", "600")
"""One that stands still fails after so many seconds, that the others come to their turn; those of labs say for themselves."""

TESTS = {
    # Most wait, for a bus server or for the kernel to take a namespace away. Those of labs need the machine for themselves.
    "unit": ("-n", "4", "--dist", "worksteal", *LONGEST, "tests/unit"),
    "kernel": ("-n", "4", "--dist", "loadfile", *LONGEST, "tests/bpf"),
    "page": ("tests/page",),
    "lab": ("tests/lab",),
    "rdma": ("-s", "tests/rdma"),  # what the virtual machine prints is passed on
    "packages": ("tests/packages",),
}
SLOWEST = ("--durations", "12", "--durations-min", "10")
"""Each tier says where its time went."""

NEED_ROOT = ("kernel", "lab", "rdma", "packages")

MOST_AGAIN = 3
"""The machine is shared, and two processors run four tests at once: what fails in so many files is run once more.

Each file's by themselves, since tests of one file share a lab, and its accidents. What passes then is named in the table, and
above the closing line. More at once are no accident."""


def run(name: str) -> Tier:
    """Run one tier or check to its end, whatever becomes of it."""
    print(f"== {name}", flush=True)
    began, used = time.monotonic(), ended_processor_s()
    status, results = _checked(name) if name in CHECKS else _tested_twice(name)
    return Tier(name, status, time.monotonic() - began, ended_processor_s() - used, results)


def _checked(name: str) -> tuple[int, Results]:
    status = _wait(["make", "--no-print-directory", name])
    return status, Results(failed=int(status != 0))


def _tested_twice(name: str) -> tuple[int, Results | None]:
    """Run all tests of a tier, and those that failed once more where they are few."""
    status, results = _tested(name, TESTS[name])
    if status == pytest.ExitCode.TESTS_FAILED and results is not None:
        files = _by_file(results.failures)
        if len(files) <= MOST_AGAIN:
            return _again(name, status, results, files)
    return status, results


def _by_file(tests: Sequence[str]) -> list[list[str]]:
    return [
        list(of_one) for _, of_one in itertools.groupby(sorted(tests), lambda test: test.partition("::")[0])
    ]


def _again(name: str, status: int, results: Results, files: Sequence[Sequence[str]]) -> tuple[int, Results]:
    """Run what failed once more, the tests of each file by themselves; what the tier comes to then."""
    print(f"== {name}: {len(results.failures)} once more", flush=True)
    left: set[str] = set()
    for tests in files:
        ended, found = _tested(name, (*LONGEST, *tests))
        if ended != pytest.ExitCode.OK:
            left |= set(found.failures if found and found.failures else tests)
    alone = sorted(set(results.failures) - left)
    changed = msgspec.structs.replace(
        results, passed=results.passed + len(alone), failed=len(left), failures=sorted(left), alone=alone
    )
    return (status if left else int(pytest.ExitCode.OK)), changed


def _tested(name: str, arguments: Sequence[str]) -> tuple[int, Results | None]:
    """Run tests of a tier; pytest's status, and what became of them unless it ended before it could say."""
    with tempfile.TemporaryDirectory(prefix="cwdp-tests-") as folder:
        path = Path(folder) / "results.json"
        status = _wait(_pytest(name, path, arguments))
        results = msgspec.json.decode(path.read_bytes(), type=Results) if path.exists() else None
    return status, results


def _pytest(name: str, results: Path, arguments: Sequence[str]) -> list[str]:
    """Return the command of tests; by sudo where the tier needs root and may have it, and then without a cache to own."""
    plugin = ("-p", "tools.run_tests.results", f"--results={results}")
    command = [sys.executable, "-m", "pytest", *plugin, *SLOWEST, *arguments]
    if name in NEED_ROOT and os.geteuid() != 0 and _may_sudo():
        return ["sudo", "env", f"CI={os.environ.get('CI', '')}", *command, "-p", "no:cacheprovider"]
    return command


def _may_sudo() -> bool:
    return shutil.which("sudo") is not None and subprocess.run(["sudo", "true"], check=False).returncode == 0


def _wait(command: list[str]) -> int:
    """Run a command; when this process is ended before it, it is ended too, and clears up behind itself first."""
    process = subprocess.Popen(command)
    try:
        return process.wait()
    except SystemExit:
        process.terminate()
        raise
    finally:
        process.wait()
