"""The history's stream on three servers: its copies, and what is left of it when any of them is killed."""

import asyncio
import contextlib
import random
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from bus_fakes import authority, bus_server, connect_as_manager
from test_history_service import _One

from cwdp.shared.tasks import end
from manager.bus.copies import Copies
from manager.history.stream import STREAM
from tools.bus_cluster import BusCluster
from tools.free_ports import free_port

pytestmark = [pytest.mark.needs("nats-server"), pytest.mark.timeout(500)]

EVERY_S = 0.02
PATIENCE_S = 100.0
WITHIN_S = 400.0


@contextlib.asynccontextmanager
async def _leading(name: str, directory: Path, url: str) -> AsyncIterator[_One]:
    """Who records, and has copies made."""
    async with _One(name, directory / name, url) as one:
        one.lead()
        copies = asyncio.create_task(Copies(one.bus, lambda: True, [STREAM]).run())
        try:
            yield one
        finally:
            await end(copies)


async def _configured(url: str) -> int:
    client = await connect_as_manager(url.split(",", maxsplit=1)[0])
    info = await client.jsm().stream_info(STREAM)
    await client.close()
    return int(info.config.num_replicas or 0)


async def _until_has(one: _One, kinds: list[str]) -> None:
    """Wait for all that was noted: an election may take its time, and a message that was not acknowledged is sent again."""
    deadline_s = time.monotonic() + PATIENCE_S
    found = await one.kinds()
    while found != kinds and time.monotonic() < deadline_s:
        await asyncio.sleep(0.2)
        found = await one.kinds()
    assert sorted(set(kinds) - set(found)) == []
    assert found == kinds


def test_one_copy_on_one_server_three_on_three(tmp_path: Path) -> None:
    async def go() -> None:
        async with (
            bus_server(tmp_path / "nats", free_port()) as server,
            _leading("a", tmp_path / "one", server.url) as alone,
            _One("b", tmp_path / "b", server.url) as other,
        ):
            alone.note("one")
            await other.until_kinds("one")
            assert await _configured(server.url) == 1
        async with (
            BusCluster(tmp_path, authority()) as servers,
            _leading("a", tmp_path / "three", servers.url) as first,
        ):
            first.note("one")
            await servers.until_whole(STREAM)
            assert await _configured(servers.url) == 3

    asyncio.run(asyncio.wait_for(go(), WITHIN_S))


@pytest.mark.parametrize("seed", [2])
def test_whichever_server_is_killed_each_event_is_there_once(tmp_path: Path, seed: int) -> None:
    draw = random.Random(seed)

    async def go() -> None:
        noted: list[str] = []

        async def note(one: _One) -> None:
            while True:
                noted.append(f"kind{len(noted)}")
                one.note(noted[-1])
                await asyncio.sleep(EVERY_S)

        async with (
            BusCluster(tmp_path, authority()) as servers,
            _leading("a", tmp_path, servers.url) as first,
        ):
            noting = asyncio.create_task(note(first))
            await servers.until_whole(STREAM)
            leader = await servers.leader(STREAM)
            others = [name for name in servers.names if name != leader]
            killed = [leader, *draw.sample(others, 2)]
            for name in draw.sample(killed, 3):
                servers.kill(str(name))
                await asyncio.sleep(draw.uniform(0.5, 3.0))
                servers.start(str(name))
                await servers.until_whole(STREAM)
            await end(noting)
            async with _One("b", tmp_path / "b", servers.url) as fresh:
                await _until_has(fresh, noted)
                servers.kill(str(await servers.leader(STREAM)))
                first.note("last")
                noted.append("last")
                await _until_has(fresh, noted)
                assert await first.kinds() == noted

    asyncio.run(asyncio.wait_for(go(), WITHIN_S))
