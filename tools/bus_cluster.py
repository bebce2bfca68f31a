"""Several real nats-servers on loopback as one bus, to be killed, stopped and started."""

import asyncio
import json
import signal
import subprocess
from pathlib import Path
from typing import Any, Self

import nats.errors
from nats.aio.client import Client

from cwdp.shared.bus.connection import Bus
from cwdp.shared.bus.session import dial, hang_up
from manager.bus.connection import manager_bus
from manager.bus.server_config import Cluster, write_config
from manager.identity.authority import Authority
from tools.free_ports import free_port

READY_S = 180.0


class BusCluster:
    """Servers `s0`, `s1`, ... that are routed to each other; as a context, up once they keep streams together.

    Args:
        directory: below which each has its files.
        authority: the fleet's.
        servers: how many.
    """

    def __init__(self, directory: Path, authority: Authority, servers: int = 3) -> None:
        self._directory, self.authority = directory, authority
        self.names = [f"s{number}" for number in range(servers)]
        self._ports = {name: free_port() for name in self.names}
        self._routes = {name: f"127.0.0.1:{free_port()}" for name in self.names}
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    @property
    def url(self) -> str:
        """All servers'."""
        return ",".join(map(self.url_of, self.names))

    def url_of(self, name: str) -> str:
        """One server's."""
        return f"nats://127.0.0.1:{self._ports[name]}"

    async def __aenter__(self) -> Self:
        for name in self.names:
            self.start(name)
        await self.until_whole()
        return self

    async def __aexit__(self, *_: object) -> None:
        for name in list(self._running):
            self.kill(name)

    def start(self, name: str) -> None:
        """Start one that does not run, on what it has on disk."""
        place = Cluster(name, self._routes[name], list(self._routes.values()))
        where = self._directory / name
        config = write_config(f"127.0.0.1:{self._ports[name]}", where, self.authority, place)
        with (where / "log").open("ab") as log:
            self._running[name] = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", "nats-server", "-c", str(config)], stdout=log, stderr=log
            )

    def kill(self, name: str) -> None:
        """End one at once, by SIGKILL."""
        process = self._running.pop(name)
        process.kill()
        process.wait()

    def suspend(self, name: str) -> None:
        """Have one stand still."""
        self._running[name].send_signal(signal.SIGSTOP)

    def resume(self, name: str) -> None:
        """Have it go on."""
        self._running[name].send_signal(signal.SIGCONT)

    async def leader(self, stream: str) -> str | None:
        """The server that leads a stream's copies; None where that is not known now."""
        info = await self._info(stream)
        return (info.get("cluster") or {}).get("leader") if info else None

    async def copies(self, stream: str) -> int:
        """How many copies a stream has that are up to date; 0 where that is not known now."""
        info = await self._info(stream)
        cluster = (info or {}).get("cluster") or {}
        if not cluster.get("leader"):
            return 0
        others = cluster.get("replicas") or []
        return 1 + sum(bool(other["current"]) and not other.get("offline", False) for other in others)

    async def until_whole(self, *streams: str) -> None:
        """Wait until servers keep streams together, and each of these has a copy on every one of them."""
        async with asyncio.timeout(READY_S):
            while True:
                if await self._keeps_streams() and all(
                    [await self.copies(stream) == len(self._running) for stream in streams]
                ):
                    return
                await asyncio.sleep(0.1)

    async def _keeps_streams(self) -> bool:
        answers = [await self._ask("$JS.API.INFO", self.url_of(name)) for name in self._running]
        return all(answer and "error" not in answer for answer in answers)

    async def _info(self, stream: str) -> dict[str, Any] | None:
        for name in self._running:
            answer = await self._ask(f"$JS.API.STREAM.INFO.{stream}", self.url_of(name))
            if answer and "error" not in answer:
                return answer
        return None

    def bus(self, name: str, **kwargs: Any) -> Bus:
        """A manager's connection to it."""
        return manager_bus(self.url, self.authority, name=name, **kwargs)

    async def connect(self, url: str) -> Client:
        """A bare client that may do all that managers may.

        Raises:
            nats.errors.Error, OSError, TimeoutError: the server does not answer.
        """
        credential = self.authority.manager_credential("test")
        return await dial(url, credential, name="test")

    async def _ask(self, subject: str, url: str) -> dict[str, Any] | None:
        try:
            client = await self.connect(url)
        except (nats.errors.Error, OSError, TimeoutError):
            return None
        try:
            found: dict[str, Any] = json.loads((await client.request(subject, b"", timeout=1)).data)
        except (nats.errors.Error, TimeoutError):
            return None
        finally:
            await hang_up(client)
        return found
