"""A plugin of pytest that counts what became of a tier's tests into a file, for the table of `tools.run_tests`."""

import os
from collections import Counter
from pathlib import Path

import msgspec
import pytest
from _pytest.terminal import TerminalReporter

NOT_INSTALLED = "not installed"
NEEDS_ROOT = "needs root"
LACKS = (NOT_INSTALLED, NEEDS_ROOT)
"""What the reason begins with where a test lacks something that `make test` provides."""


class Results(msgspec.Struct, frozen=True):
    """What became of the tests of a tier."""

    passed: int = 0
    failed: int = 0
    skipped: dict[str, int] = {}
    """How many, by reason."""

    failures: list[str] = []
    """The tests that failed, as pytest names them."""

    alone: list[str] = []
    """Those that failed beside others and passed when they were run once more by themselves; they count as passed."""

    @property
    def ran(self) -> int:
        """How many tests ran."""
        return self.passed + self.failed


def in_ci() -> bool:
    """Whether this is continuous integration, where nothing that `make test` provides may be missing."""
    return bool(os.environ.get("CI"))


def pytest_addoption(parser: pytest.Parser) -> None:
    """Called by pytest for its options."""
    parser.addoption("--results", type=Path, required=True, help="where to write the counts, as JSON")


def pytest_terminal_summary(terminalreporter: TerminalReporter, config: pytest.Config) -> None:
    """Called by pytest when all tests are done; an error beside a test counts as a failed one."""
    stats = terminalreporter.stats
    results = Results(
        passed=len(stats.get("passed", ())),
        failed=len(stats.get("failed", ())) + len(stats.get("error", ())),
        skipped=Counter(_reason(report) for report in stats.get("skipped", ())),
        failures=sorted({one.nodeid for kind in ("failed", "error") for one in stats.get(kind, ())}),
    )
    config.getoption("results").write_bytes(msgspec.json.encode(results))


def _reason(report: pytest.TestReport) -> str:
    """Return why a test was skipped."""
    assert isinstance(report.longrepr, tuple)
    return report.longrepr[2].removeprefix("Skipped: ")
