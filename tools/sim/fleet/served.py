"""The page over a simulated fleet, by the manager's own server: to look at sizes that no lab has."""

import asyncio
import contextlib
import json
import os
import resource
import time
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from cwdp.shared.loopwatch import LoopWatch
from manager.access.callers import Callers
from manager.access.grants import Grants
from manager.access.listeners import Listener
from manager.access.roles import Role
from manager.api.http import HttpServer
from manager.config import RoleSettings, host_port
from manager.page.server import Page
from manager.state import FleetState
from tools.sim.fleet.known import KnownFleet, break_link, known_state, measure, send

EVERY_S = 1.0
"""How often a tenth of the hosts, each in its turn, is heard."""

TURNS = 10


@contextlib.asynccontextmanager
async def page_of(
    state: FleetState, listen: str | Listener, grants: Grants | None = None
) -> AsyncIterator[Page]:
    """The page of a state, without bus and history.

    Args:
        state: what is shown.
        listen: where; at HOST:PORT for everybody, without TLS.
        grants: who may look besides.
    """
    if isinstance(listen, str):
        listen = Listener(*host_port(listen, "--listen"), others=Role.VIEWER)
    callers = Callers(RoleSettings(), grants or Grants(None))
    claim = SimpleNamespace(name="simulated")
    sources: Any = SimpleNamespace(
        state=state,
        lease=SimpleNamespace(claim=claim, holder=claim, leads=True),
        bus=SimpleNamespace(connected=True),
        history=None,
        audits=None,
    )
    http = HttpServer(sources, callers, [], socket=Path(os.devnull), listen=None)
    page = Page(listen, callers, http.reading_routes(), http.overview.tick)
    await page.start()
    try:
        yield page
    finally:
        await page.stop()


async def serve(fleet: KnownFleet, listen: str, seconds: float) -> None:
    """Serve a fleet whose hosts go on being heard, with a silent link and a lossy one; tell what it cost as JSON at the end.

    Args:
        fleet: how large it is.
        listen: HOST:PORT.
        seconds: how long; for ever where it is infinite.
    """
    state, watch = known_state(fleet), LoopWatch()
    break_link(state, "l1", "s1")
    last = fleet.pods - 1
    ends = fleet.switch("l", last, fleet.leaves - 1), fleet.switch("s", last, fleet.spines - 1)
    break_link(state, *ends, "lossy", 0.02)
    async with page_of(state, listen) as page:
        print(json.dumps({"url": page.url, "nics": fleet.hosts}), flush=True)
        heard = asyncio.create_task(_hear(state, fleet))
        watched = asyncio.create_task(watch.run())
        began = time.monotonic(), _cpu_s()
        try:
            await asyncio.wait([heard, watched], timeout=None if np.isinf(seconds) else seconds)
        finally:
            heard.cancel()
            watched.cancel()
            took_s, cpu_s = time.monotonic() - began[0], _cpu_s() - began[1]
            cost = {"seconds": took_s, "core_share": cpu_s / took_s, "loop_lag_s": watch.worst_s}
            print(json.dumps(cost), flush=True)


async def _hear(state: FleetState, fleet: KnownFleet) -> None:
    rng = np.random.default_rng(fleet.seed + 1)
    for turn in range(1 << 62):
        now_s = time.monotonic()
        mine = range(turn % TURNS, fleet.hosts, TURNS)
        measure(state, fleet, rng, now_s, mine)
        send(state, fleet, rng, now_s, mine)
        for host in state.members.hosts.values():
            host.last_seen_s = now_s
        await asyncio.sleep(EVERY_S)


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime
