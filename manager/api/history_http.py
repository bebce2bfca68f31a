"""What is asked of the past: `/v1/events`, `?at=` of links and of the fabric, series, and the rest of the log."""

import contextlib
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, NoReturn

from aiohttp import web

from manager.api.refusal import refuse
from manager.history import queries
from manager.history.measured import Measurement
from manager.history.queries import Elements, Wanted
from manager.history.service import History
from manager.history.writer import StoppedError
from manager.moment import pairs, parts, talkers
from manager.moment.moment import Moment
from manager.state import FleetState
from manager.view import history_views, host_views, link_table
from manager.view.json_values import Json

MOST_ROWS = 10_000
DEFAULT_ROWS = 1_000
QPS_EVERY_S = 10.5
"""Queue pairs are kept every 10 s."""

AHEAD_S = 1.0
"""Clocks of who asks may be a little ahead."""


class HistoryHttp:
    """Answers from history; events that it cannot answer are those in memory, which are the last 1,000.

    Args:
        state: what the manager knows.
        history: what it keeps; None keeps nothing.
    """

    def __init__(self, state: FleetState, history: History | None) -> None:
        self._state, self._history = state, history

    def routes(self) -> list[web.RouteDef]:
        """For the application."""
        return [
            web.get("/v1/events", self._events),
            web.get("/v1/history", self._log),
            web.get("/v1/leaf-pair", self._leaf_pairs),
            web.get("/v1/series", self._series),
        ]

    async def links(self, query: Mapping[str, str], sort: str, limit: int) -> web.Response:
        """The links as they were at `at`."""
        time_s, history = _at(query), self._kept()
        found = await self._measured(time_s, history.links_at, "links")
        findings = await self._ask(lambda db: queries.findings(db, time_s, time_s))
        return web.json_response(history_views.links(found, findings, sort=sort, limit=limit))

    async def fabric(self, query: Mapping[str, str]) -> web.Response:
        """The fabric as it was known at `at`."""
        time_s = _at(query)

        def read(db: Any) -> Json | float | None:
            since_s = queries.fabric_since_s(db)
            if since_s is None or time_s < since_s:
                return since_s
            return history_views.fabric(
                queries.fabric(db, time_s), queries.findings(db, time_s, time_s), time_s
            )

        found = await self._ask(read)
        if not isinstance(found, dict):
            _outside(time_s, "the fabric", None if found is None else (found, time.time()))
        return web.json_response(found)

    async def moment(self, query: Mapping[str, str]) -> Moment:
        """Everything as it was at `at`; the routes alone are those known now."""
        time_s, history = _at(query), self._kept()
        found = await self._measured(time_s, history.links_at, "links")

        def read(db: Any) -> tuple[list[Json], Elements, list[Json]]:
            held = history_views.held_findings(queries.findings(db, time_s, time_s))
            kept = queries.queue_pairs(db, Wanted(since_s=time_s - QPS_EVERY_S, until_s=time_s))
            return held, queries.fabric(db, time_s), kept

        findings, known, kept = await self._ask(read)
        shown = parts.of_then(known)
        try:
            measured, _ = await history.pairs_at(time_s)
        except StoppedError as error:
            _stopped(error)
        return Moment(
            at_s=time_s,
            is_live=False,
            links=link_table.of_then(found, findings, shown.avoided),
            parts=shown,
            talkers=talkers.of_then(kept),
            leaf_pairs=None if measured is None else pairs.of_then(measured, shown.leaves),
            nic_pairs=None,
            routes=self._state.fabric.routes,
            findings=findings,
        )

    async def span(self) -> Json:
        """From when until when anything is kept; all null where nothing is."""
        if self._history is None:
            return dict.fromkeys(("links", "pairs", "fabric_since_s", "events_since_s"))
        now_s = time.time()
        try:
            since = await self._history.ask(
                lambda db: (queries.fabric_since_s(db), queries.events_since_s(db))
            )
            spans = [(await read(now_s))[1] for read in (self._history.links_at, self._history.pairs_at)]
        except StoppedError as error:
            _stopped(error)
        return {"links": spans[0], "pairs": spans[1], "fabric_since_s": since[0], "events_since_s": since[1]}

    async def events(self, wanted: Wanted) -> list[Json]:
        """What happened, from history or, where that cannot be read, from memory."""
        if self._history is not None:
            with contextlib.suppress(StoppedError):
                return (await self._history.ask(lambda db: queries.events(db, wanted)))[0]
        found: list[Json] = host_views.events(self._state, wanted)["events"]
        return found

    async def moves(self, wanted: Wanted) -> list[Json]:
        """What the planner moved; nothing where history cannot be read."""
        if self._history is not None:
            with contextlib.suppress(StoppedError):
                return await self._history.ask(lambda db: queries.moves(db, wanted))
        return []

    async def _leaf_pairs(self, request: web.Request) -> web.Response:
        time_s, history = _at(request.query), self._kept()
        return web.json_response(
            history_views.leaf_pairs(await self._measured(time_s, history.pairs_at, "pairs of leaves"))
        )

    async def _series(self, request: web.Request) -> web.Response:
        query = request.query
        of, a, b = query.get("of", "link"), query.get("a", ""), query.get("b", "")
        if of not in ("link", "pair") or not a or not b:
            refuse("of is link or pair; a and b are its two ends", "see `cwdp link --json`")
        wanted = _span(query, default_since_s=-3600.0)
        try:
            found = await self._kept().series(of, a, b, wanted.since_s, wanted.until_s)
        except StoppedError as error:
            _stopped(error)
        if found is None:
            refuse(f"no {of} {a} > {b} is known", "see `cwdp link --json`")
        starts_s, lasts_s, values = found
        return web.json_response(history_views.series(starts_s.tolist(), lasts_s, values))

    async def _events(self, request: web.Request) -> web.Response:
        wanted = _span(request.query)
        named = [kind for text in request.query.getall("kind", []) for kind in text.split(",") if kind]
        kinds = [each for kind in named for each in (queries.CHANGES if kind == "change" else (kind,))]
        wanted = replace(wanted, kinds=tuple(dict.fromkeys(kinds)))
        if self._history is None:
            return web.json_response(host_views.events(self._state, wanted))
        try:
            rows, more = await self._history.ask(lambda db: queries.events(db, wanted))
        except StoppedError as error:
            answer = host_views.events(self._state, wanted) | {"incomplete": str(error)}
            return web.json_response(answer)
        return web.json_response({"events": rows, "more": more})

    async def _log(self, request: web.Request) -> web.Response:
        wanted, what = _span(request.query), request.query.get("what", "")
        reads: dict[str, Callable[[Any], list[Json]]] = {
            "finding": lambda db: [
                history_views.finding(each)
                for each in queries.findings(db, wanted.since_s, wanted.until_s)
                if wanted.host in ("", *history_views.hosts_of(each))
            ][-wanted.limit :],
            "move": lambda db: queries.moves(db, wanted),
            "override": lambda db: queries.overrides(db, wanted),
            "queue_pair": lambda db: queries.queue_pairs(db, wanted),
        }
        if what not in reads:
            refuse(f"what is one of {', '.join(reads)}", "for instance what=finding")
        return web.json_response({"rows": await self._ask(reads[what])})

    async def _ask(self, question: Callable[[Any], Any]) -> Any:
        try:
            return await self._kept().ask(question)
        except StoppedError as error:
            _stopped(error)

    def _kept(self) -> History:
        if self._history is None:
            refuse("this manager keeps no history", "ask another one")
        return self._history

    async def _measured(self, time_s: float, read: Callable[[float], Any], what: str) -> Measurement:
        try:
            found, span_s = await read(time_s)
        except StoppedError as error:
            _stopped(error)
        if found is None:
            _outside(time_s, what, span_s)
        measured: Measurement = found
        return measured


