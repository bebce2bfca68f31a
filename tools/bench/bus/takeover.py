"""How soon a fleet has a leader again, on three real bus servers with two real managers: each is killed again and again."""

import asyncio
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import aiohttp
import numpy as np

from cwdp.cli.output import progress
from cwdp.shared.bus.buckets import stream_of
from cwdp.shared.bus.messages import DESIRED_BUCKET
from manager.bus.state import BUCKET as WISHES
from manager.identity.authority import Authority
from tools.bench.figures import Figure, figure
from tools.bus_cluster import BusCluster
from tools.sim.fleet.speaking import SpeakingHosts

MANAGERS = ("a", "b")
HOSTS = 16
MANAGER_KILLS, SERVER_KILLS, KILLS_OF_BOTH = 100, 50, 50
MANAGER_TARGET_S, SERVER_TARGET_S = 5.0, 10.0
STREAMS = stream_of(DESIRED_BUCKET), stream_of(WISHES)
AWAY_S, BACK_S = 6.0, 8.0
"""So long a server is away, and is watched once it is back: its Raft timeouts are 4 to 9 s."""

GLANCE_S = 0.02
LONGEST_S = 60.0
CHECKOUT = Path(__file__).resolve().parents[3]


class Managers:
    """Two managers, each a process of its own, as a context."""

    def __init__(self, directory: Path, servers: BusCluster) -> None:
        self._directory, self._bus, self._authority = directory, servers.url, servers.authority
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    async def __aenter__(self) -> Self:
        for name in MANAGERS:
            self.start(name)
        return self

    async def __aexit__(self, *_: object) -> None:
        for name in list(self._running):
            self.kill(name)

    def start(self, name: str) -> None:
        """Start one that does not run."""
        path = self._directory / name
        self._authority.save(path / "authority")
        (path / "manager.toml").write_text(f'name = "{name}"\n')
        argv = [sys.executable, "-m", "cwdp", "manager", "run", "--config", str(path / "manager.toml")]
        argv += [
            "--nats",
            self._bus,
            "--socket",
            str(path / "socket"),
            "--state-dir",
            str(path),
            "--page",
            "",
        ]
        with (path / "log").open("ab") as log:
            self._running[name] = subprocess.Popen(argv, stderr=log, cwd=CHECKOUT)

    def kill(self, name: str) -> None:
        """End one at once, by SIGKILL."""
        process = self._running.pop(name)
        process.send_signal(signal.SIGKILL)
        process.wait()

    async def leader(self) -> tuple[str, int] | None:
        """Which one says that it leads, and its epoch."""
        for name in self._running:
            said = await self._ask(name)
            if said and said["leads"]:
                return name, int(said["epoch"])
        return None

    async def until_led(self, after: int = 0, waiting: int = 1) -> tuple[str, int]:
        """Wait until one leads with a higher epoch than this, and so many others answer."""
        async with asyncio.timeout(LONGEST_S):
            while True:
                led = await self.leader()
                if led is not None and led[1] > after and await self._answering() > waiting:
                    return led
                await asyncio.sleep(GLANCE_S)

    async def _answering(self) -> int:
        said = [await self._ask(name) for name in self._running]
        return sum(each is not None and each["leader"] is not None for each in said)

    async def _ask(self, name: str) -> dict[str, Any] | None:
        connector = aiohttp.UnixConnector(path=str(self._directory / name / "socket"))
        try:
            async with (
                aiohttp.ClientSession(connector=connector) as session,
                session.get("http://manager/v1/manager", timeout=aiohttp.ClientTimeout(1)) as answer,
            ):
                found: dict[str, Any] = await answer.json()
                return found
        except (aiohttp.ClientError, TimeoutError, OSError):
            return None


def figures() -> Iterator[Figure]:
    """Three quarters of an hour."""
    took = asyncio.run(measure(MANAGER_KILLS, SERVER_KILLS, KILLS_OF_BOTH))
    yield _figure("takeover.manager_killed", took.of_managers, MANAGER_TARGET_S)
    yield _figure("takeover.buckets_server_killed", took.of_servers, SERVER_TARGET_S)
    yield _figure("takeover.both_killed", took.of_both, SERVER_TARGET_S)


