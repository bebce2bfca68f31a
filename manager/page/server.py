"""The page's own listener: its files, all that is read under `/v1`, and the stream. Nothing can be changed by it.

Its files are the same for everybody and tell nothing. What is under `/v1` is for viewers: by the header and the certificate, as
at the API, or by a session, which a browser gets for a token.
"""

import logging
from collections.abc import Awaitable, Callable, Iterable

from aiohttp import web

from manager.access.callers import COOKIE, OTHERS, Callers
from manager.access.listeners import Listener
from manager.access.roles import Role
from manager.access.unreadable import HTTP_LOG
from manager.api.refusal import refuse
from manager.page.files import INDEX, answer, read_files
from manager.page.sign_in import SESSION, SignIn
from manager.page.stream import Stream
from manager.view.json_values import Json

STOP_S = 2.0
COMPRESS_ABOVE_BYTES = 1_024
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; object-src 'none'; "
        "require-trusted-types-for 'script'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
_log = logging.getLogger("cwdp.manager.page")


class Page:
    """Serves the page on `listen`; a port that is taken leaves the manager without it, and nothing else.

    Args:
        listen: where.
        callers: tells who looks.
        reading: routes of all that is read.
        tick: makes what the stream sends.

    Attributes:
        url: where it is served; None while it is not.
    """

    def __init__(
        self,
        listen: Listener,
        callers: Callers,
        reading: Iterable[web.RouteDef],
        tick: Callable[[], Awaitable[Json]],
    ) -> None:
        self.url: str | None = None
        self._listen, self._callers = listen, callers
        self._reading = list(reading)
        self._stream = Stream(tick, self._may_look)
        self._sign_in = SignIn(callers, is_secure=listen.tls is not None)
        self._files = read_files()
        self._runner: web.AppRunner | None = None

    async def start(self) -> None:
        """Listen."""
        app = web.Application(middlewares=[self._guard, self._viewers_only])
        app[OTHERS], app[COOKIE] = self._listen.others, self._listen.cookie
        app.on_shutdown.append(self._end_stream)
        app.on_response_prepare.append(_add_headers)
        app.add_routes(
            [
                *self._reading,
                *self._sign_in.routes(),
                web.get("/v1/stream", self._stream.serve),
                web.get("/{path:.*}", self._file),
            ]
        )
        self._runner = web.AppRunner(app, access_log=None, logger=HTTP_LOG, shutdown_timeout=STOP_S)
        await self._runner.setup()
        try:
            await self._listen.site(self._runner).start()
        except OSError as error:
            listen = self._listen
            _log.warning("the page is not served on %s:%s: %s", listen.host, listen.port, error.strerror)
            return
        self.url = self._listen.url

    async def stop(self) -> None:
        """Stop listening."""
        if self._runner is not None:
            await self._runner.cleanup()

    async def _end_stream(self, _app: web.Application) -> None:
        await self._stream.stop()

    async def _file(self, request: web.Request) -> web.StreamResponse:
        path = request.match_info["path"] or INDEX
        if path.startswith("v1/"):
            refuse(f"there is no /{path}", "see docs/http.md", 404)
        found = self._files.get(path)
        if found is None:
            refuse(f"there is no page /{path}", "begin at /", 404)
        return answer(found, request)

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Only reading; only by an address of this listener, so that no foreign site reads it by a name of its own."""
        if request.method not in ("GET", "HEAD") and request.path != SESSION:
            response: web.StreamResponse = web.json_response(
                {
                    "error": "nothing can be changed here",
                    "hint": "use the manager's socket, as the commands do",
                },
                status=405,
            )
        elif not self._listen.is_own(request.url.host or ""):
            response = web.json_response(
                {"error": f"this is not {request.url.host!r}", "hint": f"open it by {self.url}"}, status=403
            )
        else:
            response = await handler(request)
        if _is_worth_compressing(request, response):
            response.enable_compression(web.ContentCoding.gzip)
        return response

    @web.middleware
    async def _viewers_only(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """What the fabric is like is for viewers; to sign in is for everybody."""
        is_open = not request.path.startswith("/v1/") or (
            request.path == SESSION and request.method in ("POST", "DELETE")
        )
        told = None if is_open else self._callers.admit(request, Role.VIEWER)
        return await handler(request) if told is None else told

    def _may_look(self, request: web.Request) -> bool:
        return self._callers.holds(request, Role.VIEWER)


async def _add_headers(_request: web.Request, response: web.StreamResponse) -> None:
    response.headers.update(HEADERS)


def _is_worth_compressing(request: web.Request, response: web.StreamResponse) -> bool:
    """Not what is compressed already, nor a stream: its events would wait for more."""
    is_plain = isinstance(response, web.Response) and "Content-Encoding" not in response.headers
    is_long = (response.content_length or 0) > COMPRESS_ABOVE_BYTES
    return is_plain and is_long and "gzip" in request.headers.get("Accept-Encoding", "")
