"""Waiting for what comes by itself."""

import time
from collections.abc import Callable
from typing import Any

WAIT_S = 150.0
"""Who gives up is sure that it never comes: an emulated machine takes some fifty times as long as a real one, and a
test in a lab ends after three minutes."""


def until(condition: Callable[[], Any], what: str = "", timeout_s: float = WAIT_S) -> Any:
    """Wait for a condition to hold; what it gave then."""
    deadline_s = time.monotonic() + timeout_s
    while not (value := condition()):
        assert time.monotonic() < deadline_s, f"it never came to be: {what}"
        time.sleep(0.02)
    return value
