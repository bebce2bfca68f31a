"""What happens, as it happens: one event a second to all who look, made once for all.

Server-sent events (WHATWG HTML, 9.2). A viewer that reads slowly gets the newest, and misses those between.
"""

import asyncio
import contextlib
import json
import logging
from collections.abc import Awaitable, Callable

from aiohttp import web

from manager.view.json_values import Json

INTERVAL_S = 1.0
WRITE_S = 10.0
"""A viewer that takes nothing for so long is let go."""

MOST_VIEWERS = 256

_log = logging.getLogger("cwdp.manager.page")


class Stream:
    """Sends what `tick` makes to every viewer; makes nothing while there are none.

    Args:
        tick: makes it.
        may_look: whether a viewer still may; one that may not any more is let go.

    Attributes:
        viewers: how many there are.
    """

    def __init__(self, tick: Callable[[], Awaitable[Json]], may_look: Callable[[web.Request], bool]) -> None:
        self.viewers = 0
        self._tick, self._may_look = tick, may_look
        self._newest = b""
        self._number = 0
        self._news = asyncio.Condition()
        self._ends = False
        self._ticking: asyncio.Task[None] | None = None

    async def serve(self, request: web.Request) -> web.StreamResponse:
        """Send to one viewer until it goes or the manager stops."""
        if self.viewers >= MOST_VIEWERS:
            return web.json_response(
                {"error": f"{MOST_VIEWERS} look at it already", "hint": "close a tab"}, status=503
            )
        response = web.StreamResponse(
            headers={"Content-Type": "text/event-stream", "Cache-Control": "no-store"}
        )
        await response.prepare(request)
        self.viewers += 1
        if self._ticking is None:
            self._ticking = asyncio.create_task(self._run())
        with contextlib.suppress(ConnectionError, TimeoutError):
            await self._send(request, response)
        self.viewers -= 1
        return response

    async def stop(self) -> None:
        """Tell all viewers, and let them go."""
        self._ends = True
        async with self._news:
            self._news.notify_all()
        if self._ticking is not None:
            self._ticking.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._ticking

    async def _send(self, request: web.Request, response: web.StreamResponse) -> None:
        sent = 0
        while not self._ends:
            if self._number == sent:
                async with self._news:
                    await self._news.wait()
                continue
            if not self._may_look(request):
                break
            sent = self._number
            async with asyncio.timeout(WRITE_S):
                await response.write(self._newest)
        async with asyncio.timeout(WRITE_S):
            await response.write(b"event: bye\ndata: {}\n\n")

    async def _run(self) -> None:
        """Make an event a second while somebody looks."""
        while self.viewers:
            try:
                told = json.dumps(await self._tick(), separators=(",", ":")).encode()
            except Exception:  # noqa: BLE001 - the page is none of what the fabric needs
                _log.exception("no news for the page")
                told = b""
            if told:
                self._newest, self._number = b"event: tick\ndata: " + told + b"\n\n", self._number + 1
                async with self._news:
                    self._news.notify_all()
            await asyncio.sleep(INTERVAL_S)
        self._ticking = None
