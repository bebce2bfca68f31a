"""Time in slow motion: clocks, waiting, and what is left as it is."""

import asyncio
import threading
import time

import pytest

from tools.swarm.slow_motion import command, slow_motion

TIMES = 20


def test_clocks_go_slowly_and_go_on_as_before_afterwards() -> None:
    began_s, real_s = time.time(), time.monotonic()
    with slow_motion(TIMES, began_s):
        wall, steady, boot = time.time(), time.monotonic(), time.clock_gettime(time.CLOCK_BOOTTIME)
        time.sleep(0.01)
        passed = time.time() - wall, time.monotonic() - steady, time.clock_gettime(time.CLOCK_BOOTTIME) - boot
        nanoseconds = time.monotonic_ns() / 1e9 - steady, time.time_ns() / 1e9 - wall
    took_s = time.monotonic() - real_s
    assert took_s >= 0.01 * TIMES
    assert all(0.0099 < each < 2 * took_s / TIMES for each in (*passed, *nanoseconds))
    assert abs(wall - began_s) < took_s / TIMES
    assert time.time() - began_s > 0.01 * TIMES


def test_two_processes_agree_on_the_wall_clock() -> None:
    since_s = time.time() - 1000
    with slow_motion(TIMES, since_s):
        assert time.time() == pytest.approx(since_s + 1000 / TIMES, abs=1)


def test_loops_and_threads_wait_longer() -> None:
    async def wait() -> float:
        before_s = asyncio.get_running_loop().time()
        await asyncio.sleep(0.01)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.Event().wait(), 0.01)
        return asyncio.get_running_loop().time() - before_s

    real_s = time.monotonic()
    with slow_motion(TIMES, time.time()):
        waited_s = asyncio.run(wait())
        assert not threading.Event().wait(0.01)
    assert waited_s >= 0.02
    assert time.monotonic() - real_s >= 0.03 * TIMES


def test_processor_time_is_counted_as_ever() -> None:
    def used_s() -> float:
        before_s, count = time.thread_time(), 0
        while count < 200_000:
            count += 1
        return time.thread_time() - before_s

    used_s()
    as_ever_s = min(used_s() for _ in range(5))
    with slow_motion(TIMES, time.time()):
        assert as_ever_s / 4 < min(used_s() for _ in range(5)) < as_ever_s * 4


def test_once_is_no_slow_motion() -> None:
    before = time.time
    with slow_motion(1, time.time()):
        assert time.time is before


def test_a_manager_is_called_in_slow_motion() -> None:
    argv = command(4, 1.5, "manager", "run")
    assert argv[1:] == ["-m", "tools.swarm.slow_motion", "4", "1.5", "manager", "run"]
