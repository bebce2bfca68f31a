"""systemd's watchdog hears of life only while the loop turns."""

import asyncio
import os
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cwdp.shared.loopwatch import LoopWatch
from cwdp.shared.tasks import end

HeardBy = Callable[[], list[bytes]]


@pytest.fixture
def heard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HeardBy]:
    """What systemd has been told since this was asked last."""
    server = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
    server.bind(str(tmp_path / "notify"))
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
    monkeypatch.setenv("WATCHDOG_USEC", "600000")

    def listen() -> list[bytes]:
        said = []
        while True:
            try:
                said.append(server.recv(100))
            except BlockingIOError:
                return said

    yield listen
    server.close()


def test_a_loop_that_stands_still_says_nothing_and_is_measured(heard: HeardBy) -> None:
    async def run() -> None:
        watch = LoopWatch()
        task = asyncio.create_task(watch.run())
        await asyncio.sleep(0.7)
        assert set(heard()) == {b"WATCHDOG=1"}
        late_s = watch.late_s
        time.sleep(0.8)  # noqa: ASYNC251 - it is to stand still
        assert heard() == []
        assert watch.late_s - late_s > 0.6
        await asyncio.sleep(0.3)
        assert set(heard()) == {b"WATCHDOG=1"}
        assert watch.worst_s > 0.6
        await end(task)

    asyncio.run(run())


@pytest.mark.parametrize("pid", [1, os.getpid()], ids=["other", "own"])
def test_a_watchdog_of_another_process_is_not_fed(
    heard: HeardBy, monkeypatch: pytest.MonkeyPatch, pid: int
) -> None:
    monkeypatch.setenv("WATCHDOG_PID", str(pid))

    async def run() -> None:
        task = asyncio.create_task(LoopWatch().run())
        await asyncio.sleep(0.3)
        await end(task)

    asyncio.run(run())
    assert bool(heard()) is (pid == os.getpid())
