"""One run: managers settle with a swarm, links break, hosts leave and come back, and it is watched what that takes."""

import asyncio
import contextlib
import random
import subprocess
import tempfile
import time
from collections import Counter
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

from cwdp.cli.output import progress
from manager.bus.nats_server import NatsServer
from manager.identity.authority import Authority
from tools.bench.swarm.between_pods import BetweenPods
from tools.bench.swarm.manager import PodManager
from tools.bench.swarm.runs import Fault, PodRun, Run, misnamed
from tools.processes import processor_s, resident_bytes
from tools.swarm.fabric import Cable, Size, SwarmFabric
from tools.swarm.slow_motion import slow_motion
from tools.swarm.swarm import Swarm, pod_names

BUS_PORT = 4471
SETTLES_S, MEASURED_S, FAULT_S, BETWEEN_S = 75.0, 90.0, 5.0, 4.0
CALM_S, RESTLESS_S = 15.0, 120.0
"""A fleet is at rest once no host was told for so long to trace other paths; so long that is waited for."""

GLANCE_S = 0.5
WRITTEN_S = 5.0
"""After which managers have written what happened into their history."""

LATEST_S = 180.0
TURNS, SLOWER_A_POD = 20_000_000, 3.0
"""Time is slowed for each pod by so many times as many seconds as the machine takes for so many turns of a loop (0.5 to 1.1 s): there are
two processors, of which the pods' managers take half to three quarters then. No slower than that, as a manager takes in together what
comes together."""

TO_CORE_EVERY = 2
"""Of several pods every second fault is between a spine and a core."""


async def measure(size: Size, seed: int = 1) -> Run:
    """Measure one size; of several pods in slow motion.

    A manager that has no other pods is killed in the end, and started again.
    """
    slowed = _slowed(size.pods)
    since_s = time.time()
    with tempfile.TemporaryDirectory() as directory, slow_motion(slowed, since_s):
        path, authority = Path(directory), Authority.new()
        server = NatsServer("127.0.0.1", BUS_PORT, path / "nats", authority)
        await server.start()
        try:
            managers = [
                PodManager(pod, path / pod, server.url, authority, (slowed, since_s))
                for pod in pod_names(size.pods)
            ]
            between_pods = BetweenPods(server.url, authority)
            async with (
                contextlib.AsyncExitStack() as stack,
                between_pods.counting(),
                Swarm(server.url, authority, size, seed) as swarm,
            ):
                processes = [stack.enter_context(manager.running()) for manager in managers]
                run = await _Watched(swarm, managers, server, between_pods).run(random.Random(seed), slowed)
                if size.pods == 1:
                    run.first_plan_s = await _first_plan_s(managers[0], processes[0])
                return run
        finally:
            await server.stop()


def _slowed(pods: int) -> int:
    """How many times slower than it is time is to pass on this machine."""
    if pods == 1:
        return 1
    began_s, turns = time.thread_time(), 0
    while turns < TURNS:
        turns += 1
    return max(pods, round(SLOWER_A_POD * pods * (time.thread_time() - began_s)))


async def _first_plan_s(manager: PodManager, process: "subprocess.Popen[bytes]") -> float:
    """How long a manager that is killed and started takes to plan, from when it heard the first host."""
    progress("a manager starts again")
    process.kill()
    process.wait()
    with manager.running():
        async with asyncio.timeout(LATEST_S):
            await manager.until(lambda said: said["hosts_up"] > 0)
            heard_s = time.monotonic()
            await manager.until(lambda said: said["planner"]["queue_pairs"] > 0)
        return time.monotonic() - heard_s