def _stopped(error: StoppedError) -> NoReturn:
    refuse(f"history cannot be read: {error}", "the manager's log and `cwdp event` say since when", 503)


def _outside(time_s: float, what: str, span_s: tuple[float, float] | None) -> NoReturn:
    if span_s is None:
        refuse(f"nothing is kept of {what} yet", "wait a minute after the first start")
    since, until = (_shown(each) for each in span_s)
    if span_s[0] <= time_s <= span_s[1]:
        refuse(f"nothing was measured of {what} at {_shown(time_s)}", f"history spans {since} to {until}")
    refuse(
        f"{_shown(time_s)} is outside the history of {what}",
        f"it spans {since} to {until}; give a time within",
    )


def _shown(time_s: float) -> str:
    return f"{datetime.fromtimestamp(time_s, UTC):%Y-%m-%d %H:%M:%S} UTC"


def _at(query: Mapping[str, str]) -> float:
    """The instant that is asked for."""
    now_s = time.time()
    time_s = _time(query, "at", now_s, now_s)
    if time_s > now_s + AHEAD_S:
        refuse(f"{_shown(time_s)} is in the future", f"now it is {_shown(now_s)}")
    return time_s


def _span(query: Mapping[str, str], default_since_s: float | None = None) -> Wanted:
    """From when until when, of which host, and how many rows."""
    now_s = time.time()
    limit = query.get("limit", str(DEFAULT_ROWS))
    if not limit.isdecimal() or not 0 < int(limit) <= MOST_ROWS:
        refuse(f"limit: {limit!r} is no whole number from 1 to {MOST_ROWS}", "leave it out for 1,000")
    since_s = _time(query, "since", now_s, 0.0 if default_since_s is None else now_s + default_since_s)
    until_s = _time(query, "until", now_s, now_s + AHEAD_S)
    if since_s > until_s:
        refuse(
            f"{_shown(since_s)} is later than {_shown(until_s)}", "since comes before until, and before now"
        )
    return Wanted(since_s=since_s, until_s=until_s, host=query.get("host", ""), limit=int(limit))


def _time(query: Mapping[str, str], name: str, now_s: float, default_s: float) -> float:
    """A time in seconds since 1970 or, where negative, before now."""
    text = query.get(name)
    if text is None:
        return default_s
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    time_s = value if value >= 0 and not text.startswith("-") else now_s + value
    if not 0 <= time_s <= 1e11:
        refuse(f"{name}: {text!r} is no time", "give seconds since 1970 or, negative, before now")
    return time_s
