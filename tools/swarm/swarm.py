"""All hosts of a swarm, each saying what it has to say in its turn, at the intervals at which agents do."""

import asyncio
import functools
import time
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Self, TypeVar

import numpy as np
from msgspec import Struct
from nkeys import KeyPair

from cwdp.agent.pace import COUNTERS_EVERY
from cwdp.shared.bursts import BurstReport
from cwdp.shared.bus.connection import Bus
from cwdp.shared.bus.desired.changes import KIND as CHANGE
from cwdp.shared.bus.desired.changes import Change
from cwdp.shared.bus.messages import DEFAULT_REPORT_INTERVAL_S, ClockUpdate, Desired, TraceReport
from cwdp.shared.bus.subjects import down, host_token_of, up
from cwdp.shared.tasks import end
from manager.identity.authority import DEFAULT_POD, Authority
from tools.sim.fleet.speaking import HostsSeal
from tools.swarm import turns
from tools.swarm.fabric import Size, SwarmFabric
from tools.swarm.hosts import SwarmHost, World
from tools.swarm.iterations import Iterations
from tools.swarm.timelines import Clocks, Timelines
from tools.swarm.traffic import Traffic

TICK_S = 0.025
LONGEST_LATE_S = 1.0
HELLO_S, STEERED_S, TRACED_S, FITS_S, FULL_S, BURSTS_S = 1.0, 1.0, 0.25, 0.5, 1.0, 1.0
TRACES_A_REPORT = 64

_T = TypeVar("_T", bound=Struct)


_up = functools.cache(up)


def pod_names(pods: int) -> list[str]:
    """What pods are called."""
    return [DEFAULT_POD, *(f"p{number}" for number in range(2, pods + 1))]


class _CountingSeal(HostsSeal):
    """Counts what is said and heard.

    Args:
        key: what leaders sign with.
        pod_of: the number of the pod of a host, by its name.
        pods: how many there are.
    """

    def __init__(self, key: KeyPair, pod_of: Callable[[str], int], pods: int) -> None:
        super().__init__(key)
        self._pod_of = pod_of
        self._counts = [[0] * 4 for _ in range(pods)]
        self._hellos: dict[str, tuple[Struct, bytes]] = {}

    @property
    def said(self) -> np.ndarray:
        """By pod the messages of hosts, their bytes, the messages to hosts, their bytes, shape (pods, 4)."""
        return np.array(self._counts, float)

    def encode(self, kind: str, message: Struct) -> bytes:
        """Bytes of a message."""
        host = str(getattr(message, "host", ""))
        data = self._same(host, message) if kind == "hello" else super().encode(kind, message)
        self._count(host, 0, len(data))
        return data

    def decode(self, subject: str, of: type[_T], data: bytes) -> _T:
        """A leader's message."""
        self._count(host_token_of(subject), 2, len(data))
        return super().decode(subject, of, data)

    def _same(self, host: str, message: Struct) -> bytes:
        """Bytes of a hello, made once of the same object: most are as the one before."""
        known, data = self._hellos.get(host, (None, b""))
        if known is not message:
            data = super().encode("hello", message)
            self._hellos[host] = message, data
        return data

    def _count(self, host: str, first: int, size: int) -> None:
        counts = self._counts[self._pod_of(host)]
        counts[first] += 1
        counts[first + 1] += size


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
        return self._seal.said

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
                say([host for host in self.hosts[slot::slots] if not host.is_away], turn)
            self._traffic.count(time.monotonic())
            tick, due_s = tick + 1, due_s + TICK_S
            late_s = time.monotonic() - due_s
            self.late_s = max(self.late_s, late_s)
            if late_s > LONGEST_LATE_S:
                due_s += late_s
            await asyncio.sleep(max(0.0, -late_s))

    def _turns(self) -> Iterable[tuple[float, Callable[[list[SwarmHost], int], None]]]:
        """What hosts whose turn it is do how often, told which time it is."""
        interval_s = self.interval_s
        yield interval_s / 2, self._tell_windows
        yield interval_s, self._report
        yield HELLO_S, lambda hosts, _: self._say_each("hello", hosts, SwarmHost.hello)
        yield STEERED_S, lambda hosts, _: self._say_each("steer", hosts, SwarmHost.steered)
        yield TRACED_S, lambda hosts, _: self._say_each("trace", hosts, _traces)
        yield BURSTS_S, lambda hosts, _: self._say_each("burst", hosts, _bursts)

    def _tell_windows(self, hosts: list[SwarmHost], _: int) -> None:
        for host, report in turns.windows(hosts, time.monotonic_ns()):
            self._say(host, "window", report)

    def _report(self, hosts: list[SwarmHost], turn: int) -> None:
        now_ns = time.monotonic_ns()
        fits_every, full_every = (max(1, round(each / self.interval_s)) for each in (FITS_S, FULL_S))
        reports = turns.reports(
            hosts,
            now_ns,
            with_fits=turn % fits_every == 0,
            in_full=turn % full_every == 0,
            with_counters=turn % COUNTERS_EVERY == 0,
        )
        for host, report in reports:
            self._say(host, "report", report)
            self._say(host, "qp", host.queue_pairs(now_ns))

    def _say_each(
        self, kind: str, hosts: list[SwarmHost], message_of: Callable[[SwarmHost], Struct | None]
    ) -> None:
        """What each host has to say of a kind."""
        for host in hosts:
            message = message_of(host)
            if message is not None:
                self._say(host, kind, message)

    def _say(self, host: SwarmHost, kind: str, message: Struct) -> None:
        self._speaks.publish(_up(self.pods[host.pod], host.name, kind), message)
        self.sent[kind] += 1


def _traces(host: SwarmHost) -> TraceReport | None:
    return host.traces(TRACES_A_REPORT)


def _bursts(host: SwarmHost) -> BurstReport | None:
    return host.bursts(time.monotonic_ns())
