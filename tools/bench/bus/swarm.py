"""What a manager of many NICs needs: a real one on a real bus, with a swarm that says what so many agents would."""

import asyncio
import contextlib
import json
import random
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import numpy as np
from prometheus_client.parser import text_string_to_metric_families

from cwdp.cli.output import progress
from manager.bus.nats_server import NatsServer
from manager.identity.authority import Authority
from tools.bench.bus import security
from tools.bench.figures import Figure, figure
from tools.processes import processor_s, resident_bytes
from tools.swarm.fabric import Size
from tools.swarm.swarm import Swarm

BUS_PORT = 4471
CHECKOUT = Path(__file__).resolve().parents[3]
SIZES = (256, 2_048)
MOST_CORES, MOST_MEMORY_BYTES, MOST_NAMED_S, MOST_GROWTH = 1.2, 1.5 * 2**30, 2.0, 1.15
MOST_SECURITY, MOST_FIRST_PLAN_S = 0.1, 3.0
SETTLES_S, MEASURED_S, FAULT_S, BETWEEN_S = 75.0, 90.0, 5.0, 4.0
AWAY_S = 8.0
GLANCE_S, SHORT_GLANCE_S = 0.5, 0.05
LATEST_S = 180.0


@dataclass
class Fault:
    """A link that lost packets for a while, both ways; `named_s` is how long that took, None for never."""

    cable: str
    began_s: float
    named_s: float | None = None


@dataclass
class Run:
    """One size's measurement: processor time in cores, memory in bytes, rates in bytes per second.

    Attributes:
        messages_per_s: those of the hosts, and the manager's.
        first_plan_s: from when a manager that was killed and started again heard the first host to its first plan.
    """

    nics: int
    cores: dict[str, float] = field(default_factory=dict)
    memory_bytes: dict[str, int] = field(default_factory=dict)
    duties: dict[str, float] = field(default_factory=dict)
    up_bytes_per_s: float = 0.0
    down_bytes_per_s: float = 0.0
    messages_per_s: tuple[float, float] = (0.0, 0.0)
    loop_lag_s: float = 0.0
    swarm_late_s: float = 0.0
    unsent: int = 0
    lost_on_the_way: int = 0
    leaders: int = 0
    moves: int = 0
    faults: list[Fault] = field(default_factory=list)
    misnamed: list[str] = field(default_factory=list)
    first_plan_s: float = 0.0


def figures(nics: int | None = None) -> Iterator[Figure]:
    """Three minutes a size: of `nics`, or of both sizes that are compared."""
    runs = [asyncio.run(measure(Size(nics=size))) for size in ((nics,) if nics else SIZES)]
    for run in runs:
        yield from _figures(run)
    if len(runs) > 1:
        each = [run.cores["manager"] / run.nics for run in runs]
        yield figure(
            "swarm.growth_per_nic", each[-1] / each[0], f"of that with {SIZES[0]}", None, MOST_GROWTH
        )


def _figures(run: Run) -> Iterator[Figure]:
    name, digits = f"swarm.{run.nics}", 3
    cores = {process: round(share, 3) for process, share in run.cores.items()}
    reference: dict[str, Any] = {"cores": cores, "duties": run.duties, "moves": run.moves}
    yield figure(f"{name}.cores", run.cores["manager"], "cores", reference, MOST_CORES, digits=digits)
    memory = {process: size >> 20 for process, size in run.memory_bytes.items()}
    yield figure(
        f"{name}.memory",
        run.memory_bytes["manager"] / 2**20,
        "MiB",
        {"MiB": memory},
        MOST_MEMORY_BYTES / 2**20,
        digits=0,
    )
    backlog = {
        "loop_lag_s": round(run.loop_lag_s, 2),
        "swarm_late_s": round(run.swarm_late_s, 2),
        "unsent": run.unsent,
    }
    yield figure(f"{name}.reports_lost", run.lost_on_the_way, "reports", backlog, 0, digits=0)
    rates = {"down": round(run.down_bytes_per_s / run.nics)}
    yield figure(f"{name}.bytes_up_a_nic", run.up_bytes_per_s / run.nics, "B/s", rates, 10_000, digits=0)
    yield _security(name, run)
    yield figure(f"{name}.times_led", run.leaders, "times", None, 1, digits=0)
    yield figure(f"{name}.first_plan", run.first_plan_s, "s", None, MOST_FIRST_PLAN_S, digits=2)
    named_s = np.array([LATEST_S if fault.named_s is None else fault.named_s for fault in run.faults])
    told = {
        "faults": len(named_s),
        "median_s": round(float(np.median(named_s)), 2),
        "not_named": int(np.count_nonzero(named_s == LATEST_S)),
        "misnamed": run.misnamed,
    }
    yield figure(f"{name}.named_p99", np.percentile(named_s, 99), "s", told, MOST_NAMED_S, digits=2)


