"""A job in a window of the timeline that ends now: `/v1/trace` for traces, `/v1/job-series` for charts."""

import asyncio
import time

from aiohttp import web

from manager.api.refusal import refuse, refuse_job
from manager.job_window import answers
from manager.job_window.gathered import gather
from manager.jobs.inference import Job
from manager.jobs.names import named
from manager.jobs.windows import LONG
from manager.state import FleetState
from manager.view.json_values import Json

SHORTEST_NS, LONGEST_NS = 1_000_000, LONG.length_ns
DEFAULT_NS = 10_000_000_000
LASTS_S = 2.0


class JobsHttp:
    """Answers from what the manager knows. What there is to work out, threads do."""

    def __init__(self, state: FleetState) -> None:
        self._state = state
        self._series_of: dict[str, tuple[float, asyncio.Task[Json]]] = {}

    def routes(self) -> list[web.RouteDef]:
        """For an application."""
        return [web.get("/v1/trace", self._trace), web.get("/v1/job-series", self._series)]

    async def _trace(self, request: web.Request) -> web.Response:
        window_ns = _window_ns(request.query.get("window_ns", str(DEFAULT_NS)))
        window = await gather(self._state, *self._asked(request, window_ns))
        return web.json_response(await asyncio.to_thread(answers.trace, window))

    async def _series(self, request: web.Request) -> web.Response:
        """The same for all who ask within `LASTS_S`."""
        now_s, name = time.monotonic(), request.query.get("job", "")
        self._series_of = {job: one for job, one in self._series_of.items() if now_s < one[0] + LASTS_S}
        if name not in self._series_of:
            making = asyncio.create_task(self._make_series(self._asked(request)))
            self._series_of[name] = now_s, making
        return web.json_response(await asyncio.shield(self._series_of[name][1]))

    async def _make_series(self, asked: tuple[str, Job, int, int]) -> Json:
        now_s, window = time.time(), await gather(self._state, *asked)
        return await asyncio.to_thread(answers.series, window, now_s)

    def _asked(self, request: web.Request, window_ns: int | None = None) -> tuple[str, Job, int, int]:
        """The job that is asked for, by its name, and when the window begins and ends; without a length that in which it is seen."""
        name, state = request.query.get("job", ""), self._state
        job = named(state.jobs.jobs).get(name)
        now_ns = state.traffic.timeline_ns(time.monotonic())
        if job is None or now_ns is None:
            refuse_job(name)
        return name, job, now_ns - (window_ns or job.window.length_ns), now_ns


def _window_ns(text: str) -> int:
    is_number = text.isascii() and text.isdecimal() and len(text) <= len(str(LONGEST_NS))
    if not (is_number and SHORTEST_NS <= int(text) <= LONGEST_NS):
        refuse(
            f"window_ns: {text[:40]!r} is no whole number from {SHORTEST_NS} to {LONGEST_NS}",
            "bursts are looked at for 300 s",
        )
    return int(text)
