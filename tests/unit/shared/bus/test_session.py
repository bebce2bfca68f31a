"""Who is let onto the bus, and what servers a process speaks to: those of its fleet, over TLS."""

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import nats.errors
import pytest
from asynchronous import asynchronous
from bus_fakes import POD, authority, bus_server, connect_as, credential_of
from fakes import until
from nats.aio.msg import Msg

from cwdp.shared.bus.connection import Bus
from cwdp.shared.bus.sealing import HostSeal
from cwdp.shared.bus.session import (
    PING_INTERVAL_S,
    PINGS_UNANSWERED,
    RefusedError,
    dial,
    dial_any,
    hang_up,
)
from cwdp.shared.bus.subjects import up
from cwdp.shared.identity import jwt
from cwdp.shared.identity.credential import Credential
from manager.bus.nats_server import NatsServer
from manager.identity.authority import Authority
from tools.free_ports import free_port

SLOW_READ_S = 0.05


def _strangers() -> dict[str, Credential]:
    """Credentials that know the fleet's servers, and that these must not take."""
    own, other = credential_of("h1"), Authority.new().host_credential("h1")
    nats_claims = {"type": "user", "version": 2, "pub": {}, "sub": {}, "subs": -1, "data": -1, "payload": -1}
    issuer = own.claims["nats"]["issuer_account"]
    himself = {**own.claims, "name": "h2", "iss": jwt.public_key(own.key)}
    unlimited = {
        "sub": jwt.public_key(own.key),
        "name": "h2",
        "nats": {**nats_claims, "issuer_account": issuer},
    }
    header, _, signature = own.token.split(".")
    other_body = jwt.sign({**own.claims, "name": "h2"}, own.key).split(".")[1]
    return {
        "of another fleet": replace(other, authority=own.authority),
        "another's token": replace(own, token=credential_of("h2").token),
        "signed by himself": replace(own, token=jwt.sign(himself, own.key)),
        "without limits, signed by himself": replace(own, token=jwt.sign(unlimited, own.key)),
        "changed": replace(own, token=f"{header}.{other_body}.{signature}"),
        "expired": authority().host_credential("h1", days=-1.0),
    }


@pytest.mark.needs("nats-server")
@asynchronous
async def test_only_who_has_a_key_that_the_authority_has_signed_for_is_let_in(tmp_path: Path) -> None:
    async with bus_server(tmp_path) as server:
        for credential in _strangers().values():
            with pytest.raises(RefusedError):
                await connect_as(server.url, credential)
        client = await connect_as(server.url, credential_of("h1"))
        await client.close()


@pytest.mark.needs("nats-server")
@asynchronous
async def test_who_is_refused_says_so_once_and_counts_it(tmp_path: Path) -> None:
    credential = authority().host_credential("h1", days=-1.0)
    async with bus_server(tmp_path) as server:
        bus = Bus(server.url, credential, HostSeal("h1", credential.control), pod=POD, name="h1")
        bus.start()
        await until(lambda: bus.counters["connect_refused"] > 1)
        assert not bus.connected
        await bus.close()


@pytest.mark.needs("nats-server")
@asynchronous
async def test_who_is_refused_by_one_server_is_told_that_though_others_are_down(tmp_path: Path) -> None:
    async with bus_server(tmp_path) as server:
        down = {f"nats://127.0.0.1:{free_port()}" for _ in range(8)}
        with pytest.raises(RefusedError):
            await dial_any(
                ",".join([*down, server.url]), authority().host_credential("h1", days=-1.0), name="h1"
            )


