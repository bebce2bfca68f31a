"""The bus over a real nats-server on loopback: absent, killed, full of garbage."""

import asyncio
import os
import signal
import socket
import sys
import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from asynchronous import asynchronous
from bus_fakes import POD, authority, bus_server, connect_as, credential_of, host_bus, manager_bus
from fakes import until

from cwdp.errors import BusError
from cwdp.shared.bus.connection import SEND_QUEUE_MESSAGES, Bus
from cwdp.shared.bus.messages import Desired, Event
from cwdp.shared.bus.packing import packed
from cwdp.shared.bus.subjects import up
from manager.bus import nats_server
from manager.bus.nats_server import NatsServer
from tools.free_ports import free_port

pytestmark = pytest.mark.needs("nats-server")

EVENTS, EVENT = up(POD, "*", "event"), up(POD, "a", "event")


def _event(detail: str = "", host: str = "a") -> Event:
    return Event(host=host, local_ns=1, kind="link_up", nic=None, detail=detail)


@asynccontextmanager
async def _buses(*buses: Bus) -> AsyncIterator[tuple[Bus, ...]]:
    for bus in buses:
        bus.start()
    try:
        yield buses
    finally:
        for bus in buses:
            await bus.close()


@asynchronous
async def test_starts_before_the_server_and_works_when_it_comes(tmp_path: Path) -> None:
    port, got, documents = free_port(), [], []
    url = f"nats://127.0.0.1:{port}"
    manager, host = manager_bus(url), host_bus(url, "h.1")
    manager.subscribe(EVENTS, Event, got.append)
    host.watch("h.1", documents.append)
    subject, event = up(POD, "h.1", "event"), _event("hello", host="h.1")
    async with _buses(manager, host):
        manager.put(Desired(host="h.1", version=1, probes=[]))
        assert not host.publish(subject, event)
        assert host.counters["dropped_disconnected"] == 1
        await asyncio.sleep(0.3)
        async with bus_server(tmp_path, port):
            await until(lambda: manager.connected and host.connected)
            assert host.publish(subject, event)
            await until(lambda: bool(got and documents))
            assert got == [event]
            assert documents == [Desired(host="h.1", version=1, probes=[])]


@asynchronous
async def test_a_killed_server_comes_back_and_so_do_all(tmp_path: Path) -> None:
    got: list[Event] = []
    changes: list[bool] = []
    documents: list[Desired] = []
    async with bus_server(tmp_path) as server:
        manager = manager_bus(server.url, on_change=changes.append)
        host = host_bus(server.url, "a")
        manager.subscribe(EVENTS, Event, got.append)
        host.watch("a", documents.append)
        async with _buses(manager, host):
            manager.put(Desired(host="a", version=1, probes=[]))
            await until(lambda: len(documents) == 1 and manager.connected)
            first = server.pid
            assert first is not None
            os.kill(first, signal.SIGKILL)
            await until(lambda: not manager.connected and not host.connected)
            await until(lambda: manager.connected and host.connected)
            assert server.restarts == 1
            assert server.pid != first
            host.publish(EVENT, _event())
            manager.put(Desired(host="a", version=2, probes=[]))
            await until(lambda: bool(got) and [d.version for d in documents] == [1, 2])
    assert changes == [True, False, True, False]


@asynchronous
async def test_documents_outlive_their_writer_and_thebus_server(tmp_path: Path) -> None:
    port, documents = free_port(), []
    async with bus_server(tmp_path, port) as server:
        writer = manager_bus(server.url)
        async with _buses(writer):
            writer.put(Desired(host="a", version=7, probes=[]))
            await until(lambda: writer.connected and not writer.documents.unwritten)
    async with bus_server(tmp_path, port) as server:
        reader = host_bus(server.url, "a")
        reader.watch("a", documents.append)
        async with _buses(reader):
            await until(lambda: bool(documents))
    assert documents == [Desired(host="a", version=7, probes=[])]


