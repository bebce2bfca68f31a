"""What the page and `cwdp top` read: `/v1/fleet`, `/v1/matrix`, `/v1/map`, `/v1/leaf`, views of one thing, `/v1/find`, `/v1/span`.

An answer about now is made once for all who ask within a moment, and compressed once.
"""

import asyncio
import json
import time
import zlib
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from aiohttp import web

from manager.api.history_http import HistoryHttp
from manager.api.metrics import Sources
from manager.api.moments import Moments
from manager.api.refusal import refuse
from manager.history.queries import Wanted
from manager.moment.matrix import METRICS, Matrix, Metric
from manager.moment.moment import Moment
from manager.moment.pairs import Pairs, leaf_matrix
from manager.overview import details, fleet, job_views, standing
from manager.overview.details import QpRecord
from manager.overview.find import find
from manager.overview.fleet import Standing
from manager.overview.leaf import leaf
from manager.overview.qp_rows import QpRows
from manager.overview.tiers import tier_map
from manager.placement.flows import QpName
from manager.view.json_values import Json

DAY_S = 86_400.0
MOST_EVENTS = 5_000
MOST_MOVES = 1_000
MOST_ANSWERS = 64
KEPT_QPS = "the fastest are kept for an hour, and those that a finding touched"
MATRICES_KEPT = 8
COMPRESS_ABOVE_BYTES = 1_024
THREAD_ABOVE_BYTES = 200_000
GZIP = 31
LEVEL = 5


@dataclass(frozen=True)
class _Answer:
    """Encoded, and compressed where that is worth it."""

    moment: Moment
    body: bytes
    compressed: bytes | None


