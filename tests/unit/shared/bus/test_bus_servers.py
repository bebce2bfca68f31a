"""A bus of several servers: which is tried next, and what becomes of a connection when one of them fails."""

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from itertools import pairwise
from pathlib import Path

import pytest
from asynchronous import asynchronous
from bus_fakes import authority, bus_server, manager_bus
from fakes import until

from cwdp.errors import ConfigError
from cwdp.shared.bus.connection import Bus
from cwdp.shared.bus.servers import Servers, server_urls, shown
from tools.bus_cluster import BusCluster
from tools.free_ports import free_port


@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_each_server_is_tried_once_before_any_is_tried_again(count: int) -> None:
    urls = [f"nats://10.0.0.{number}:4222" for number in range(count)]
    for _ in range(50):
        servers = Servers(",".join(urls))
        tried = [servers.next() for _ in range(5 * count)]
        for start in range(0, len(tried), count):
            assert sorted(tried[start : start + count]) == sorted(urls)
        if count > 1:
            assert all(before != after for before, after in pairwise(tried))


def test_who_loses_a_server_does_not_go_where_all_others_go() -> None:
    urls = [f"nats://10.0.0.{number}:4222" for number in range(3)]
    went = [sum(Servers(",".join(urls)).next() == url for _ in range(300)) for url in urls]
    assert min(went) > 50


@pytest.mark.parametrize(
    "bus",
    [
        "nats://a,",
        ",nats://a",
        "nats://a,http://b",
        "nats://a nats://b",
        "nats://a,nats://a",
        "nats://a;nats://b",
    ],
)
def test_lists_that_are_none(bus: str) -> None:
    with pytest.raises(ConfigError) as caught:
        server_urls(bus)
    assert caught.value.hint


def test_what_people_see_has_no_password() -> None:
    assert shown("nats://u:secret@a:1,tls://v:hidden@b") == "nats://a:1,tls://b"
    with pytest.raises(ConfigError) as caught:
        server_urls("nats://a,http://u:secret@b")
    assert "secret" not in str(caught.value)


@contextmanager
def _silent_port() -> Iterator[int]:
    """Where connections come about and nobody says a word."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(64)
        yield int(listening.getsockname()[1])


@pytest.mark.needs("nats-server")
def test_servers_that_are_down_or_silent_are_passed_over(tmp_path: Path) -> None:
    async def go(silent: int) -> None:
        async with bus_server(tmp_path) as server:
            urls = f"nats://127.0.0.1:{free_port()},{server.url},nats://127.0.0.1:{silent}"
            buses = [manager_bus(urls, name=f"bus {number}") for number in range(8)]
            for bus in buses:
                bus.start()
            await until(lambda: all(bus.connected for bus in buses))
            for bus in buses:
                await bus.close()

    with _silent_port() as silent:
        asyncio.run(asyncio.wait_for(go(silent), 60))


@pytest.mark.needs("nats-server")
@pytest.mark.parametrize("fails", ["killed", "stopped"])
def test_a_server_that_fails_is_left_for_another(tmp_path: Path, fails: str) -> None:
    async def go() -> None:
        async with BusCluster(tmp_path, authority()) as servers:
            buses = [servers.bus(f"bus {number}") for number in range(9)]
            for bus in buses:
                bus.start()
            await until(lambda: all(bus.connected for bus in buses))
            failing = servers.names[0]
            (servers.kill if fails == "killed" else servers.suspend)(failing)
            await until(lambda: all(_server_of(bus) not in ("", servers.url_of(failing)) for bus in buses))
            if fails == "stopped":
                servers.resume(failing)
            for bus in buses:
                await bus.close()

    asyncio.run(asyncio.wait_for(go(), 90))


def _server_of(bus: Bus) -> str:
    """To which server a bus is connected; nothing where to none."""
    url = bus.session.connected_url if bus.session is not None else None
    return "" if url is None else f"nats://{url.netloc}"


SLOW_S = 3.0


@asynccontextmanager
async def _slow_way(url: str) -> AsyncIterator[str]:
    """A way to a server on which everything that a client says first arrives late; its address."""
    host, port = url.removeprefix("nats://").split(":")
    tasks = []

    async def pass_on(source: asyncio.StreamReader, sink: asyncio.StreamWriter, late_s: float) -> None:
        with suppress(ConnectionError):
            while data := await source.read(1 << 16):
                await asyncio.sleep(late_s)
                late_s = 0.0
                sink.write(data)
        sink.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, to_server = await asyncio.open_connection(host, int(port))
        tasks.append(asyncio.create_task(pass_on(there, writer, 0.0)))
        await pass_on(reader, to_server, SLOW_S)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"nats://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()


@pytest.mark.needs("nats-server")
@asynchronous
async def test_a_host_that_is_slow_to_greet_a_server_gets_there_too(tmp_path: Path) -> None:
    async with bus_server(tmp_path) as server, _slow_way(server.url) as slow:
        bus = manager_bus(slow)
        bus.start()
        await until(lambda: bus.connected)
        assert bus.counters["connect_failed"] > 0
        await bus.close()
