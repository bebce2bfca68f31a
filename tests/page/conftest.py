"""A browser for all tests of the page, and for each a manager of its own that tells of a synthetic fabric."""

from collections.abc import Iterator
from pathlib import Path

import need
import pytest
from page_server import PageServer
from synthetic import Synthetic

from tools.browser import CHROMIUM, DRIVER, Browser

PICTURES = Path(__file__).parents[2] / "build/page"


@pytest.fixture(scope="session")
def window() -> Iterator[Browser]:
    for program in (CHROMIUM, DRIVER):
        need.installed(program)
    with Browser() as opened:
        yield opened


@pytest.fixture
def browser(window: Browser) -> Browser:
    window.start_over()
    return window


@pytest.fixture
def world() -> Synthetic:
    return Synthetic()


@pytest.fixture
def server(world: Synthetic) -> Iterator[PageServer]:
    with PageServer(world) as running:
        yield running


@pytest.fixture
def pictures() -> Path:
    PICTURES.mkdir(parents=True, exist_ok=True)
    return PICTURES
