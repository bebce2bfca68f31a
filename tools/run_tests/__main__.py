"""Run tiers of the tests, each to its end, and close with a table: what ran, what did not, and why.

Usage: python -m tools.run_tests TIER...

With `CI` set, a tier in which no test ran has failed; elsewhere that is said at the end.
"""

import signal
import sys
from contextlib import nullcontext
from types import FrameType

from rich.console import Console

from tools.run_tests.memory import kept_in_memory
from tools.run_tests.results import in_ci
from tools.run_tests.table import CHECKS, report
from tools.run_tests.tiers import TESTS, run


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
        with nullcontext() if "packages" in names else kept_in_memory():  # whole systems are too large for it
            tiers = [run(name) for name in names]
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    print()
    return report(tiers, Console(markup=False, emoji=False), in_ci())


if __name__ == "__main__":
    sys.exit(main())
