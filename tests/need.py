"""What `make setup` and `make test` install: a test that lacks it is skipped, and fails in continuous integration."""

import shutil
from pathlib import Path
from typing import NoReturn

import pytest

from tools.tier_results import NOT_INSTALLED, in_ci


def missing(what: str) -> NoReturn:
    """Skip the test for want of something, or have it fail."""
    message = f"{NOT_INSTALLED}: {what}"
    if in_ci():
        pytest.fail(message, pytrace=False)
    pytest.skip(message)


def installed(what: str | Path) -> None:
    """Go on where there is such a program, or such a file."""
    found = what.exists() if isinstance(what, Path) else shutil.which(what)
    if not found:
        missing(Path(what).name)
