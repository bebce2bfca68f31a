"""Run pytest over one tier of tests; a tier in which no test ran is a failure."""

import sys

import pytest

NOTHING_RAN = 1


class CountRun:
    """Counts the tests whose body ran."""

    def __init__(self) -> None:
        self.ran = 0

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Called by pytest for each phase of each test."""
        self.ran += report.when == "call" and not report.skipped


def main() -> int:
    """Run what the command line names; the exit status."""
    counter = CountRun()
    status = int(pytest.main(sys.argv[1:], plugins=[counter]))
    if status in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED) and not counter.ran:
        sys.stderr.write("error: no test ran; the reasons for skipping are above\n")
        return NOTHING_RAN
    return status


if __name__ == "__main__":
    sys.exit(main())
