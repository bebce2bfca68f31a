"""A manager that serves the page of this tree and tells of a synthetic fabric, in a thread of its own.

By hand: python tests/page/page_server.py [PORT [LEAVES]]
"""

import asyncio
import json
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from aiohttp import web

from answers import answer, short_fleet
from synthetic import Refused, Synthetic

STATIC = Path(__file__).parents[2] / "manager/page/static"
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; object-src 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-cache",
}


class PageServer:
    """Serve until the block is left.

    Attributes:
        world: what is told.
        ticks_s: between two ticks; None stops them and leaves streams open.
        answers: whether questions and streams are answered.
        streams: how many are open.
    """

    def __init__(self, world: Synthetic, port: int = 0) -> None:
        self.world, self._port = world, port
        self.ticks_s: float | None = 0.25
        self.answers = True
        self.streams = 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="page-server")

    def __enter__(self) -> Self:
        self._thread.start()
        self._run(self._start())
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.answers = False
        self._run(self._runner.cleanup())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}/"

    def _run(self, work: Awaitable[None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(30)  # type: ignore[arg-type]

    async def _start(self) -> None:
        application = web.Application(middlewares=[_with_headers])
        application.router.add_get("/", lambda _request: web.FileResponse(STATIC / "index.html"))
        application.router.add_get("/v1/stream", self._stream)
        application.router.add_get("/v1/{path:.*}", self._answer)
        application.router.add_static("/", STATIC)
        self._runner = web.AppRunner(application, shutdown_timeout=1, access_log=None)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self._port)
        await site.start()
        self._port = self._runner.addresses[0][1]

    async def _answer(self, request: web.Request) -> web.Response:
        if not self.answers:
            raise web.HTTPServiceUnavailable
        self.world.asked.append(request.path_qs)
        try:
            return web.json_response(answer(self.world, request.match_info["path"], request.query))
        except Refused as refused:
            return web.json_response(refused.answer, status=refused.status)

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        if not self.answers:
            raise web.HTTPServiceUnavailable
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream", **HEADERS})
        await response.prepare(request)
        self.streams += 1
        try:
            await self._tick(response)
        except ConnectionError:
            pass
        finally:
            self.streams -= 1
        return response

    async def _tick(self, response: web.StreamResponse) -> None:
        due_s = 0.0
        while self.answers:
            if self.ticks_s is not None and time.monotonic() >= due_s:
                due_s = time.monotonic() + self.ticks_s
                data = json.dumps(short_fleet(self.world, {}))
                await response.write(f"event: tick\ndata: {data}\n\n".encode())
            await asyncio.sleep(0.05)


@web.middleware
async def _with_headers(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    response = await handler(request)
    if not response.prepared:
        response.headers.update(HEADERS)
    return response


def main() -> None:
    port, leaves = [*map(int, sys.argv[1:]), *(8077, 12)[len(sys.argv) - 1 :]]
    with PageServer(Synthetic(leaves=leaves), port) as server:
        server.ticks_s = 1.0
        print(f"{server.url}, until ctrl-c")
        while True:
            time.sleep(1)
            server.world.advance()


if __name__ == "__main__":
    main()
