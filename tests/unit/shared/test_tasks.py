"""Tasks end for certain, even where a cancellation was swallowed."""

import asyncio

import pytest

from cwdp.shared import tasks
from cwdp.shared.tasks import end


def test_a_task_that_swallows_a_cancellation_is_cancelled_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "AGAIN_S", 0.01)
    swallowed = 0

    async def stubborn() -> None:
        nonlocal swallowed
        while True:
            try:
                await asyncio.sleep(60.0)
            except asyncio.CancelledError:
                swallowed += 1
                if swallowed == 3:
                    raise

    async def run() -> asyncio.Task[None]:
        task = asyncio.create_task(stubborn())
        await asyncio.sleep(0)
        await end(task)
        return task

    assert asyncio.run(run()).cancelled()
    assert swallowed == 3


def test_tasks_that_ended_by_themselves_or_by_an_error_do_no_harm() -> None:
    async def fail() -> None:
        raise ValueError("what ends a task is its own business")

    async def run() -> None:
        failed, done = asyncio.create_task(fail()), asyncio.create_task(asyncio.sleep(0))
        await end(failed, done)
        await end()

    asyncio.run(run())
