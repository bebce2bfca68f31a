"""Tasks that are watched, and ended for certain."""

import asyncio
from collections.abc import Coroutine
from typing import Any

AGAIN_S = 2.0


async def end(*tasks: asyncio.Task[Any]) -> None:
    """Cancel tasks and wait until all of them have ended, however they end.

    Who goes on is cancelled again: before Python 3.12 `asyncio.wait_for`, by which the bus's client waits for
    each answer, swallows a cancellation that comes together with the answer (CPython issue 86296).
    """
    going = set(tasks)
    while going:
        for task in going:
            task.cancel()
        _, going = await asyncio.wait(going, timeout=AGAIN_S)
    await asyncio.gather(*tasks, return_exceptions=True)


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