@pytest.mark.needs("nats-server")
@asynchronous
async def test_a_client_without_tls_is_not_answered(tmp_path: Path) -> None:
    async with bus_server(tmp_path) as server:
        host, port = server.url.removeprefix("nats://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        info = json.loads((await reader.readline()).removeprefix(b"INFO "))
        assert info["tls_required"]
        own = credential_of("h1")
        told = {"jwt": own.token, "sig": "", "verbose": True, "protocol": 1}
        writer.write(f"CONNECT {json.dumps(told)}\r\nPING\r\nSUB > 1\r\n".encode())
        with contextlib.suppress(ConnectionError):
            assert b"PONG" not in await reader.read()
        writer.close()


@pytest.mark.needs("nats-server")
@asynchronous
async def test_a_server_of_another_fleet_is_not_spoken_to(tmp_path: Path) -> None:
    server = NatsServer("127.0.0.1", free_port(), tmp_path, Authority.new())
    await server.start()
    try:
        with pytest.raises(OSError, match="certificate verify failed"):
            await connect_as(server.url, credential_of("h1"))
    finally:
        await server.stop()


@pytest.mark.needs("nats-server")
@asynchronous
async def test_a_connection_that_an_error_closes_while_it_sends_leaves_nothing_waiting(
    tmp_path: Path,
) -> None:
    """As where a process goes on that stood still, and its server has closed the connection meanwhile."""
    async with bus_server(tmp_path) as server:
        client = await connect_as(server.url, credential_of("h1"))

        async def ignore(_message: object) -> None:
            """Nothing comes."""

        await client.subscribe(f"{credential_of('h1').inbox}.x", cb=ignore)
        waiting = [sub._wait_for_msgs_task for sub in client._subs.values()]
        client._pending.append(b"PING\r\n")
        client._pending_data_size = 6
        client._transport._io_reader.set_exception(ConnectionResetError())
        with contextlib.suppress(ConnectionResetError):
            await client._ps.parse(b"-ERR 'Stale Connection'\r\n")
        await hang_up(client)
        assert client.is_closed
        assert waiting
        assert all(task.done() for task in waiting)


@pytest.mark.needs("nats-server")
@asynchronous
async def test_who_reads_slowly_keeps_its_connection_though_answers_to_pings_come_late(
    tmp_path: Path,
) -> None:
    """They come behind messages that wait to be read, for longer than a server may say nothing."""
    async with bus_server(tmp_path) as server:
        sender = await connect_as(server.url, credential_of("h1"))
        manager = authority().manager_credential("test")
        reader = await dial(server.url, manager, name="test", hears_much=True)
        subject = up(POD, "h1", "qp")
        read: list[int] = []

        async def read_slowly(message: Msg) -> None:
            read.append(len(message.data))
            time.sleep(SLOW_READ_S)  # noqa: ASYNC251 - its loop is held up

        await reader.subscribe(subject, cb=read_slowly)
        await reader.flush()
        many = round((PINGS_UNANSWERED + 4) * PING_INTERVAL_S / SLOW_READ_S)
        for _ in range(many):
            await sender.publish(subject, bytes(64 * 1024))
        await sender.flush()
        await until(lambda: len(read) == many or reader.is_closed)
        assert len(read) == many
        assert not reader.is_closed
        await hang_up(sender)
        await hang_up(reader)


@contextlib.asynccontextmanager
async def _liar(greeting: bytes) -> AsyncIterator[tuple[str, bytearray]]:
    """A server without TLS that greets so, and answers each PING; its address, and all that it was told."""
    told = bytearray()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(greeting)
        while data := await reader.read(1 << 16):
            told.extend(data)
            writer.write(b"PONG\r\n" * data.count(b"PING"))
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"nats://127.0.0.1:{server.sockets[0].getsockname()[1]}", told
    finally:
        server.close()


def _info(**said: object) -> bytes:
    return b"INFO " + json.dumps({"server_id": "x", "max_payload": 1 << 20, **said}).encode() + b"\r\n"


GREETINGS = [
    _info(nonce="abc", auth_required=True),
    _info(),
    _info(tls_available=True, nonce="abc"),
    _info(tls_required=True, nonce="abc"),
    b"INFO\r\n",
    b"INFO \r\n",
    b"INFO []\r\n",
    b"INFO 7\r\n",
    b"INFO {}\r\n",
    b'INFO {"nonce": 5}\r\n',
    b'INFO {"connect_urls": 5}\r\n',
    b"HTTP/1.1 400 Bad Request\r\n\r\n",
    b"\xff\xfe\r\n",
    b"",
]


@pytest.mark.parametrize("greeting", GREETINGS)
def test_a_server_without_tls_learns_neither_token_nor_signature(greeting: bytes) -> None:
    own = credential_of("h1")

    async def run() -> None:
        async with _liar(greeting) as (url, told):
            with pytest.raises((nats.errors.Error, OSError, TimeoutError)) as caught:
                await connect_as(url, own)
            assert not isinstance(caught.value, RefusedError)
            for secret in (own.token, own.seed, "sig", "jwt"):
                assert secret.encode() not in told

    asyncio.run(asyncio.wait_for(run(), 20))
