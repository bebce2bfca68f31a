"""What it costs a manager that its bus is safe: TLS, permissions and signatures.

The same messages at the same rate go over two bus servers, one as a fleet has it, the other open to everybody, which no
command of cwdp starts. Signing is measured by itself.

`python -m tools.bench.bus.security URL CREDENTIAL RATES` is the other end, which sends what all hosts would.
"""

import asyncio
import contextlib
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from dataclasses import asdict, dataclass
from pathlib import Path

from nats.aio.client import Client

from cwdp.shared.bus.session import dial
from cwdp.shared.identity import credential
from manager.bus.nats_server import BINARY, NatsServer
from manager.identity.authority import Authority
from tools.processes import processor_s

PORT, OPEN_PORT = 4473, 4474
HOST = "127.0.0.1"
ROUNDS, ROUND_S, WARM_UP_S = 3, 8.0, 2.0
TICK_S = 0.01
SIGNED = 2_000
UP, DOWN = "cwdp.v2.main.up.h0.report", "cwdp.v2.main.down.h0.clock"
NOBODY = "-"


@dataclass(frozen=True)
class Rates:
    """Messages that a manager hears and sends a second, and the bytes of one."""

    up: float
    up_bytes: int
    down: float
    down_bytes: int


async def cores(rates: Rates) -> dict[str, float]:
    """Processor time a second: TLS of a manager, its signatures, and what TLS and permissions take of a bus server."""
    authority = Authority.new()
    used: dict[str, list[tuple[float, float]]] = {"safe": [], "open": []}
    for _ in range(ROUNDS):
        with tempfile.TemporaryDirectory() as folder:
            used["safe"].append(await _safe(Path(folder), authority, rates))
            used["open"].append(await _open(rates))
    manager, server = (
        statistics.median(one[which] for one in used["safe"])
        - statistics.median(one[which] for one in used["open"])
        for which in range(2)
    )
    signatures = rates.down * _signature_s(authority, rates.down_bytes)
    return {"tls": max(manager, 0.0), "signatures": signatures, "server": max(server, 0.0)}


def _signature_s(authority: Authority, size: int) -> float:
    body, key = bytes(size), authority.control_key
    began_s = time.process_time()
    for _ in range(SIGNED):
        key.sign(body)
    return (time.process_time() - began_s) / SIGNED


async def _safe(folder: Path, authority: Authority, rates: Rates) -> tuple[float, float]:
    server = NatsServer(HOST, PORT, folder, authority)
    await server.start()
    try:
        assert server.pid is not None
        mine, path = authority.manager_credential("manager"), folder / "hosts"
        authority.manager_credential("hosts").save(path)
        client = await dial(server.url, mine, name="manager")
        return await _used(client, server.pid, server.url, str(path), rates)
    finally:
        await server.stop()


async def _open(rates: Rates) -> tuple[float, float]:
    async with _open_server() as (url, pid):
        client = await _connected(url, NOBODY)
        return await _used(client, pid, url, NOBODY, rates)


@contextlib.asynccontextmanager
async def _open_server() -> AsyncIterator[tuple[str, int]]:
    argv = [BINARY, "-a", HOST, "-p", str(OPEN_PORT)]
    process = await asyncio.create_subprocess_exec(
        *argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        await asyncio.sleep(WARM_UP_S)
        yield f"nats://{HOST}:{OPEN_PORT}", process.pid
    finally:
        process.terminate()
        await process.wait()


async def _connected(url: str, path: str) -> Client:
    if path != NOBODY:
        return await dial(url, credential.load(Path(path)), name="hosts")
    client = Client()
    await client.connect(url)
    return client


async def _used(client: Client, server: int, url: str, path: str, rates: Rates) -> tuple[float, float]:
    """Processor time a second of this process, which hears and sends, and of the server."""
    heard = 0

    async def hear(_: object) -> None:
        nonlocal heard
        heard += 1

    await client.subscribe(UP, cb=hear)
    argv = [sys.executable, "-m", __spec__.name, url, path, json.dumps(asdict(rates))]
    hosts = await asyncio.create_subprocess_exec(*argv)
    try:
        await asyncio.sleep(WARM_UP_S)
        before, heard, began_s = (time.process_time(), processor_s(server)), 0, time.monotonic()
        await _send(client, DOWN, rates.down, rates.down_bytes, ROUND_S)
        took_s = time.monotonic() - began_s
        after = time.process_time(), processor_s(server)
    finally:
        hosts.terminate()
        await hosts.wait()
        await client.close()
    share = rates.up * took_s / max(heard, 1)
    return (after[0] - before[0]) / took_s * share, (after[1] - before[1]) / took_s * share


async def _send(client: Client, subject: str, rate: float, size: int, seconds: float) -> None:
    body, sent, began_s = bytes(size), 0, time.monotonic()
    while (since_s := time.monotonic() - began_s) < seconds:
        for _ in range(round(since_s * rate) - sent):
            await client.publish(subject, body)
        sent = round(since_s * rate)
        await asyncio.sleep(TICK_S)


async def _be_hosts(url: str, path: str, rates: Rates) -> None:
    client = await _connected(url, path)

    async def ignore(_: object) -> None:
        pass

    await client.subscribe(DOWN, cb=ignore)
    await _send(client, UP, rates.up, rates.up_bytes, 60.0)


if __name__ == "__main__":
    asyncio.run(_be_hosts(sys.argv[1], sys.argv[2], Rates(**json.loads(sys.argv[3]))))
