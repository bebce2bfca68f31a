"""All hosts of a swarm, each saying what it has to say in its turn, at the intervals at which agents do."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Self, TypeVar

import numpy as np
from msgspec import Struct
from nkeys import KeyPair

from cwdp.agent.pace import COUNTERS_EVERY
from cwdp.shared.bus.connection import Bus
from cwdp.shared.bus.desired.changes import KIND as CHANGE
from cwdp.shared.bus.desired.changes import Change
from cwdp.shared.bus.messages import DEFAULT_REPORT_INTERVAL_S, ClockUpdate, Desired
from cwdp.shared.bus.subjects import down, host_token_of, up
from cwdp.shared.tasks import end
from manager.identity.authority import DEFAULT_POD, Authority
from tools.sim.fleet.speaking import HostsSeal
from tools.swarm.fabric import Size, SwarmFabric
from tools.swarm.hosts import SwarmHost, World
from tools.swarm.iterations import Iterations
from tools.swarm.timelines import Clocks, Timelines
from tools.swarm.traffic import Traffic

TICK_S = 0.025
LONGEST_LATE_S = 1.0
HELLO_S, STEERED_S, TRACED_S, FITS_S, FULL_S, BURSTS_S = 1.0, 2.0, 0.25, 0.5, 1.0, 1.0
TRACES_A_REPORT = 64

_T = TypeVar("_T", bound=Struct)


def pod_names(pods: int) -> list[str]:
    """What pods are called."""
    return [DEFAULT_POD, *(f"p{number}" for number in range(2, pods + 1))]


class _CountingSeal(HostsSeal):
    """Counts what is said and heard.

    Args:
        key: what leaders sign with.
        pod_of: the number of the pod of a host, by its name.
        pods: how many there are.

    Attributes:
        said: by pod the messages of hosts, their bytes, the messages to hosts, their bytes, shape (pods, 4).
    """

    def __init__(self, key: KeyPair, pod_of: Callable[[str], int], pods: int) -> None:
        super().__init__(key)
        self._pod_of = pod_of
        self.said = np.zeros((pods, 4))

    def encode(self, kind: str, message: Struct) -> bytes:
        """Bytes of a message."""
        data = super().encode(kind, message)
        self._count(str(getattr(message, "host", "")), np.array([1, len(data), 0, 0]))
        return data

    def decode(self, subject: str, of: type[_T], data: bytes) -> _T:
        """A leader's message."""
        self._count(host_token_of(subject), np.array([0, 0, 1, len(data)]))
        return super().decode(subject, of, data)

    def _count(self, host: str, counts: np.ndarray) -> None:
        self.said[self._pod_of(host)] += counts


