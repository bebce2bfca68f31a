"""The HTTP API on a unix socket and, where asked for, on TCP."""

import asyncio
import contextlib
import errno
import os
import socket as sockets
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TypeVar

from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from cwdp.errors import BusError, ConfigError, ManagerError, PrivilegeError
from manager.access.callers import CALLER, OTHERS, Callers, refusal
from manager.access.listeners import Listener
from manager.access.roles import Role
from manager.access.unreadable import HTTP_LOG
from manager.api.audit.audit_http import AuditHttp
from manager.api.history_http import HistoryHttp
from manager.api.jobs import collectives_http
from manager.api.jobs.jobs_http import JobsHttp
from manager.api.metrics import FleetCollector, Sources
from manager.api.overview_http import OverviewHttp
from manager.api.refusal import refuse, refuse_job, sort_and_limit
from manager.paths.owd import Paths
from manager.view import (
    cause_views,
    fabric_views,
    host_views,
    ib_views,
    iteration_views,
    link_views,
    qp_views,
    steer_views,
    tcp_paths,
    tcp_views,
)
from manager.view.json_values import Json

SOCKET_MODE = 0o666
"""Who may ask what is for `Callers` to say."""

METRICS = "/metrics"
PROTOCOLS = ("", "rocev2", "tcp")
"""Of paths; without one those of RoCEv2 are meant."""

CHANGING = ("PUT", "POST", "DELETE")
THREAD_ABOVE_PATHS = 5_000

