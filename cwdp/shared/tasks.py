"""Tasks that are watched, and ended for certain; actions that come round at a steady rate."""

import asyncio
import random
import time
from collections.abc import Callable, Coroutine
from typing import Any

AGAIN_S = 2.0


async def end(*tasks: asyncio.Task[Any]) -> None:
    """Cancel tasks and wait until all of them have ended, however they end.

    Who goes on is cancelled again: before Python 3.12 `asyncio.wait_for`, by which the bus's client waits for
    each answer, swallows a cancellation that comes together with the answer (CPython issue 86296), and where the
    connection is closed the client raises another error in its place.

    Raises:
        asyncio.CancelledError: who waits was cancelled meanwhile; all the same, all of them have ended.
    """
    going, cancelled = set(tasks), None
    while going:
        for task in going:
            task.cancel()
        try:
            await asyncio.wait(going, timeout=AGAIN_S)
        except asyncio.CancelledError as error:
            cancelled = error
        going = {task for task in going if not task.done()}
    await asyncio.gather(*tasks, return_exceptions=True)
    if cancelled is not None:
        raise cancelled


async def first_end(*jobs: Coroutine[Any, Any, Any]) -> None:
    """Run all of these until one ends, then end the others.

    Raises:
        Exception: what ended it.
    """
    tasks = [asyncio.create_task(job) for job in jobs]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        await end(*tasks)


async def set_within(event: asyncio.Event, within_s: float | None) -> bool:
    """Wait until an event is set, for so long at most, None for ever; whether it was."""
    try:
        async with asyncio.timeout(within_s):
            await event.wait()
    except TimeoutError:
        return False
    return True


async def every(interval_s: float, action: Callable[[], None], jitter: float = 0.0) -> None:
    """Call `action` at a steady mean rate, for ever; jitter keeps probes from beating with periodic traffic."""
    due = time.monotonic()
    while True:
        action()
        due = max(due + interval_s, time.monotonic() - interval_s)
        spread = interval_s * random.uniform(-jitter, jitter)  # noqa: S311 - not a secret
        await asyncio.sleep(max(0.0, due + spread - time.monotonic()))
