"""A manager that serves the page of this tree and tells of a synthetic fabric, in a thread of its own.

By hand: python tests/page/page_server.py [PORT [LEAVES]]
"""

import asyncio
import json
import sys
import threading
import time
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, Self

from aiohttp import web
from answers import answer, short_fleet
from audit.audited import two_audits
from synthetic import HOSTILE_HOST, RefusedError, Synthetic

from manager.api.audit.audit_http import AuditHttp
from manager.page.files import INDEX, read_files
from manager.page.files import answer as file_answer
from manager.page.server import HEADERS


class PageServer:
    """Serve until the block is left.

    Attributes:
        world: what is told.
        audits: what is told of audits, by the manager's own answers.
        ticks_s: between two ticks; None stops them and leaves streams open.
        answers: whether questions and streams are answered.
        stands: whether questions that come are never answered.
        streams: how many are open.
    """

    def __init__(self, world: Synthetic, port: int = 0) -> None:
        self.world, self._port, self._files = world, port, read_files()
        self.ticks_s: float | None = 0.25
        self.answers, self.stands = True, False
        self.streams = 0
        self.audits: Any = two_audits(HOSTILE_HOST)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="page-server")

    def __enter__(self) -> Self:
        self._thread.start()
        self._run(self._start())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        self.answers = False
        self._run(self._runner.cleanup())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}/"

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(30)

    async def _start(self) -> None:
        application = web.Application()
        application.on_response_prepare.append(_add_headers)
        application.router.add_get("/v1/stream", self._stream)
        application.router.add_get("/v1/session", self._session)
        application.add_routes(AuditHttp(self.audits).reading_routes())
        application.router.add_get("/v1/{path:.*}", self._answer)
        application.router.add_get("/{path:.*}", self._file)
        self._runner = web.AppRunner(application, shutdown_timeout=1, access_log=None)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self._port)
        await site.start()
        self._port = self._runner.addresses[0][1]

    async def _file(self, request: web.Request) -> web.Response:
        found = self._files.get(request.match_info["path"] or INDEX)
        return web.Response(status=404) if found is None else file_answer(found, request)

    async def _answer(self, request: web.Request) -> web.Response:
        if not self.answers:
            raise web.HTTPServiceUnavailable
        self.world.asked.append(request.path_qs)
        if self.stands:
            await asyncio.Event().wait()
        try:
            return web.json_response(answer(self.world, request.match_info["path"], request.query))
        except RefusedError as refused:
            return web.json_response(refused.answer, status=refused.status)

    async def _session(self, _request: web.Request) -> web.Response:
        if not self.answers:
            raise web.HTTPServiceUnavailable
        return web.json_response({"name": "127.0.0.1", "role": "viewer", "signed_in": False})

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        if not self.answers:
            raise web.HTTPServiceUnavailable
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
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


async def _add_headers(_request: web.Request, response: web.StreamResponse) -> None:
    response.headers.update(HEADERS)


def main() -> None:
    port, leaves = [*map(int, sys.argv[1:]), *(8077, 12)[len(sys.argv) - 1 :]]
    with PageServer(Synthetic(leaves=leaves), port) as server:
        server.ticks_s = 1.0
        sys.stdout.write(f"{server.url}, until ctrl-c\n")
        while True:
            time.sleep(1)
            server.world.advance()


if __name__ == "__main__":
    main()
