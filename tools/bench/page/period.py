"""Whether viewers disturb the clocks: when clock updates come from a real manager, watched and not, in turns."""

import asyncio
import contextlib
import multiprocessing
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import aiohttp
import numpy as np

from cwdp.shared.bus.messages import ClockUpdate
from manager.bus.nats_server import NatsServer
from manager.identity.authority import Authority
from tools.bench.figures import Figure, figure
from tools.bench.page.costs import CHECKOUT, VIEWERS, view
from tools.sim.fleet.speaking import SpeakingHosts

BUS_PORT, PAGE = 4468, "127.0.0.1:9469"
HOSTS = 64
TURNS, TURN_S, SETTLES_S = 3, 20.0, 5.0
STARTS_S = 60.0
MOST_LONGER = 1.1


class _Arrivals:
    """When updates of each solve first came, in seconds."""

    def __init__(self) -> None:
        self.begin = asyncio.Event()
        self.times: list[float] = []
        self._seq = (-1, -1)

    def take(self, update: ClockUpdate) -> None:
        """One has come, to some host."""
        if (update.epoch, update.seq) > self._seq:
            self._seq = update.epoch, update.seq
            self.times.append(time.monotonic())
            self.begin.set()

    async def periods(self, seconds: float) -> list[float]:
        """Between the updates that come in so long."""
        first = len(self.times)
        await asyncio.sleep(seconds)
        return list(np.diff(self.times[first:]))


def figures() -> Iterator[Figure]:
    """Three minutes."""
    periods = asyncio.run(_measure())
    found = {
        viewers: {
            "solves": len(each),
            "median_ms": round(float(np.median(each)) * 1e3, 2),
            "p99_ms": round(float(np.percentile(each, 99)) * 1e3, 2),
        }
        for viewers, each in periods.items()
    }
    alone, watched = (found[viewers]["median_ms"] for viewers in (0, VIEWERS))
    reference = {"hosts": HOSTS, "without_viewers": found[0], "with_viewers": found[VIEWERS]}
    yield figure("page.solve_period_median", watched / alone, "of that without", reference, MOST_LONGER)


async def _measure() -> dict[int, list[float]]:
    """The times between two solves, in seconds, by how many look on."""
    arrivals = _Arrivals()
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory)
        authority = Authority.new()
        authority.save(path / "state" / "authority")
        async with (
            _bus(path, authority) as bus,
            SpeakingHosts(bus, authority, HOSTS, on_clock=arrivals.take),
        ):
            with _manager(path, bus):
                return await _in_turns(arrivals)


async def _in_turns(arrivals: _Arrivals) -> dict[int, list[float]]:
    periods: dict[int, list[float]] = {0: [], VIEWERS: []}
    async with asyncio.timeout(STARTS_S):
        await arrivals.begin.wait()
    for _ in range(TURNS):
        for viewers in periods:
            with _watched_by(viewers):
                await asyncio.sleep(SETTLES_S)
                periods[viewers] += await arrivals.periods(TURN_S)
    return periods


@contextlib.asynccontextmanager
async def _bus(directory: Path, authority: Authority) -> AsyncIterator[str]:
    """A bus; its URL."""
    server = NatsServer("127.0.0.1", BUS_PORT, directory / "nats", authority)
    await server.start()
    try:
        yield server.url
    finally:
        await server.stop()


@contextlib.contextmanager
def _manager(directory: Path, bus: str) -> Iterator[None]:
    """A manager in a process of its own."""
    own = ["--nats", bus, "--socket", str(directory / "socket"), "--state-dir", str(directory / "state")]
    argv = [sys.executable, "-m", "cwdp", "manager", "run", *own, "--page", PAGE]
    with (directory / "log").open("wb") as log, subprocess.Popen(argv, stderr=log, cwd=CHECKOUT) as process:
        try:
            yield
        finally:
            process.terminate()


@contextlib.contextmanager
def _watched_by(viewers: int) -> Iterator[None]:
    """So many viewers, in a process of their own."""
    process = multiprocessing.get_context("spawn").Process(target=_view, args=(viewers,), daemon=True)
    process.start()
    try:
        yield
    finally:
        process.terminate()
        process.join()


def _view(viewers: int) -> None:
    asyncio.run(_view_all(viewers))


async def _view_all(viewers: int) -> None:
    async with aiohttp.ClientSession(f"http://{PAGE}/", connector=aiohttp.TCPConnector(limit=0)) as session:
        await asyncio.gather(*(view(session) for _ in range(viewers)))
