"""Who floods the bus with one host's credential keeps nobody else from being heard, and is named: tried on a real nats-server."""

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import flooder
import pytest
from asynchronous import asynchronous
from bus_fakes import POD, bus_server, credential_of, host_bus, manager_bus
from fakes import FakeHost, until

from cwdp.shared.bus.connection import Bus
from cwdp.shared.bus.messages import Event
from cwdp.shared.bus.subjects import up
from cwdp.shared.tasks import end
from manager.bus import floods
from manager.bus.flood_watch import name_floods
from manager.bus.floods import Floods
from tests.unit.manager.one_manager import config_of, running
from tools.free_ports import free_port

pytestmark = pytest.mark.needs("nats-server")

ROOT = Path(__file__).parents[4]
MESSAGES = 150_000
"""Some three seconds of all that a process can send; half of what is taken in at once has been used up before."""

FEWER_MESSAGES = 50_000
"""Where all of that has been used up before."""

SMALL_BYTES, SLOW_S = 20, 50.0
OTHERS = ("h2", "h3", "h4")


@asynccontextmanager
async def flooding(url: str, folder: Path, count: int = MESSAGES) -> AsyncIterator[asyncio.Task[int]]:
    """A process that has stolen the credential of h1 and sends so many messages as fast as it can."""
    credential = folder / "stolen.creds"
    credential_of("h1").save(credential)
    paths = [str(ROOT), *(str(ROOT / "tests" / each) for each in ("", "fakes"))]
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        flooder.__file__,
        url,
        str(credential),
        up(POD, "h1", "event"),
        str(SMALL_BYTES),
        str(count),
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
    )
    task = asyncio.create_task(process.wait())
    try:
        yield task
    finally:
        if process.returncode is None:
            process.kill()
        await task


async def tell(buses: dict[str, Bus], flood: asyncio.Task[int]) -> int:
    """Have hosts tell of events until a flood is over; of how many each."""
    number = 0
    while not flood.done():
        number += 1
        for host, bus in buses.items():
            assert bus.publish(
                up(POD, host, "event"),
                Event(host=host, local_ns=number, kind="link_up", nic=None, detail=""),
            )
        await asyncio.sleep(0.02)
    return number


@asynchronous
async def test_others_are_all_heard_in_order_and_what_is_too_much_is_dropped_and_counted(
    tmp_path: Path,
) -> None:
    heard: dict[str, list[int]] = {host: [] for host in ("h1", *OTHERS)}
    noted: list[tuple[str, str]] = []
    watch, changes = Floods(), list[bool]()
    async with bus_server(tmp_path / "bus") as server:
        manager = manager_bus(server.url, floods=watch, on_change=changes.append, hears_much=True)
        manager.subscribe(
            up(POD, "*", "event"), Event, lambda event: heard[event.host].append(event.local_ns)
        )
        buses = {host: host_bus(server.url, host) for host in OTHERS}
        naming = asyncio.create_task(
            name_floods(watch, OTHERS, lambda host, kind, _detail: noted.append((host, kind)))
        )
        for bus in (manager, *buses.values()):
            bus.start()
        await until(lambda: manager.connected and all(bus.connected for bus in buses.values()))
        for _ in range(int(floods.BURST_MESSAGES / 2)):
            watch.admits(up(POD, "h1", "event"), 1, time.monotonic())
        async with flooding(server.url, tmp_path) as flood:
            count = await tell(buses, flood)
            assert flood.result() == 0
        dropped = manager.counters
        await until(lambda: len(heard["h1"]) + dropped["received_rate_limited"] == MESSAGES, SLOW_S)
        await until(lambda: all(len(heard[host]) == count for host in OTHERS), SLOW_S)
        await until(lambda: bool(noted))
        assert all(heard[host] == list(range(1, count + 1)) for host in OTHERS)
        assert len(heard["h1"]) >= floods.BURST_MESSAGES / 2
        assert manager.counters["received_rate_limited"] > 0
        assert noted == [("h1", "host_floods")]
        assert changes == [True]
        assert manager.counters["received_slow"] == 0
        await end(naming)
        for bus in (manager, *buses.values()):
            await bus.close()


@asynchronous
async def test_a_manager_names_the_host_and_hears_it_again_when_the_flood_is_over(tmp_path: Path) -> None:
    port = free_port()
    url, own_events = f"nats://127.0.0.1:{port}", up(POD, "h1", "event")
    async with running(config_of(tmp_path, port)) as manager:
        hosts = {name: FakeHost(name, url, offset_ns=0, drift=0.0) for name in ("h1", "h2", "h3")}
        own, *others = hosts.values()
        for host in hosts.values():
            host.fleet = hosts
        for host in others:
            host.start()
        await until(lambda: manager.state.members.hosts.keys() == {"h2", "h3"}, SLOW_S)
        for _ in range(int(floods.BURST_MESSAGES)):
            manager._floods.admits(own_events, 1, time.monotonic())
        async with flooding(url, tmp_path, FEWER_MESSAGES) as flood:
            assert await flood == 0
        await until(lambda: "host_floods" in [event.kind for event in manager.state.events], SLOW_S)
        assert [event.host for event in manager.state.events if event.kind == "host_floods"] == ["h1"]
        assert manager.bus.counters["received_rate_limited"] > 0
        own.start()
        await until(lambda: "h1" in manager.state.members.hosts, SLOW_S)
        assert manager.state.reports["lost_on_the_way"] == 0
        assert manager.state.reports["ok"] > 0
        for host in hosts.values():
            await host.stop()
