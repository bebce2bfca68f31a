"""The manager's page on the machine's own loopback: the manager itself lives in a namespace of the lab."""

import asyncio
import socket
import threading
from contextlib import suppress
from types import TracebackType
from typing import Self

from cwdp.errors import LabError
from manager.config import host_port
from tools.lab.network.netns import netns_enter

_CHUNK_BYTES = 1 << 16


class Relay:
    """Carries TCP connections to an address of this machine over to the same address in a namespace, as a context.

    Args:
        address: HOST:PORT, numeric.
        netns: where somebody listens there.
    """

    def __init__(self, address: str, netns: str) -> None:
        self._address, self._netns = address, netns
        self._where = host_port(address, "--page")
        self._loop = asyncio.new_event_loop()
        self._server: asyncio.Server | None = None
        self._thread = threading.Thread(target=self._loop.run_forever, name="relay", daemon=True)

    def __enter__(self) -> Self:
        """Listen.

        Raises:
            LabError: the address cannot be had.
        """
        self._thread.start()
        try:
            asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result()
        except OSError as error:
            self._end()
            raise LabError(
                f"nobody can listen on {self._address}: {error.strerror}",
                "Give another --page HOST:PORT of this machine.",
            ) from error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def _end(self) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._carry, *self._where)

    async def _close(self) -> None:
        if self._server is not None:
            self._server.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Both ways, until one side ends."""
        far_writer = None
        with suppress(OSError):
            far_reader, far_writer = await asyncio.open_connection(sock=await self._connected())
            await asyncio.wait(
                [
                    asyncio.ensure_future(_copy(reader, far_writer)),
                    asyncio.ensure_future(_copy(far_reader, writer)),
                ],
                return_when=asyncio.FIRST_COMPLETED,
            )
        for each in (writer, far_writer):
            if each is not None:
                each.close()

    async def _connected(self) -> socket.socket:
        with netns_enter(self._netns):
            far = socket.socket(socket.AF_INET6 if ":" in self._where[0] else socket.AF_INET)
        far.setblocking(False)
        try:
            await self._loop.sock_connect(far, self._where)
        except BaseException:
            far.close()
            raise
        return far


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while chunk := await reader.read(_CHUNK_BYTES):
            writer.write(chunk)
            await writer.drain()
