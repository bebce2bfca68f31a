"""Run a tier of the tests to its end."""

import contextlib
import itertools
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

import msgspec
import pytest

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
TOLD_AGAIN_S = 1.0
SLOWEST = ("--durations", "12", "--durations-min", "10")
"""Each tier says where its time went."""

NEED_ROOT = ("kernel", "lab", "rdma", "packages")

MOST_AGAIN = 3
"""The machine is shared, and two processors run four tests at once: what fails in so many files is run once more.

Each file's by themselves, since tests of one file share a lab, and its accidents. What passes then is named in the table, and
above the closing line. More at once are no accident."""


class Running:
    """One tier or check that is being run.

    Args:
        name: of the tier.
        said: where all goes that it prints; None for where this process prints.
        niceness: its processes give way to others by so much (nice(1)).
    """

    def __init__(self, name: str, said: BinaryIO | None = None, niceness: int = 0) -> None:
        self._name, self._said, self._niceness = name, said, niceness
        self._processor_s = 0.0
        self._process: subprocess.Popen[bytes] | None = None
        self._is_ending = False

    def run(self) -> Tier:
        """Run it to its end, whatever becomes of it."""
        self._say(f"== {self._name}")
        began = time.monotonic()
        status, results = self._checked() if self._name in CHECKS else self._tested_twice()
        return Tier(self._name, status, time.monotonic() - began, self._processor_s, results)

    def end(self) -> None:
        """Have it end early, in another thread than the one that runs it.

        Pytest takes the end of a test that starts a program for that test's only, and goes on with the next.
        """
        self._is_ending = True
        while (process := self._process) is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGTERM)
            time.sleep(TOLD_AGAIN_S)

    def _say(self, what: str) -> None:
        if self._said is None:
            print(what, flush=True)
        else:
            self._said.write(f"{what}\n".encode())

    def _checked(self) -> tuple[int, Results]:
        status = self._wait(["make", "--no-print-directory", self._name])
        return status, Results(failed=int(status != 0))

    def _tested_twice(self) -> tuple[int, Results | None]:
        """Run all tests of a tier, and those that failed once more where they are few."""
        status, results = self._tested(TESTS[self._name])
        if status == pytest.ExitCode.TESTS_FAILED and results is not None:
            files = _by_file(results.failures)
            if len(files) <= MOST_AGAIN:
                return self._again(status, results, files)
        return status, results

    def _again(self, status: int, results: Results, files: Sequence[Sequence[str]]) -> tuple[int, Results]:
        """Run what failed once more, the tests of each file by themselves; what the tier comes to then."""
        self._say(f"== {self._name}: {len(results.failures)} once more")
        left: set[str] = set()
        for tests in files:
            ended, found = self._tested((*LONGEST, *tests))
            if ended != pytest.ExitCode.OK:
                left |= set(found.failures if found and found.failures else tests)
        alone = sorted(set(results.failures) - left)
        changed = msgspec.structs.replace(
            results, passed=results.passed + len(alone), failed=len(left), failures=sorted(left), alone=alone
        )
        return (status if left else int(pytest.ExitCode.OK)), changed

    def _tested(self, arguments: Sequence[str]) -> tuple[int, Results | None]:
        """Run tests of a tier; pytest's status, and what became of them unless it ended before it could say."""
        with tempfile.TemporaryDirectory(prefix="cwdp-tests-") as folder:
            path = Path(folder) / "results.json"
            status = self._wait(_pytest(self._name, path, arguments))
            results = msgspec.json.decode(path.read_bytes(), type=Results) if path.exists() else None
        return status, results

    def _wait(self, command: Sequence[str]) -> int:
        """Run a command; when this process is ended before it, it is ended too, and clears up behind itself first."""
        if self._is_ending:
            return -signal.SIGTERM
        gives_way = ("nice", "-n", str(self._niceness)) if self._niceness else ()
        process = subprocess.Popen([*gives_way, *command], stdout=self._said, stderr=self._said)
        self._process = process
        try:
            return self._ended(process)
        except SystemExit:
            process.terminate()
            raise
        finally:
            self._ended(process)
            self._process = None

    def _ended(self, process: "subprocess.Popen[bytes]") -> int:
        """Wait for a process, and count what it and those below it have used (wait4(2))."""
        if process.returncode is None:
            _, status, used = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
            self._processor_s += used.ru_utime + used.ru_stime
        return process.returncode


def _by_file(tests: Sequence[str]) -> list[list[str]]:
    return [
        list(of_one) for _, of_one in itertools.groupby(sorted(tests), lambda test: test.partition("::")[0])
    ]


def _pytest(name: str, results: Path, arguments: Sequence[str]) -> list[str]:
    """Return the command of tests; by sudo where the tier needs root and may have it, and then without a cache to own."""
    plugin = ("-p", "tools.run_tests.results", f"--results={results}")
    command = [sys.executable, "-m", "pytest", *plugin, *SLOWEST, *arguments]
    if name in NEED_ROOT and os.geteuid() != 0 and _may_sudo():
        return ["sudo", "env", f"CI={os.environ.get('CI', '')}", *command, "-p", "no:cacheprovider"]
    return command


def _may_sudo() -> bool:
    return shutil.which("sudo") is not None and subprocess.run(["sudo", "true"], check=False).returncode == 0
