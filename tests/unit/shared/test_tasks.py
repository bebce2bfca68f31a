"""Tasks end for certain, even where a cancellation was swallowed."""

import asyncio

import pytest

from cwdp.shared import tasks
from cwdp.shared.tasks import end, set_within


def test_a_task_that_swallows_a_cancellation_is_cancelled_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "AGAIN_S", 0.01)

    async def run() -> asyncio.Task[None]:
        task = asyncio.create_task(_swallows(2))
        await asyncio.sleep(0)
        await end(task)
        return task

    assert asyncio.run(run()).cancelled()


@pytest.mark.parametrize("times", [1, 4])
def test_who_is_cancelled_again_while_tasks_end_leaves_none_behind(
    monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    monkeypatch.setattr(tasks, "AGAIN_S", 0.05)

    async def run() -> None:
        task = asyncio.create_task(_swallows(times))
        ends = asyncio.create_task(end(task))
        for _ in range(3):
            await asyncio.sleep(0.01)
            ends.cancel()
        with pytest.raises(asyncio.CancelledError):
            await ends
        assert task.cancelled()

    asyncio.run(run())


async def _swallows(times: int) -> None:
    """For ever, but for the cancellation after so many that it swallows."""
    while True:
        try:
            await asyncio.sleep(60.0)
        except asyncio.CancelledError:
            if not times:
                raise
            times -= 1


def test_tasks_that_ended_by_themselves_or_by_an_error_do_no_harm() -> None:
    async def fail() -> None:
        raise ValueError("what ends a task is its own business")

    async def run() -> None:
        failed, done = asyncio.create_task(fail()), asyncio.create_task(asyncio.sleep(0))
        await end(failed, done)
        await end()

    asyncio.run(run())


def test_who_waits_for_an_event_is_told_whether_it_was_set() -> None:
    async def run() -> list[bool]:
        event = asyncio.Event()
        early = await set_within(event, 0.01)
        event.set()
        return [
            early,
            await set_within(event, 0.01),
            await set_within(event, 0.0),
            await set_within(event, None),
        ]

    assert asyncio.run(run()) == [False, True, True, True]


def test_who_waits_for_an_event_can_be_ended_as_it_is_set() -> None:
    async def run() -> None:
        event = asyncio.Event()
        waiting = asyncio.create_task(set_within(event, 60.0))
        await asyncio.sleep(0)
        event.set()
        waiting.cancel()
        await asyncio.wait([waiting], timeout=1.0)
        assert waiting.cancelled()

    asyncio.run(run())
