"""Waiting for what comes by itself."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def wait_for(ask: Callable[[], T], timeout_s: float, *, poll_s: float = 0.05) -> T:
    """Ask again and again until the answer is true, or the time is over.

    Args:
        ask: asked at least once; what it raises ends the wait.
        timeout_s: after which nothing is asked any more.
        poll_s: from an answer to the next question.

    Returns:
        The last answer.
    """
    deadline_s = time.monotonic() + timeout_s
    while not (answer := ask()) and time.monotonic() < deadline_s:
        time.sleep(poll_s)
    return answer
