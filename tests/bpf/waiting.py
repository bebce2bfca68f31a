"""Waiting for what comes by itself."""

import time
from collections.abc import Callable

WAIT_S = 300.0
"""Who gives up is sure that it never comes: an emulated machine takes some fifty times as long as a real one."""


def until(condition: Callable[[], object]) -> None:
    """Wait for a condition to hold."""
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline, "it never came to be"
        time.sleep(0.01)