def _figure(name: str, took_s: list[float], target_s: float) -> Figure:
    reference = {
        "kills": len(took_s),
        "median_s": round(float(np.median(took_s)), 2),
        "in_time": sum(each <= target_s for each in took_s),
    }
    return figure(name, max(took_s), "s", reference, target_s, digits=2)


@dataclass(frozen=True)
class Took:
    """For how long nobody led, in s.

    Attributes:
        of_managers: after each kill of the leading manager.
        of_servers: at the longest, whenever a server failed and came back.
        of_both: after each kill of the leading manager and of the server that leads the copies of what it has to know.
    """

    of_managers: list[float]
    of_servers: list[float]
    of_both: list[float]


async def measure(manager_kills: int, server_kills: int, kills_of_both: int, seed: int = 1) -> Took:
    """Do all that."""
    draw = random.Random(seed)
    with tempfile.TemporaryDirectory() as path:
        directory = Path(path)
        async with (
            BusCluster(directory, Authority.new()) as servers,
            Managers(directory, servers) as managers,
            SpeakingHosts(servers.url, servers.authority, HOSTS),
        ):
            await managers.until_led()
            await servers.until_whole(*STREAMS)
            return Took(
                [await _kill_manager(managers, draw, each, manager_kills) for each in range(manager_kills)],
                [
                    await _fail_server(managers, servers, draw, each, server_kills)
                    for each in range(server_kills)
                ],
                [await _kill_both(managers, servers, each, kills_of_both) for each in range(kills_of_both)],
            )


async def _kill_manager(managers: Managers, draw: random.Random, number: int, of: int) -> float:
    name, epoch = await managers.until_led()
    await asyncio.sleep(draw.uniform(0.5, 1.5))
    managers.kill(name)
    killed_s = time.monotonic()
    await managers.until_led(epoch, waiting=0)
    took_s = time.monotonic() - killed_s
    managers.start(name)
    progress(f"{number + 1} of {of}: the leading manager was killed: {took_s:.2f} s")
    return took_s


async def _fail_server(
    managers: Managers, servers: BusCluster, draw: random.Random, number: int, of: int
) -> float:
    """Kill or stop any one, and let it come back."""
    await servers.until_whole(*STREAMS)
    await managers.until_led()
    name, stops = draw.choice(servers.names), draw.random() < 0.5
    (servers.suspend if stops else servers.kill)(name)
    away_s = await _longest_unled(managers, AWAY_S)
    (servers.resume if stops else servers.start)(name)
    back_s = await _longest_unled(managers, BACK_S)
    progress(
        f"{number + 1} of {of}: {name} was {'stopped' if stops else 'killed'}: {away_s:.2f} s; "
        f"once it was back: {back_s:.2f} s"
    )
    return max(away_s, back_s)


async def _kill_both(managers: Managers, servers: BusCluster, number: int, of: int) -> float:
    """Kill the leading manager and the server that leads the copies of what operators want, and start them again."""
    await servers.until_whole(*STREAMS)
    name, epoch = await managers.until_led()
    server = await servers.leader(stream_of(WISHES))
    assert server is not None
    managers.kill(name)
    servers.kill(server)
    killed_s = time.monotonic()
    await managers.until_led(epoch, waiting=0)
    took_s = time.monotonic() - killed_s
    managers.start(name)
    servers.start(server)
    progress(f"{number + 1} of {of}: the leading manager and {server} were killed: {took_s:.2f} s")
    return took_s


async def _longest_unled(managers: Managers, for_s: float) -> float:
    """How long no manager says that it leads, at the longest; until one does."""
    longest_s, began_s = 0.0, time.monotonic()
    led_s = began_s
    while led_s - began_s < for_s and time.monotonic() - began_s < LONGEST_S:
        if await managers.leader() is not None:
            longest_s, led_s = max(longest_s, time.monotonic() - led_s), time.monotonic()
        await asyncio.sleep(GLANCE_S)
    return max(longest_s, time.monotonic() - led_s)