class OverviewHttp:
    """Answers about the whole and about single things, now and as they were.

    Args:
        sources: what the manager knows.
        past: answers from history.
    """

    def __init__(self, sources: Sources, past: HistoryHttp) -> None:
        self._sources, self._past = sources, past
        self._moments = Moments(sources)
        self._answers: OrderedDict[str, _Answer] = OrderedDict()
        self._matrices = Matrices()

    def routes(self) -> list[web.RouteDef]:
        """For an application."""
        return [
            web.get("/v1/fleet", self._fleet),
            web.get("/v1/matrix", self._matrix),
            web.get("/v1/map", self._map),
            web.get("/v1/leaf", self._leaf),
            web.get("/v1/link-view", self._link),
            web.get("/v1/qp-view", self._queue_pair),
            web.get("/v1/job", self._jobs),
            web.get("/v1/find", self._find),
            web.get("/v1/span", self._span),
        ]

    async def tick(self) -> Json:
        """What is told again and again: the verdict, findings, and which matrix there is."""
        moment = await self._moments.now()
        self._matrices.follow(moment)
        told = fleet.tick(moment, self._standing(moment))
        return told | {"versions": {"matrix": self._matrices.version, "findings": _version(moment)}}

    async def _fleet(self, request: web.Request) -> web.Response:
        moment = await self._moment(request.query)
        return await self._answer(
            request, moment, lambda: fleet.fleet(moment, self._standing(moment), self._rows(moment))
        )

    async def _map(self, request: web.Request) -> web.Response:
        moment = await self._moment(request.query)
        is_open = {group for group in request.query.get("open", "").split(",") if group}
        return await self._answer(request, moment, lambda: tier_map(moment, is_open))

    async def _leaf(self, request: web.Request) -> web.Response:
        name, peer = _named(request.query, "name"), request.query.get("peer")
        moment = await self._moment(request.query)
        found = leaf(moment, name, peer, self._rows(moment))
        return _found(found, f"no switch {name!r}" + (f" and {peer!r}" if peer else ""))

    async def _link(self, request: web.Request) -> web.Response:
        a, b = _named(request.query, "a"), _named(request.query, "b")
        moment = await self._moment(request.query)
        events = await self._past.events(
            Wanted(since_s=moment.at_s - DAY_S, until_s=moment.at_s, limit=MOST_EVENTS)
        )
        found = details.link_view(moment, a, b, events, self._rows(moment))
        return _found(found, f"no link {a} > {b}")

    async def _queue_pair(self, request: web.Request) -> web.Response:
        query = request.query
        qpn = _named(query, "qpn")
        if not qpn.isdecimal() or len(qpn) > 8:
            refuse(f"qpn: {qpn!r} is no queue pair number", "see `cwdp qp --json`")
        name = QpName(_named(query, "host"), _named(query, "nic"), _named(query, "dst_addr"), int(qpn))
        moment = await self._moment(query)
        found = details.qp_view(moment, name, self._rows(moment), await self._record(moment, name))
        what = f"queue pair {name.src} to {name.dst_addr} QPN {qpn}"
        if found is None and not moment.is_live:
            refuse(f"nothing is kept of the {what} of then", KEPT_QPS, 404)
        return _found(found, f"no {what}")

    async def _jobs(self, request: web.Request) -> web.Response:
        moment, name = await self._moment(request.query), request.query.get("name")
        if name is None:
            return await self._answer(
                request, moment, lambda: {"jobs": job_views.jobs(moment, self._rows(moment))}
            )
        return _found(job_views.job(moment, name, self._rows(moment)), f"no job {name!r}")

    async def _matrix(self, request: web.Request) -> web.Response:
        query = request.query
        metric = next((each for each in METRICS if each == query.get("metric", "spread")), None)
        since = query.get("from", "")
        if metric is None or (since and not since.isdecimal()):
            refuse(f"metric is one of {', '.join(METRICS)}, from a version", "see docs/http.md")
        moment = await self._moment(query)
        if not moment.is_live:
            return web.json_response(_past_matrix(moment, metric))
        self._matrices.follow(moment)
        return await self._answer(
            request, moment, lambda: self._matrices.since(metric, int(since) if since else None)
        )

    async def _find(self, request: web.Request) -> web.Response:
        moment = await self._moment(request.query)
        hosts = iter(list(self._sources.state.members.hosts))
        return web.json_response({"found": find(moment, request.query.get("q", ""), hosts)})

    async def _span(self, _request: web.Request) -> web.Response:
        return web.json_response(await self._past.span())

    async def _moment(self, query: Mapping[str, str]) -> Moment:
        return await (self._past.moment(query) if "at" in query else self._moments.now())

    async def _record(self, moment: Moment, name: QpName) -> QpRecord:
        wanted = Wanted(since_s=moment.at_s - DAY_S, until_s=moment.at_s, host=name.host, limit=MOST_MOVES)
        events, moves = await self._past.events(wanted), await self._past.moves(wanted)
        mine = [
            each for each in moves if QpName(each["host"], each["nic"], each["dst_addr"], each["qpn"]) == name
        ]
        state = self._sources.state
        if not moment.is_live:
            return QpRecord(
                events=events, moves=mine, backup_sport=mine[-1]["backup_sport"] if mine else None
            )
        bounds = {clock.host: clock.bound_ns for clock in state.clock.view(time.monotonic())}
        steered = state.planner.planned.get(name.host, ())
        backup = next(
            (qp.backup_sport for qp in steered if QpName(name.host, qp.nic, qp.dst_addr, qp.qpn) == name),
            None,
        )
        return QpRecord(events=events, moves=mine, backup_sport=backup, bound_of=bounds.get)

    def _rows(self, moment: Moment) -> QpRows:
        return QpRows(moment, self._sources.state, time.monotonic())

    def _standing(self, moment: Moment) -> Standing:
        sources = self._sources
        name, history = sources.lease.claim.name, sources.history
        if not moment.is_live:
            return standing.of_then(moment, name)
        service = standing.Service(
            name=name,
            leader=None if sources.lease.holder is None else sources.lease.holder.name,
            bus_connected=sources.bus.connected,
            keeps_history=history is not None,
            history_stopped=history is not None and history.figures.stopped,
        )
        return standing.of_now(sources.state, service, time.monotonic())

    async def _answer(self, request: web.Request, moment: Moment, make: Callable[[], Json]) -> web.Response:
        """Of now, what was said before within the moment."""
        known = self._answers.get(request.path_qs)
        if known is None or known.moment is not moment:
            known = await _encoded(moment, make())
            if moment.is_live:
                self._answers[request.path_qs] = known
                self._answers.move_to_end(request.path_qs)
            while len(self._answers) > MOST_ANSWERS:
                self._answers.popitem(last=False)
        headers = {"Vary": "Accept-Encoding"}
        if known.compressed is None or "gzip" not in request.headers.get("Accept-Encoding", ""):
            return web.Response(body=known.body, content_type="application/json", headers=headers)
        headers["Content-Encoding"] = "gzip"
        return web.Response(body=known.compressed, content_type="application/json", headers=headers)