class Swarm:
    """As a context. By two connections, one to speak and one to hear, it does what many agents do by one each.

    Args:
        bus: URLs of its servers.
        authority: the fleet's; by one connection for all hosts they speak as a manager would.
        size: how large it is.
        seed: of clocks, ports and probes.

    Attributes:
        fabric: what its links do; to be changed.
        hosts: all of them.
        pods: the pods' names, by number.
        sent: messages by kind.
        late_s: by how much it has come late at worst, as the machine was busy with other things; to be reset.
    """

    def __init__(self, bus: str, authority: Authority, size: Size, seed: int = 1) -> None:
        self.fabric = SwarmFabric(size)
        self._traffic = Traffic(self.fabric, seed)
        clocks = Clocks(size.hosts, seed)
        timelines, iterations = Timelines(clocks, size.pods), Iterations(size.hosts, seed)
        world = World(self.fabric, self._traffic, clocks, timelines, iterations, seed)
        self.hosts = [SwarmHost(i, world) for i in range(size.hosts)]
        self.sent: Counter[str] = Counter()
        self.late_s = 0.0
        self.pods = pod_names(size.pods)
        self._seal = _CountingSeal(authority.control_key, lambda name: self._host(name).pod, size.pods)
        self._speaks, self._hears = (
            Bus(
                bus,
                authority.manager_credential(name),
                self._seal,
                pod=DEFAULT_POD,
                name=name,
            )
            for name in ("swarm", "swarm's ears")
        )
        self._hears.subscribe(down("*", "*", "clock"), ClockUpdate, self._take_clock)
        self._hears.subscribe(down("*", "*", "document"), Desired, self._take_document)
        self._hears.subscribe(down("*", "*", CHANGE), Change, self._take_change)
        self._speaking: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._speaks.start()
        self._hears.start()
        self._speaking = asyncio.create_task(self._speak())
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._speaking is not None
        await end(self._speaking)
        await self._speaks.close()
        await self._hears.close()

    @property
    def unsent(self) -> int:
        """Messages that were dropped, as the bus did not take them fast enough or was not there."""
        return sum(count for name, count in self._speaks.counters.items() if name.startswith("dropped"))

    @property
    def said(self) -> np.ndarray:
        """By pod the messages that hosts said, their bytes, the messages to them, their bytes, shape (pods, 4)."""
        return self._seal.said.copy()

    def pod_hosts(self, pod: int) -> list[SwarmHost]:
        """Those of a pod."""
        return [host for host in self.hosts if host.pod == pod]

    @property
    def interval_s(self) -> float:
        """At which agents are to report."""
        told = next((host.told for host in self.hosts if host.told), None)
        return DEFAULT_REPORT_INTERVAL_S if told is None else told.report_interval_s

    def _take_clock(self, update: ClockUpdate) -> None:
        host = self._host(update.host)
        if host.take_clock(update) and not host.is_away:
            self._say(host, "steer", host.steered())

    def _take_document(self, told: Desired) -> None:
        host = self._host(told.host)
        if host.take_document(told) and not host.is_away:
            self._say(host, "steer", host.steered())

    def _take_change(self, change: Change) -> None:
        self._host(change.host).take_change(change)

    def _host(self, name: str) -> SwarmHost:
        return self.hosts[int(name[1:])]

    async def _speak(self) -> None:
        tick, due_s = 0, time.monotonic()
        while True:
            for interval_s, say in self._turns():
                slots = round(interval_s / TICK_S)
                turn, slot = divmod(tick, slots)
                for host in self.hosts[slot::slots]:
                    if not host.is_away:
                        say(host, turn)
            self._traffic.count(time.monotonic())
            tick, due_s = tick + 1, due_s + TICK_S
            late_s = time.monotonic() - due_s
            self.late_s = max(self.late_s, late_s)
            if late_s > LONGEST_LATE_S:
                due_s += late_s
            await asyncio.sleep(max(0.0, -late_s))

    def _turns(self) -> Iterable[tuple[float, Callable[[SwarmHost, int], None]]]:
        """What each host does how often, told which time it is."""
        yield (
            self.interval_s / 2,
            lambda host, _: self._say(host, "window", *host.windows(time.monotonic_ns())),
        )
        yield self.interval_s, self._report
        yield HELLO_S, lambda host, _: self._say(host, "hello", host.hello())
        yield STEERED_S, lambda host, _: self._say(host, "steer", host.steered())
        yield TRACED_S, self._trace
        yield BURSTS_S, self._tell_bursts

    def _report(self, host: SwarmHost, turn: int) -> None:
        now_ns = time.monotonic_ns()
        fits_every, full_every = (max(1, round(each / self.interval_s)) for each in (FITS_S, FULL_S))
        report = host.report(
            now_ns,
            with_fits=turn % fits_every == 0,
            in_full=turn % full_every == 0,
            with_counters=turn % COUNTERS_EVERY == 0,
        )
        self._say(host, "report", report)
        self._say(host, "qp", host.queue_pairs(now_ns))

    def _tell_bursts(self, host: SwarmHost, _: int) -> None:
        report = host.bursts(time.monotonic_ns())
        if report is not None:
            self._say(host, "burst", report)

    def _trace(self, host: SwarmHost, _: int) -> None:
        report = host.traces(TRACES_A_REPORT)
        if report is not None:
            self._say(host, "trace", report)

    def _say(self, host: SwarmHost, kind: str, *messages: Struct) -> None:
        for message in messages:
            self._speaks.publish(up(self.pods[host.pod], host.name, kind), message)
            self.sent[kind] += 1