def _security(name: str, run: Run) -> Figure:
    up, down = run.messages_per_s
    rates = security.Rates(
        up, round(run.up_bytes_per_s / up), down, round(run.down_bytes_per_s / max(down, 1.0))
    )
    cores = asyncio.run(security.cores(rates))
    told = {
        "messages_per_s": [round(each) for each in run.messages_per_s],
        "cores": {what: round(share, 4) for what, share in cores.items()},
    }
    taken = cores["tls"] + cores["signatures"]
    return figure(f"{name}.security", taken / run.cores["manager"], "of the manager's", told, MOST_SECURITY)


async def measure(size: Size, seed: int = 1) -> Run:
    """Let a manager settle with a swarm, then break links, and have hosts leave and come back, while it is watched.

    Then kill it, and start it again.
    """
    with tempfile.TemporaryDirectory() as directory:
        path, authority = Path(directory), Authority.new()
        authority.save(path / "state" / "authority")
        server = NatsServer("127.0.0.1", BUS_PORT, path / "nats", authority)
        await server.start()
        try:
            with _manager(path, server.url) as process:
                assert server.pid is not None
                pids = {"manager": process.pid, "bus": server.pid}
                async with Swarm(server.url, authority, size, seed) as swarm:
                    watched = _Watched(swarm, path / "socket", pids)
                    run = await watched.run(random.Random(seed))
                    process.kill()
                    with _manager(path, server.url):
                        run.first_plan_s = await watched.first_plan_s()
                    return run
        finally:
            await server.stop()


@contextlib.contextmanager
def _manager(directory: Path, bus: str) -> Iterator[subprocess.Popen[bytes]]:
    argv = [sys.executable, "-m", "cwdp", "manager", "run", "--nats", bus, "--page", ""]
    argv += ["--socket", str(directory / "socket"), "--state-dir", str(directory / "state")]
    with (directory / "log").open("wb") as log, subprocess.Popen(argv, stderr=log, cwd=CHECKOUT) as process:
        try:
            yield process
        finally:
            process.terminate()