class Matrices:
    """The heat maps of now, with those before, so that only what has changed need travel.

    Attributes:
        version: of the newest; after a restart a higher one than any before.
    """

    def __init__(self) -> None:
        self.version = int(time.time())
        self._moment: Moment | None = None
        self._kept: OrderedDict[int, tuple[Moment, dict[Metric, Matrix]]] = OrderedDict()

    def follow(self, moment: Moment) -> None:
        """Take up a moment of now; it has a version of its own where anything was measured anew."""
        if moment is self._moment:
            return
        self._moment = moment
        self.version += 1
        self._kept[self.version] = moment, {}
        while len(self._kept) > MATRICES_KEPT:
            self._kept.popitem(last=False)

    def since(self, metric: Metric, before: int | None) -> Json:
        """What has changed since an earlier version, or the whole where that is not known any more."""
        now = self._of(self.version, metric)
        if before is not None and before in self._kept:
            changed = now.since(self._of(before, metric))
            if changed is not None:
                return {"version": self.version, "from": before, **changed}
        return {"version": self.version, **now.as_json()}

    def _of(self, version: int, metric: Metric) -> Matrix:
        moment, made = self._kept[version]
        if metric not in made:
            made[metric] = _matrix(moment, metric)
        return made[metric]


def _matrix(moment: Moment, metric: Metric) -> Matrix:
    nothing = Pairs.nothing(moment.parts.leaves)
    return leaf_matrix(metric, moment.leaf_pairs or nothing, moment.parts, moment.talkers)


def _past_matrix(moment: Moment, metric: Metric) -> Json:
    if metric == "load":
        refuse("history has no load of pairs of leaves", "choose spread, p50 or loss")
    return {"version": None, **_matrix(moment, metric).as_json()}


def _version(moment: Moment) -> int:
    """Another number for other findings."""
    return zlib.crc32(json.dumps([(each["number"], each["kind"]) for each in moment.findings]).encode())


async def _encoded(moment: Moment, found: Json) -> _Answer:
    body = json.dumps(found, separators=(",", ":")).encode()
    if len(body) < COMPRESS_ABOVE_BYTES:
        return _Answer(moment, body, None)
    if len(body) < THREAD_ABOVE_BYTES:
        return _Answer(moment, body, _gzipped(body))
    return _Answer(moment, body, await asyncio.to_thread(_gzipped, body))


def _gzipped(body: bytes) -> bytes:
    packer = zlib.compressobj(LEVEL, zlib.DEFLATED, GZIP)
    return packer.compress(body) + packer.flush()


def _named(query: Mapping[str, str], key: str) -> str:
    value = query.get(key, "")
    if not value:
        refuse(f"{key} is missing", "see docs/http.md")
    return value


def _found(found: Json | None, otherwise: str) -> web.Response:
    if found is None:
        refuse(f"there is {otherwise}", "names are those of `cwdp fabric`, `cwdp link` and `cwdp qp`", 404)
    return web.json_response(found)
