"""How long what hosts tell waits to be read: also while it does, and nothing where there is no bus."""

import asyncio
import secrets
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from asynchronous import asynchronous
from bus_fakes import POD, bus_server, host_bus, manager_bus
from fakes import until

from cwdp.shared.bus.connection import Bus
from cwdp.shared.bus.messages import Event
from cwdp.shared.bus.subjects import up
from cwdp.shared.tasks import end
from manager.bus.backlog import Backlog

READ_S = 0.02
MESSAGES = 150
EVENTS = up(POD, "h1", "event")


def _large(number: int) -> Event:
    """One that cannot be packed into much less."""
    detail = secrets.token_hex(30_000)
    return Event(host="h1", boot_id="b", local_ns=number, kind="link_up", nic="nic0", detail=detail)


@dataclass
class _Slow:
    """A manager's connection that reads slowly, what it has read, a host's that speaks to it, and who looks how far it is behind."""

    bus: Bus
    host: Bus
    backlog: Backlog
    task: asyncio.Task[None]
    read: list[Event]

    async def tell(self, numbers: range) -> None:
        """The host tells of events."""
        await self.host.publish_each([(EVENTS, _large(number)) for number in numbers])


@asynccontextmanager
async def _slow(folder: Path) -> AsyncIterator[_Slow]:
    async with bus_server(folder) as server:
        bus, host = manager_bus(server.url, hears_much=True), host_bus(server.url, "h1")
        read: list[Event] = []

        def read_slowly(event: Event) -> None:
            read.append(event)
            time.sleep(READ_S)

        bus.subscribe(EVENTS, Event, read_slowly)
        backlog = Backlog(bus)
        task = asyncio.create_task(backlog.run())
        assert backlog.waits_s == 0.0
        bus.start()
        host.start()
        try:
            await until(lambda: bus.connected and host.connected)
            yield _Slow(bus, host, backlog, task, read)
        finally:
            await host.close()
            await bus.close()
            await end(task)


@pytest.mark.needs("nats-server")
@asynchronous
async def test_what_waits_is_told_by_the_time_that_it_waits(tmp_path: Path) -> None:
    async with _slow(tmp_path) as slow:
        backlog = slow.backlog
        await asyncio.sleep(1.5)
        assert backlog.waits_s < 0.5
        await slow.tell(range(MESSAGES))
        waits_s: list[float] = []
        while len(slow.read) < MESSAGES:
            waits_s.append(backlog.waits_s)
            await asyncio.sleep(READ_S)
        assert 0.5 < max(waits_s) < 3 * MESSAGES * READ_S
        assert backlog.worst_s > 0.5
        await until(lambda: backlog.waits_s < 0.5)
        await slow.bus.close()
        await until(lambda: backlog.waits_s == 0.0)


@pytest.mark.needs("nats-server")
@asynchronous
async def test_who_looks_no_more_while_it_is_behind_hears_the_rest(tmp_path: Path) -> None:
    """The answer that comes later is nobody's then."""
    async with _slow(tmp_path) as slow:
        await slow.tell(range(MESSAGES))
        await until(lambda: slow.backlog.waits_s > 0.5)
        await end(slow.task)
        await until(lambda: len(slow.read) == MESSAGES)
        await slow.tell(range(1))
        await until(lambda: len(slow.read) == MESSAGES + 1)
        assert slow.bus.counters["connected"] == 1