class _Watched:
    """A swarm and the processes that serve it."""

    def __init__(
        self, swarm: Swarm, managers: list[PodManager], server: NatsServer, between_pods: BetweenPods
    ) -> None:
        self._swarm, self._managers, self._server = swarm, managers, server
        self._between_pods = between_pods
        self._faults: list[Fault] = []
        self._began_s = time.time()

    async def run(self, draw: random.Random, slowed: float) -> Run:
        """Measure."""
        swarm = self._swarm
        await self._settled()
        used, said, told = self._used(), swarm.said, Counter(self._between_pods.heard)
        metrics = [await manager.metrics() for manager in self._managers]
        swarm.late_s, unsent, began_s = 0.0, swarm.unsent, time.monotonic()
        for turn in count():
            if time.monotonic() >= began_s + MEASURED_S:
                break
            await self._trouble(draw, turn)
        took_s = time.monotonic() - began_s
        cores = (self._used() - used) / took_s
        said = (swarm.said - said) / took_s
        told = self._between_pods.heard - told
        after = [await manager.metrics() for manager in self._managers]
        memory_bytes = [resident_bytes(manager.pid) for manager in self._managers]
        await asyncio.sleep(WRITTEN_S)
        assert self._server.pid is not None
        return Run(
            nics=swarm.fabric.size.nics,
            slowed=slowed,
            pods=[
                PodRun(
                    pod=self._managers[pod].pod,
                    cores=cores[pod],
                    memory_bytes=memory_bytes[pod],
                    duties=_duties(metrics[pod], after[pod], took_s),
                    messages_up_per_s=said[pod, 0],
                    bytes_up_per_s=said[pod, 1],
                    messages_down_per_s=said[pod, 2],
                    bytes_down_per_s=said[pod, 3],
                    loop_lag_s=after[pod]["lag"],
                    backlog_s=after[pod]["wait"],
                    lost_on_the_way=round(after[pod]["lost"] - metrics[pod]["lost"]),
                    moves=sum(host.moves for host in swarm.pod_hosts(pod)),
                    **await self._events(pod),
                )
                for pod in range(len(self._managers))
            ],
            swarm_cores=cores[-2],
            bus_cores=cores[-1],
            bus_bytes=resident_bytes(self._server.pid),
            swarm_late_s=swarm.late_s,
            unsent=swarm.unsent - unsent,
            faults=self._faults,
            root=await self._managers[0].root(),
            between_pods={subject: size / took_s for subject, size in told.items()},
            counting_lost=self._between_pods.lost,
            probes_between_pods=sum(host.probes_between_pods for host in swarm.hosts),
        )

    async def _settled(self) -> None:
        """Wait until the managers know the fleet, for as long again as their first minute takes, and until they know its paths."""
        progress(f"swarm of {self._swarm.fabric.size.nics} NICs: settling")
        async with asyncio.timeout(LATEST_S):
            while True:
                if all(host.told for host in self._swarm.hosts):
                    break
                await asyncio.sleep(GLANCE_S)
        await asyncio.sleep(SETTLES_S)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(RESTLESS_S):
                while True:
                    if max(host.ordered_s for host in self._swarm.hosts) < time.monotonic() - CALM_S:
                        break
                    await asyncio.sleep(GLANCE_S)
        progress("measuring")

    async def _trouble(self, draw: random.Random, turn: int) -> None:
        """Break links for a while, with a host of each pod away."""
        fabric, pods = self._swarm.fabric, self._swarm.fabric.size.pods
        away = [draw.choice(self._swarm.pod_hosts(pod)) for pod in range(pods)]
        for host in away:
            host.is_away = True
        to_core = pods > 1 and turn % TO_CORE_EVERY == TO_CORE_EVERY - 1
        if to_core:
            pod = draw.randrange(pods)
            broken = {pod: _core_cable(fabric, pod, draw)}
        else:
            broken = {pod: _leaf_cable(fabric, pod, draw) for pod in range(pods)}
        for pod, cable in broken.items():
            fabric.loss[cable.links] = draw.choice([1.0, 1.0, 0.6])
            self._faults.append(Fault(cable.name, pod, to_core, time.time(), FAULT_S))
        await asyncio.sleep(FAULT_S)
        for cable in broken.values():
            fabric.loss[cable.links] = 0.0
        await asyncio.sleep(BETWEEN_S)
        for host in away:
            host.come_back()

    async def _events(self, pod: int) -> dict[str, Any]:
        """What a manager says that happened, as `PodRun` has it."""
        manager = self._managers[pod]
        events = await manager.events(self._began_s, "host=fabric")
        leads = await manager.events(self._began_s, "kind=manager_leads")
        for fault in self._faults:
            fault.read(pod, events or [])
        return {
            "misnamed": misnamed(self._faults, events or []),
            "times_led": None if leads is None else len(leads),
        }

    def _used(self) -> np.ndarray:
        """Processor time of each manager, of this process, which is the swarm, and of the bus server, in seconds."""
        assert self._server.pid is not None
        managers = [processor_s(manager.pid) for manager in self._managers]
        return np.array([*managers, time.process_time(), processor_s(self._server.pid)])


def _leaf_cable(fabric: SwarmFabric, pod: int, draw: random.Random) -> Cable:
    """Any between a leaf and a spine of a pod."""
    leaf, spine = draw.randrange(fabric.size.pod_leaves), draw.randrange(fabric.size.spines)
    return fabric.leaf_cable(pod * fabric.size.pod_leaves + leaf, pod * fabric.size.spines + spine)


def _core_cable(fabric: SwarmFabric, pod: int, draw: random.Random) -> Cable:
    """Any between a spine of a pod and a core."""
    spine, core = draw.randrange(fabric.size.spines), draw.randrange(fabric.size.cores)
    return fabric.core_cable(pod * fabric.size.spines + spine, core)


def _duties(before: dict[str, float], after: dict[str, float], took_s: float) -> dict[str, float]:
    """Cores by duty, the most first."""
    cores = {
        duty: (seconds - before.get(name, 0.0)) / took_s
        for name, seconds in after.items()
        if (duty := name.removeprefix("duty ")) != name
    }
    return dict(sorted(cores.items(), key=lambda each: -each[1]))
