"""What `make deb` and `make image` have made, and the machines that install it."""

from pathlib import Path
from typing import Any

import need
import pytest

from tools.packages import image
from tools.packages.checkout import OUTPUT
from tools.packages.machine import run


@pytest.fixture(scope="session")
def debs() -> list[Path]:
    """The packages, by name."""
    found = sorted(OUTPUT.glob("*.deb"))
    if not found:
        need.missing("packages: make deb")
    return found


@pytest.fixture(scope="session")
def layout() -> Path:
    """The image."""
    need.installed(image.FOLDER)
    return image.FOLDER


@pytest.fixture(scope="session", params=run.TIMEOUT_S)
def shown(debs: list[Path], request: pytest.FixtureRequest) -> dict[str, Any]:
    """What was found in the machine, by step."""
    need.root("as Debian's file system is root's")
    return run.show(debs, request.param)
