"""A job in a window of the timeline that ends now: `/v1/trace` for traces, `/v1/job-series` for charts."""

import asyncio
import time

from aiohttp import web

from manager.api.refusal import refuse
from manager.job_window import answers
from manager.job_window.gathered import JobWindow, gather
from manager.jobs.inference import WINDOW_NS
from manager.state import FleetState
from manager.view import iteration_views

SHORTEST_NS, LONGEST_NS = 1_000_000, WINDOW_NS
DEFAULT_NS = 10_000_000_000


class JobsHttp:
    """Answers from what the manager knows. What there is to work out, threads do."""

    def __init__(self, state: FleetState) -> None:
        self._state = state

    def routes(self) -> list[web.RouteDef]:
        """For an application."""
        return [web.get("/v1/trace", self._trace), web.get("/v1/job-series", self._series)]

    async def _trace(self, request: web.Request) -> web.Response:
        window = self._window(request, _window_ns(request.query.get("window_ns", str(DEFAULT_NS))))
        return web.json_response(await asyncio.to_thread(answers.trace, window))

    async def _series(self, request: web.Request) -> web.Response:
        window, now_s = self._window(request, WINDOW_NS), time.time()
        return web.json_response(await asyncio.to_thread(answers.series, window, now_s))

    def _window(self, request: web.Request, window_ns: int) -> JobWindow:
        name, state = request.query.get("job", ""), self._state
        job = iteration_views.named(state.jobs.jobs).get(name)
        now_ns = state.traffic.timeline_ns(time.monotonic())
        if job is None or now_ns is None:
            refuse(
                f"no job is called {name!r}",
                "`cwdp job` lists those whose queue pairs sent in bursts in the last 30 s",
                404,
            )
        return gather(state, name, job, now_ns - window_ns, now_ns)


def _window_ns(text: str) -> int:
    is_number = text.isascii() and text.isdecimal() and len(text) <= len(str(LONGEST_NS))
    if not (is_number and SHORTEST_NS <= int(text) <= LONGEST_NS):
        refuse(
            f"window_ns: {text[:40]!r} is no whole number from {SHORTEST_NS} to {LONGEST_NS}",
            "bursts are kept for 30 s",
        )
    return int(text)
