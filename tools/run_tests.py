"""Run tiers of the tests, each to its end, and close with a table: what ran, what did not, and why.

Usage: python -m tools.run_tests TIER...

With `CI` set, a tier in which no test ran has failed; elsewhere that is said at the end.
"""

import itertools
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

import msgspec
import pytest
from rich.console import Console
from rich.table import Table

from tools.tier_results import LACKS, Results, in_ci

CHECKS = ("lint", "types")
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

_WHOLE = (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)


@dataclass(frozen=True)
class Tier:
    """A tier that has come to its end, or a check, which has one result."""

    name: str
    status: int
    took_s: float
    results: Results | None
    """None of a tier that ended before it could say."""

    def failed(self, ci: bool) -> int:
        """Return how many tests failed; a tier that failed as a whole counts as one."""
        if self.results is None:
            return 1
        return self.results.failed or int(self.status not in _WHOLE or (ci and self.ran_nothing))

    @property
    def ran_nothing(self) -> bool:
        """Whether no test of it ran, though it came to its end."""
        return self.name not in CHECKS and self.results is not None and not self.results.ran

    def remarks(self) -> Iterator[str]:
        """Yield what there is to say of it beside the numbers."""
        if self.results is None:
            yield f"ended with status {self.status} before it could say"
            return
        if self.ran_nothing:
            yield "no test ran"
        for name in self.results.alone:
            yield f"passed by itself only: {name}"
        for reason, count in sorted(self.results.skipped.items()):
            yield f"{count} skipped: {reason}"

    def left_out(self) -> Iterator[str]:
        """Yield what did not run though it is meant to."""
        if self.ran_nothing:
            yield f"no test of the tier {self.name} did"
        elif self.results is not None:
            for reason, count in sorted(self.results.skipped.items()):
                if reason.startswith(LACKS):
                    yield f"{count} tests of the tier {self.name} did not: {reason}"


def report(tiers: Sequence[Tier], console: Console, ci: bool) -> int:
    """Print the table, what was left out, and the closing line; the exit status."""
    failed = sum(tier.failed(ci) for tier in tiers)
    results = [tier.results for tier in tiers if tier.results is not None]
    passed = sum(result.passed for result in results)
    skipped = sum(sum(result.skipped.values()) for result in results)
    console.print(_table(tiers, ci))
    for line in (line for tier in tiers for line in tier.left_out()):
        console.print(f"NOT EVERYTHING RAN: {line}", style="bold yellow", highlight=False, soft_wrap=True)
    for name in (name for result in results for name in result.alone):
        console.print(f"PASSED BY ITSELF ONLY: {name}", style="bold yellow", highlight=False, soft_wrap=True)
    console.print(f"{passed} passed, {failed} failed, {skipped} skipped", highlight=False)
    return int(failed > 0)


def _table(tiers: Sequence[Tier], ci: bool) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("tier", ""):
        table.add_column(column)
    for column in ("passed", "failed", "skipped", "took"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("why")
    for tier in tiers:
        results = tier.results or Results()
        counts = (results.passed, tier.failed(ci), sum(results.skipped.values()))
        table.add_row(
            tier.name,
            _verdict(tier, ci),
            *(str(count or "-") for count in counts),
            _duration(tier.took_s),
            "\n".join(tier.remarks()),
        )
    return table


def _verdict(tier: Tier, ci: bool) -> str:
    if tier.failed(ci):
        return "FAILED"
    if tier.ran_nothing:
        return "DID NOT RUN"
    return "INCOMPLETE" if any(tier.left_out()) else "ok"


def _duration(took_s: float) -> str:
    minutes, seconds = divmod(round(took_s), 60)
    return f"{minutes} min {seconds:02} s" if minutes else f"{seconds} s"


def run(name: str) -> Tier:
    """Run one tier or check to its end, whatever becomes of it."""
    print(f"== {name}", flush=True)
    began = time.monotonic()
    if name in CHECKS:
        status = _wait(["make", "--no-print-directory", name])
        return Tier(name, status, time.monotonic() - began, Results(failed=int(status != 0)))
    status, results = _tested(name, TESTS[name])
    if status == pytest.ExitCode.TESTS_FAILED and results is not None:
        files = _by_file(results.failures)
        if len(files) <= MOST_AGAIN:
            status, results = _again(name, status, results, files)
    return Tier(name, status, time.monotonic() - began, results)


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
    plugin = ("-p", "tools.tier_results", f"--results={results}")
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


def _exit(number: int, _frame: FrameType | None) -> None:
    sys.exit(128 + number)


def main() -> int:
    """Run the tiers that are named; the exit status."""
    names = sys.argv[1:]
    unknown = [name for name in names if name not in (*CHECKS, *TESTS)]
    if unknown or not names:
        sys.stderr.write(f"error: the tiers are {', '.join((*CHECKS, *TESTS))}\n")
        return 2
    signal.signal(signal.SIGTERM, _exit)
    try:
        tiers = [run(name) for name in names]
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    print()
    return report(tiers, Console(markup=False, emoji=False), in_ci())


if __name__ == "__main__":
    sys.exit(main())
