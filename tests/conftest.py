"""What all tests have in common.

Tests say with the mark `needs` which programs and built files they cannot do without. No example of a test by hypothesis
fails for the time that it took: the machine may have other work to do.
"""

import gc
from collections.abc import Iterator

import need
import pytest
from hypothesis import settings

settings.register_profile("cwdp", deadline=None)
settings.load_profile("cwdp")


@pytest.fixture(scope="session", autouse=True)
def _what_is_left_is_warned_of() -> Iterator[None]:
    """At a worker's last test: pytest does so when all is done, but nobody hears of a worker's warnings by then."""
    yield
    gc.collect()


def pytest_runtest_setup(item: pytest.Item) -> None:
    for mark in item.iter_markers("needs"):
        for what in mark.args:
            need.installed(what)
