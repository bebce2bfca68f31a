"""Tests that are coroutines."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import wraps
from typing import ParamSpec

TIMEOUT_S = 60

_P = ParamSpec("_P")


def asynchronous(test: Callable[_P, Awaitable[None]]) -> Callable[_P, None]:
    """Run a test to its end, within a minute."""

    @wraps(test)
    def run(*args: _P.args, **kwargs: _P.kwargs) -> None:
        asyncio.run(asyncio.wait_for(test(*args, **kwargs), TIMEOUT_S))  # type: ignore[arg-type]

    return run