class _Watched:
    """A swarm and the processes that serve it."""

    def __init__(self, swarm: Swarm, socket: Path, pids: dict[str, int]) -> None:
        self._swarm, self._socket, self._pids = swarm, socket, pids

    async def run(self, draw: random.Random) -> Run:
        """Measure."""
        size, swarm = self._swarm.fabric.size, self._swarm
        run = Run(size.nics)
        await self._settled()
        before, metrics = self._used(), await self._metrics()
        swarm.late_s, unsent, began_s = 0.0, swarm.unsent, time.monotonic()
        bytes_before, messages_before = swarm.bytes_up_down, swarm.messages_up_down
        while time.monotonic() < began_s + MEASURED_S:
            await self._trouble(draw, run)
        took_s = time.monotonic() - began_s
        after, metrics_after = self._used(), await self._metrics()
        run.cores = {name: (after[name] - before[name]) / took_s for name in before}
        run.memory_bytes = {name: resident_bytes(pid) for name, pid in self._pids.items()}
        grown = {name: value - metrics.get(name, 0.0) for name, value in metrics_after.items()}
        run.duties = {
            duty: round(grown[name] / took_s, 3)
            for name in sorted(grown, key=grown.__getitem__, reverse=True)
            if (duty := name.removeprefix("duty ")) != name
        }
        up, down = (now - then for now, then in zip(swarm.bytes_up_down, bytes_before, strict=True))
        run.up_bytes_per_s, run.down_bytes_per_s = up / took_s, down / took_s
        said, heard = (now - then for now, then in zip(swarm.messages_up_down, messages_before, strict=True))
        run.messages_per_s = said / took_s, heard / took_s
        run.loop_lag_s, run.swarm_late_s = metrics_after["lag"], swarm.late_s
        run.unsent, run.lost_on_the_way = swarm.unsent - unsent, round(grown["lost"])
        run.moves = swarm.moves
        await self._read_events(run)
        return run

    async def first_plan_s(self) -> float:
        """How long a manager that has just been started takes to plan, from when it heard the first host."""
        progress("a manager starts again")
        async with asyncio.timeout(LATEST_S):
            await self._until(lambda said: said["hosts_up"] > 0)
            heard_s = time.monotonic()
            await self._until(lambda said: said["planner"]["queue_pairs"] > 0)
        return time.monotonic() - heard_s

    async def _until(self, condition: Callable[[dict[str, Any]], bool]) -> None:
        """What the manager says of itself."""
        while True:
            with contextlib.suppress(aiohttp.ClientError):  # not there yet
                if condition(json.loads(await self._get("/v1/manager"))):
                    return
            await asyncio.sleep(SHORT_GLANCE_S)

    async def _settled(self) -> None:
        """Wait until the manager knows the fleet, and for as long again as its first minute takes."""
        progress(f"swarm of {self._swarm.fabric.size.nics} NICs: settling")
        async with asyncio.timeout(LATEST_S):
            while True:
                if all(host.told for host in self._swarm.hosts):
                    break
                await asyncio.sleep(GLANCE_S)
        await asyncio.sleep(SETTLES_S)
        progress("measuring")

    async def _trouble(self, draw: random.Random, run: Run) -> None:
        """Break a link for a while, with a host away."""
        fabric, hosts = self._swarm.fabric, self._swarm.hosts
        leaf, spine = draw.randrange(fabric.size.leaves), draw.randrange(fabric.size.spines)
        away = draw.choice(hosts)
        away.is_away = True
        fabric.loss[fabric.both_ways(leaf, spine)] = draw.choice([1.0, 1.0, 0.6])
        run.faults.append(Fault(fabric.cable_name(leaf, spine), time.time()))
        await asyncio.sleep(FAULT_S)
        fabric.loss[fabric.both_ways(leaf, spine)] = 0.0
        await asyncio.sleep(BETWEEN_S)
        away.come_back()

    async def _read_events(self, run: Run) -> None:
        told = json.loads(await self._get("/v1/events"))["events"]
        run.leaders = sum(event["kind"] == "manager_leads" for event in told)
        events = [event for event in told if event["host"] == "fabric"]
        begun = [event for event in events if event["kind"] in ("link_silent", "link_lossy", "link_dead")]
        for fault in run.faults:
            when = [
                event["time_s"] - fault.began_s
                for event in begun
                if fault.cable in event["detail"]
                and fault.began_s <= event["time_s"] <= fault.began_s + FAULT_S
            ]
            fault.named_s = min(when, default=None)
        cables = {fault.cable for fault in run.faults}
        run.misnamed = sorted(
            event["detail"].partition(":")[0]
            for event in events
            if not event["kind"].endswith("_over") and not any(cable in event["detail"] for cable in cables)
        )

    def _used(self) -> dict[str, float]:
        """Processor time of each process, in seconds; the swarm is this one."""
        own = {"swarm": time.process_time()}
        return own | {name: processor_s(pid) for name, pid in self._pids.items()}

    async def _metrics(self) -> dict[str, float]:
        found: defaultdict[str, float] = defaultdict(float)
        for family in text_string_to_metric_families(await self._get("/metrics")):
            for sample in family.samples:
                if sample.name == "cwdp_manager_duty_seconds_total":
                    found[f"duty {sample.labels['duty']}"] += sample.value
                elif sample.name == "cwdp_manager_loop_lag_seconds":
                    found["lag"] = sample.value
                elif sample.labels.get("reason") == "lost_on_the_way":
                    found["lost"] += sample.value
        return dict(found)

    async def _get(self, what: str) -> str:
        connector = aiohttp.UnixConnector(path=str(self._socket))
        async with (
            aiohttp.ClientSession(connector=connector) as session,
            session.get(f"http://manager{what}") as answer,
        ):
            return await answer.text()
