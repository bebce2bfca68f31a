"""How long what hosts tell waits to be read: also while it does, and nothing where there is no bus."""

import asyncio
import secrets
import time
from pathlib import Path

import pytest
from asynchronous import asynchronous
from bus_fakes import POD, bus_server, host_bus, manager_bus
from fakes import until

from cwdp.shared.bus.messages import Event
from cwdp.shared.bus.subjects import up
from cwdp.shared.tasks import end
from manager.bus.backlog import Backlog

READ_S = 0.02
MESSAGES = 150


def _large(number: int) -> Event:
    """One that cannot be packed into much less."""
    detail = secrets.token_hex(30_000)
    return Event(host="h1", boot_id="b", local_ns=number, kind="link_up", nic="nic0", detail=detail)


@pytest.mark.needs("nats-server")
@asynchronous
async def test_what_waits_is_told_by_the_time_that_it_waits(tmp_path: Path) -> None:
    async with bus_server(tmp_path) as server:
        bus, host = manager_bus(server.url), host_bus(server.url, "h1")
        read: list[Event] = []

        def read_slowly(event: Event) -> None:
            read.append(event)
            time.sleep(READ_S)

        bus.subscribe(up(POD, "h1", "event"), Event, read_slowly)
        backlog = Backlog(bus)
        task = asyncio.create_task(backlog.run())
        assert backlog.waits_s == 0.0
        bus.start()
        host.start()
        try:
            await until(lambda: bus.connected and host.connected)
            await asyncio.sleep(1.5)
            assert backlog.waits_s < 0.5
            await host.publish_each([(up(POD, "h1", "event"), _large(number)) for number in range(MESSAGES)])
            waits_s: list[float] = []
            while len(read) < MESSAGES:
                waits_s.append(backlog.waits_s)
                await asyncio.sleep(READ_S)
            assert 0.5 < max(waits_s) < 3 * MESSAGES * READ_S
            assert backlog.worst_s > 0.5
            await until(lambda: backlog.waits_s < 0.5)
        finally:
            await host.close()
            await bus.close()
            await until(lambda: backlog.waits_s == 0.0)
            await end(task)