@asynchronous
async def test_garbage_and_failing_handlers_are_counted_and_harmless(tmp_path: Path) -> None:
    got = []

    def handler(event: Event) -> None:
        got.append(event)
        if event.detail == "fail":
            raise ValueError

    async with bus_server(tmp_path) as server:
        bus, host = manager_bus(server.url), host_bus(server.url, "a")
        bus.subscribe(EVENTS, Event, handler)
        async with _buses(bus, host):
            await until(lambda: bus.connected and host.connected)
            stranger = await connect_as(server.url, credential_of("x"))
            garbage = (b"", b"\xff" * 50, b"\x90" * 100_000, b"\x81\xa4host\x01")
            bomb = zlib.compress(bytes(64 << 20))
            for data in (*garbage, *map(packed, garbage), bomb):
                await stranger.publish(up(POD, "x", "event"), data)
            await stranger.close()
            for detail in ("fail", "fine"):
                host.publish(EVENT, _event(detail))
            await until(lambda: len(got) == 2 and bus.counters["received_bad"] == 9)
            assert bus.counters["handler_failed"] == 1


@asynchronous
async def test_what_is_too_large_or_too_much_is_dropped_and_counted(tmp_path: Path) -> None:
    async with bus_server(tmp_path) as server, _buses(host_bus(server.url, "a")) as (bus,):
        await until(lambda: bus.connected)
        assert not bus.publish(EVENT, _event("x" * 2_000_000))
        sent = [bus.publish(EVENT, _event()) for _ in range(SEND_QUEUE_MESSAGES + 10)]
        assert sent.count(False) == 10
        assert (bus.counters["dropped_too_large"], bus.counters["dropped_slow"]) == (1, 10)
        await until(lambda: bus.counters["published"] == SEND_QUEUE_MESSAGES)


@asynchronous
async def test_closing_sends_what_is_queued(tmp_path: Path) -> None:
    got: list[Event] = []
    async with bus_server(tmp_path) as server:
        listener = manager_bus(server.url)
        listener.subscribe(EVENTS, Event, got.append)
        async with _buses(listener):
            await until(lambda: listener.connected)
            async with _buses(host_bus(server.url, "a")) as (sender,):
                await until(lambda: sender.connected)
                for i in range(100):
                    sender.publish(EVENT, _event(str(i)))
            await until(lambda: len(got) == 100)


@asynchronous
async def test_a_taken_port_is_named_with_the_next_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nats_server, "PORT_FREE_TIMEOUT_S", 0.1)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(BusError, match="Address already in use") as caught:
            await NatsServer("127.0.0.1", taken.getsockname()[1], tmp_path, authority()).start()
    assert "--bus-listen" in caught.value.hint


@asynchronous
async def test_an_unwritable_state_directory_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BusError, match="cannot write below") as caught:
        await NatsServer("127.0.0.1", free_port(), tmp_path / "file", authority()).start()
    assert "--state-dir" in caught.value.hint


def test_a_missing_server_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BusError, match="not installed") as caught:
        asyncio.run(NatsServer("127.0.0.1", free_port(), tmp_path, authority()).start())
    assert "make setup" in caught.value.hint


def test_the_server_dies_with_a_manager_that_is_killed(tmp_path: Path) -> None:
    script = (
        "import asyncio, os, pathlib, signal, sys; from manager.bus.nats_server import NatsServer\n"
        "from manager.identity.authority import Authority\n"
        "async def main():\n"
        f"    server = NatsServer('127.0.0.1', {free_port()}, pathlib.Path(sys.argv[1]), Authority.new())\n"
        "    await server.start()\n"
        "    print(server.pid, flush=True); os.kill(os.getpid(), signal.SIGKILL)\n"
        "asyncio.run(main())\n"
    )

    async def run() -> None:
        child = await asyncio.create_subprocess_exec(
            sys.executable, "-c", script, str(tmp_path), stdout=asyncio.subprocess.PIPE
        )
        pid = int((await child.communicate())[0])
        await until(lambda: not Path(f"/proc/{pid}/exe").exists())

    asyncio.run(run())
