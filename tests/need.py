"""What `make test` provides: a test that lacks it is skipped, and fails in continuous integration."""

import os
import shutil
from pathlib import Path
from typing import NoReturn

import pytest

from tools.run_tests.results import NEEDS_ROOT, NOT_INSTALLED, in_ci


def missing(what: str) -> NoReturn:
    """Do without the test, as something is not installed."""
    _end(f"{NOT_INSTALLED}: {what}")


def root(why: str) -> None:
    """Go on with root's rights only."""
    if os.geteuid() != 0:
        _end(f"{NEEDS_ROOT}, {why}")


def installed(what: str | Path) -> None:
    """Go on where there is such a program, or such a file."""
    found = what.exists() if isinstance(what, Path) else shutil.which(what)
    if not found:
        missing(Path(what).name)


def _end(message: str) -> NoReturn:
    if in_ci():
        pytest.fail(message, pytrace=False)
    pytest.skip(message)
