"""`/v1/audit`: what audits came to. Operators have them made."""

import asyncio
import contextlib
from typing import Any

import msgspec
from aiohttp import web

from cwdp.errors import ConfigError, ManagerError
from manager.access.callers import CALLER, Callers
from manager.access.roles import Role
from manager.api.refusal import refuse
from manager.audit.baseline import baseline
from manager.audit.compare import changed_facts, compare
from manager.audit.folding import MOST_ROWS, Wanted
from manager.audit.judging.judge import judge
from manager.audit.levels import Asked
from manager.audit.results import GRAVEST
from manager.audit.service.kept import Finished
from manager.audit.service.network import borne_with, joined
from manager.audit.service.service import Audits
from manager.audit.today import today
from manager.view import audit_views
from manager.view.json_values import Json

NO_AUDIT = "no audit has been made here", "`cwdp audit run` makes one"
MOST_DIGITS = 9


class AuditHttp:
    """Answers from what the manager keeps; files are read, and facts judged, in threads."""

    def __init__(self, audits: Audits) -> None:
        self._audits = audits
        self._known: dict[int, Json] = {}

    def reading_routes(self) -> list[web.RouteDef]:
        """What is read."""
        return [
            web.get("/v1/audit", self._shown),
            web.get("/v1/audit/progress", self._progress),
            web.get("/v1/audit/list", self._listed),
            web.get("/v1/audit/findings", self._findings),
            web.get("/v1/audit/finding", self._finding),
            web.get("/v1/audit/changes", self._changes),
            web.get("/v1/audit/verdict", self._verdict),
            web.get("/v1/audit/facts", self._facts),
            web.get("/v1/audit/diff", self._diff),
            web.get("/v1/audit/baseline", self._baseline),
        ]

    def changing_routes(self, callers: Callers) -> list[web.RouteDef]:
        """What has hosts do something."""
        return [web.put("/v1/audit", callers.changes(Role.OPERATOR, self._begin))]

    async def _begin(self, request: web.Request) -> web.Response:
        asked = _asked_for(await request.read())
        await self._audits.shared.known()
        progress = self._audits.begin(asked, request[CALLER].name, request[CALLER].why)
        return web.json_response(audit_views.progress(progress))

    async def _shown(self, request: web.Request) -> web.Response:
        finished = await self._asked(request)
        if "anew" in request.query:
            finished = await self._judged_anew(finished)
        return web.json_response(audit_views.shown(finished))

    async def _progress(self, _request: web.Request) -> web.Response:
        return web.json_response(audit_views.progress(self._audits.progress()))

    async def _listed(self, _request: web.Request) -> web.Response:
        return web.json_response({"audits": await asyncio.to_thread(self._rows, self._audits.latest)})

    def _rows(self, latest: Finished | None) -> list[Json]:
        """Audits, the newest first; those that cannot be read are left out. One that is over stays as it is."""
        files, rows = self._audits.files, {}
        if latest is not None:
            rows[latest.number] = self._known.get(latest.number) or audit_views.listed(latest)
        for number in files.numbers():
            with contextlib.suppress(ManagerError):
                rows[number] = self._known.get(number) or audit_views.listed(files.read(number))
        self._known = rows
        return [rows[number] for number in sorted(rows, reverse=True)]

    async def _findings(self, request: web.Request) -> web.Response:
        wanted, text = _filters(request), request.query.get("limit", str(MOST_ROWS))
        if not text.isdecimal() or len(text) > MOST_DIGITS:
            refuse(f"limit: {text!r} is no number of rows", f"at most {MOST_ROWS} are told")
        finished = await self._asked(request)
        return web.json_response(await asyncio.to_thread(audit_views.findings, finished, wanted, int(text)))

    async def _finding(self, request: web.Request) -> web.Response:
        wanted, key = _filters(request), request.query.get("key", "")
        finished = await self._asked(request)
        found = await asyncio.to_thread(audit_views.finding, finished, wanted, key)
        if found is None:
            refuse(f"audit {finished.number} has no such finding", "see those that it has", 404)
        return web.json_response(found)

    async def _changes(self, request: web.Request) -> web.Response:
        older, newer = self._two(request)

        def answer() -> Json:
            before, after = self._audits.files.read(older), self._audits.files.read(newer)
            return audit_views.changes(before, after, compare(before.audit.results, after.audit.results))

        return web.json_response(await _read(answer))

    async def _verdict(self, request: web.Request) -> web.Response:
        host, latest = request.query.get("host", ""), self._audits.latest
        if "short" in request.query:
            return web.json_response(await asyncio.to_thread(audit_views.verdict_in_short, latest, host))
        if latest is None:
            refuse(*NO_AUDIT, 404)
        return web.json_response(audit_views.verdict(latest, host))

    async def _facts(self, request: web.Request) -> web.Response:
        host, finished = request.query.get("host", ""), await self._asked(request)

        def answer() -> Json:
            told = self._audits.files.facts(finished.number)
            return audit_views.facts([each for each in told if host in ("", each.host)])

        return web.json_response(await _read(answer))

    async def _diff(self, request: web.Request) -> web.Response:
        older, newer = self._two(request)

        def answer() -> Json:
            files = self._audits.files
            findings = compare(files.read(older).audit.results, files.read(newer).audit.results)
            facts = changed_facts(files.facts(older), files.facts(newer))
            return audit_views.diff(older, newer, findings, facts)

        return web.json_response(await _read(answer))

    def _two(self, request: web.Request) -> tuple[int, int]:
        """The audits to be compared, by default the last and the one before."""
        numbers = self._audits.files.numbers()
        newer = _number(request.query.get("newer", str(numbers[-1] if numbers else 0)))
        before = [number for number in numbers if number < newer]
        older = _number(request.query.get("older", str(before[-1] if before else 0)))
        if not older:
            refuse("there are no two audits to compare", "`cwdp audit list` shows those that are kept", 404)
        return older, newer

    async def _baseline(self, request: web.Request) -> web.Response:
        host, finished = request.query.get("host", ""), await self._asked(request)
        told = await _read(lambda: self._audits.files.facts(finished.number))
        facts = next((each for each in told if each.host == host), None)
        if facts is None:
            refuse(
                f"audit {finished.number} has no facts of {host!r}", "`cwdp audit show` lists its hosts", 404
            )
        return web.json_response({"host": host, "number": finished.number, "checks": baseline(facts)})

    async def _judged_anew(self, finished: Finished) -> Finished:
        checks = self._audits.checks()
        facts = await _read(lambda: self._audits.files.facts(finished.number))
        silent = set(finished.hosts) - {each.host for each in facts}
        day = today()
        audit = await asyncio.to_thread(lambda: judge(checks, facts, today=day, silent=silent))
        network = borne_with(finished.network, checks, day)
        return msgspec.structs.replace(finished, audit=joined(audit, network))

    async def _asked(self, request: web.Request) -> Finished:
        """The audit that is asked for, by default the last."""
        text, latest = request.query.get("number"), self._audits.latest
        if text is not None and (latest is None or text != str(latest.number)):
            number = _number(text)
            found: Finished = await _read(lambda: self._audits.files.read(number))
            return found
        if latest is None:
            refuse(*NO_AUDIT, 404)
        return latest


def _number(text: str) -> int:
    if not text.isdecimal() or len(text) > MOST_DIGITS:
        refuse(f"{text!r} is no number of an audit", "`cwdp audit list` shows those that are kept")
    return int(text)


def _filters(request: web.Request) -> Wanted:
    """Which findings are asked for."""
    query = request.query
    verdicts = frozenset(query.get("verdict", "").split(",")) - {""}
    if unknown := verdicts - set(GRAVEST):
        refuse(f"verdict: {min(unknown)!r} is none", f"some of {', '.join(GRAVEST)}, by commas")
    return Wanted(verdicts=verdicts, host=query.get("host", ""), text=query.get("q", ""))


async def _read(work: Any) -> Any:
    """What a thread reads of files; what is not there is said."""
    try:
        return await asyncio.to_thread(work)
    except ManagerError as error:
        refuse(error.message, error.hint, 404)


def _asked_for(body: bytes) -> Asked:
    try:
        return msgspec.json.decode(body, type=Asked)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"that is no audit to make: {error}",
            "give level (facts), hosts (patterns of their names), force and cap_bps",
        ) from error
