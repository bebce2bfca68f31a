"""Time that passes more slowly, for processes that have to share too few processors: `cwdp` in slow motion.

`python -m tools.swarm.slow_motion TIMES SINCE_S ARGS...` is `cwdp ARGS...` for which a second lasts TIMES as long. What
is computed lasts as long as ever, so it seems to be done the faster.
"""

import contextlib
import selectors
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any
from unittest.mock import patch

_CLOCKS = {time.CLOCK_REALTIME, time.CLOCK_MONOTONIC, time.CLOCK_BOOTTIME}


@contextlib.contextmanager
def slow_motion(times: float, since_s: float) -> Iterator[None]:
    """Have clocks of this process go more slowly, and all waiting last longer; processor time counts as ever.

    Args:
        times: how many seconds one lasts.
        since_s: the wall clock's time since when it is so; the same for all processes that are to agree.
    """
    with contextlib.ExitStack() as stack:
        for owner, name, slowed in _slowed(times, since_s) if times != 1 else ():
            stack.enter_context(patch.object(owner, name, slowed))
        yield


def _slowed(times: float, since_s: float) -> Iterator[tuple[Any, str, Callable[..., Any]]]:
    real_time, real_gettime = time.time, time.clock_gettime
    real_monotonic, real_sleep = time.monotonic, time.sleep

    def wall_s() -> float:
        return since_s + (real_time() - since_s) / times

    def monotonic_s() -> float:
        return real_monotonic() / times

    def gettime_s(clock: int) -> float:
        if clock == time.CLOCK_REALTIME:
            return wall_s()
        return real_gettime(clock) / (times if clock in _CLOCKS else 1)

    yield time, "time", wall_s
    yield time, "time_ns", lambda: round(wall_s() * 1e9)
    yield time, "monotonic", monotonic_s
    yield time, "monotonic_ns", lambda: round(real_monotonic() / times * 1e9)
    yield time, "clock_gettime", gettime_s
    yield time, "clock_gettime_ns", lambda clock: round(gettime_s(clock) * 1e9)
    yield time, "sleep", lambda seconds: real_sleep(seconds * times)
    yield selectors.DefaultSelector, "select", _waiting(selectors.DefaultSelector.select, times)
    yield threading.Condition, "wait", _waiting(threading.Condition.wait, times)


def _waiting(wait: Callable[..., Any], times: float) -> Callable[..., Any]:
    """A method that waits for so long at most, longer."""

    def longer(self: object, timeout: float | None = None) -> Any:
        return wait(self, None if timeout is None else timeout * times)

    return longer


def command(times: float, since_s: float, *args: str) -> list[str]:
    """How `cwdp ARGS...` is called in slow motion."""
    return [sys.executable, "-m", __name__, repr(times), repr(since_s), *args]


def main(times: str, since_s: str, *args: str) -> None:
    """Be `cwdp`."""
    with slow_motion(float(times), float(since_s)):
        from cwdp.cli import main as cwdp  # noqa: PLC0415 - what it loads may take clocks by name

        cwdp(args)


if __name__ == "__main__":
    main(*sys.argv[1:])