_T = TypeVar("_T")
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class HttpServer:
    """Answers from `sources`; started and stopped with the manager.

    Args:
        sources: what is answered from.
        callers: tells who asks.
        changing: the routes by which something is changed.
        socket: the unix socket.
        listen: where on TCP, if anywhere.
    """

    def __init__(
        self,
        sources: Sources,
        callers: Callers,
        changing: Sequence[web.RouteDef],
        *,
        socket: Path,
        listen: Listener | None,
    ) -> None:
        self._sources, self._callers, self._changing = sources, callers, changing
        self._past = HistoryHttp(sources.state, sources.history)
        self.overview = OverviewHttp(sources, self._past)
        self._socket = socket
        self._listen = listen
        self._collector = FleetCollector(sources)
        self._runner: web.AppRunner | None = None

    async def start(self) -> None:
        """Listen.

        Raises:
            ManagerError: the socket or port can't be listened on, or another manager is there.
        """
        app = web.Application(middlewares=[self._known_only, self._leader_only])
        app[OTHERS] = Role.NONE if self._listen is None else self._listen.others
        app.add_routes(
            [
                web.get("/healthz", self._health),
                web.get(METRICS, self._metrics),
                *self.reading_routes(),
                *self._changing,
            ]
        )
        self._runner = web.AppRunner(app, access_log=None, logger=HTTP_LOG)
        await self._runner.setup()
        try:
            await self._listen_on_socket(self._runner)
            if self._listen is not None:
                await self._listen_on_tcp(self._runner, self._listen)
        except ManagerError:
            await self._runner.cleanup()
            raise

    def reading_routes(self) -> list[web.RouteDef]:
        """All that is read under `/v1`, for this application and for the page's."""
        return [
            web.get("/v1/manager", self._manager),
            web.get("/v1/clock", self._clock),
            web.get("/v1/owd", self._owd),
            web.get("/v1/host", self._host),
            web.get("/v1/qp", self._queue_pairs),
            web.get("/v1/tcp", self._connections),
            web.get("/v1/steered", self._steered),
            web.get("/v1/iterations", self._iterations),
            web.get("/v1/causes", self._causes),
            web.get("/v1/link", self._links),
            web.get("/v1/fabric", self._fabric),
            web.get("/v1/path", self._path),
            *collectives_http.routes(self._sources.state.collectives),
            *self._past.routes(),
            *([] if self._sources.audits is None else AuditHttp(self._sources.audits).reading_routes()),
            *JobsHttp(self._sources.state).routes(),
            *self.overview.routes(),
        ]

    async def stop(self) -> None:
        """Stop listening and remove the socket."""
        if self._runner is not None:
            await self._runner.cleanup()
        with contextlib.suppress(OSError):
            self._socket.unlink()

    async def _listen_on_socket(self, runner: web.AppRunner) -> None:
        if _is_served(self._socket):
            raise ManagerError(
                f"another manager answers on {self._socket}",
                "stop it first, or give this one a socket of its own with `--socket PATH`",
            )
        try:
            self._socket.parent.mkdir(parents=True, exist_ok=True)
            self._socket.unlink(missing_ok=True)
            await web.UnixSite(runner, str(self._socket)).start()
            os.chmod(self._socket, SOCKET_MODE)  # noqa: PTH101 - Path.chmod blocks just as long
        except OSError as error:
            raise ManagerError(
                f"cannot listen on {self._socket}: {_why(error)}", "give another path with `--socket PATH`"
            ) from error

    async def _listen_on_tcp(self, runner: web.AppRunner, listen: Listener) -> None:
        try:
            await listen.site(runner).start()
        except OSError as error:
            raise ManagerError(
                f"cannot listen on {listen.host}:{listen.port}: {_why(error)}",
                "give a free address with `--listen HOST:PORT`",
            ) from error

    @web.middleware
    async def _known_only(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Who is of no role reads nothing, and who may read metrics only, only these."""
        needed = Role.METRICS if request.path == METRICS else Role.VIEWER
        told = self._callers.admit(request, needed)
        if told is not None:
            return told
        listen, host = self._listen, request.url.host or ""
        is_open = listen is not None and listen.others and not request[CALLER].is_local
        if listen is not None and is_open and not listen.is_own(host):
            return refusal(PrivilegeError(f"this is not {host!r}", f"ask for it by {listen.url}"))
        return await handler(request)

    @web.middleware
    async def _leader_only(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Changes are the leader's to take; whoever waits answers what is read."""
        if request.method not in CHANGING:
            return await handler(request)
        if not (self._sources.state.leads and self._sources.lease.leads):
            holder, own = self._sources.lease.holder, self._sources.lease.claim
            leader = "nobody it knows of" if holder is None else repr(holder.name)
            error = ManagerError(f"this manager waits: {leader} leads", "ask the one that leads")
            if holder == own:
                error = ManagerError(
                    "this manager is about to lead", "try again; its log says what it waits for"
                )
            return web.json_response({"error": error.message, "hint": error.hint}, status=503)
        try:
            if self._sources.kept is not None:
                await self._sources.kept.seal()
        except BusError as error:
            return refusal(error)
        return await handler(request)

    async def _manager(self, _request: web.Request) -> web.Response:
        return web.json_response(
            host_views.manager(self._sources.state, self._sources.lease, self._sources.pods)
        )

    async def _health(self, _request: web.Request) -> web.Response:
        connected = self._sources.bus.connected
        status = {"status": "ok" if connected else "bus_disconnected"}
        return web.json_response(status, status=200 if connected else 503)

    async def _metrics(self, _request: web.Request) -> web.Response:
        registry = CollectorRegistry()
        registry.register(self._collector.scrape(await self._collector.tables()))
        body = await self._off_loop(lambda: generate_latest(registry))
        return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE_LATEST})

    async def _clock(self, _request: web.Request) -> web.Response:
        return web.json_response(host_views.clock(self._sources.state, time.monotonic()))

    async def _owd(self, request: web.Request) -> web.Response:
        query = request.query
        sort, limit = sort_and_limit(query, host_views.OWD_SORTS)

        def answer() -> Json:
            return host_views.owd(
                self._snapshot(),
                src=query.get("src", ""),
                dst=query.get("dst", ""),
                sort=sort,
                limit=limit,
            )

        return web.json_response(await self._off_loop(answer))

    def _snapshot(self) -> Paths:
        return self._sources.state.owd.snapshot(time.monotonic())

    async def _off_loop(self, work: Callable[[], _T]) -> _T:
        """Do what reads the delay store only: in a thread where it is large, so that clocks go on meanwhile."""
        if len(self._sources.state.owd) > THREAD_ABOVE_PATHS:
            return await asyncio.to_thread(work)
        return work()

    async def _host(self, request: web.Request) -> web.Response:
        name = request.query.get("name", "")
        return web.json_response(host_views.hosts(self._sources.state, time.monotonic(), name=name))

    async def _queue_pairs(self, request: web.Request) -> web.Response:
        sort, limit = sort_and_limit(request.query, tuple(qp_views.SORTS))
        host = request.query.get("host", "")
        answer = qp_views.queue_pairs(
            self._sources.state, time.monotonic(), host=host, sort=sort, limit=limit
        )
        return web.json_response(answer)

    async def _connections(self, request: web.Request) -> web.Response:
        sort, limit = sort_and_limit(request.query, tuple(tcp_views.SORTS))
        chosen = {name: request.query.get(name, "") for name in ("host", "service")}
        answer = tcp_views.connections(
            self._sources.state, time.monotonic(), **chosen, sort=sort, limit=limit
        )
        return web.json_response(answer)

    async def _steered(self, request: web.Request) -> web.Response:
        host = request.query.get("host", "")
        if host not in self._sources.state.members.hosts:
            return web.json_response({"error": f"no host is called {host!r}"}, status=404)
        return web.json_response(steer_views.steered(self._sources.state, host))

    async def _iterations(self, request: web.Request) -> web.Response:
        name = request.query.get("job", "")
        return _of_job(name, iteration_views.jobs(self._sources.state.jobs.jobs, name))

    async def _causes(self, request: web.Request) -> web.Response:
        name, state = request.query.get("job", ""), self._sources.state
        return _of_job(name, cause_views.causes(state.causes, state.jobs.jobs, name))

    async def _fabric(self, request: web.Request) -> web.Response:
        if "at" in request.query:
            return await self._past.fabric(request.query)
        state = self._sources.state
        told = fabric_views.fabric(state.discovery) | ib_views.subnets(state.subnets)
        return web.json_response(told)

    async def _path(self, request: web.Request) -> web.Response:
        query, state = request.query, self._sources.state
        if "connection" in query:
            try:
                return web.json_response(tcp_paths.connection_paths(state, query["connection"]))
            except ConfigError as error:
                return refusal(error)
        src, dst, protocol = (query.get(name, "") for name in ("src", "dst", "protocol"))
        if not src or not dst or protocol not in PROTOCOLS:
            refuse(
                f"src and dst are hosts or NICs (HOST/IFNAME), protocol is {' or '.join(filter(None, PROTOCOLS))}",
                "or name a TCP connection: connection=",
            )
        told = fabric_views.path(state.discovery, src, dst, tcp=protocol == "tcp")
        if protocol != "tcp":
            told["pairs"] += ib_views.pairs(state.subnets, src, dst, state.ib_spreads.shares)
        return web.json_response(told)

    async def _links(self, request: web.Request) -> web.Response:
        sort, limit = sort_and_limit(request.query, link_views.SORTS)
        if "at" in request.query:
            return await self._past.links(request.query, sort, limit)
        return web.json_response(link_views.links(self._sources.state, sort=sort, limit=limit))


def _of_job(name: str, answer: Json | None) -> web.Response:
    """What is known of a job; None where none has the name."""
    if answer is None:
        refuse_job(name)
    return web.json_response(answer)


def _is_served(path: Path) -> bool:
    """Whether somebody listens on a unix socket; one that a killed manager left behind does not count."""
    with sockets.socket(sockets.AF_UNIX, sockets.SOCK_STREAM) as probe:
        try:
            probe.connect(str(path))
        except OSError as error:
            return error.errno not in (errno.ENOENT, errno.ECONNREFUSED, errno.ENOTDIR)
    return True


def _why(error: OSError) -> str:
    return os.strerror(error.errno) if error.errno else str(error)
