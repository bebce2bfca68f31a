"""Managers of several pods that watch one simulated fabric, each by the probes of its own hosts, and tell each other what they know."""

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import numpy as np

from cwdp.shared.bus.messages import Hello, decode, encode
from cwdp.shared.bus.subjects import is_of_pod
from manager.duties import Duties
from manager.fabric.routes import PathName, Routes
from manager.faults.finding import Finding
from manager.faults.link_watch import LinkWatch
from manager.hosts.elsewhere import PodHost
from manager.hosts.members import Members
from manager.pods.fleet_watch import FleetWatch
from tools.sim.faults.leafspine import LeafSpine, Shape, Trouble
from tools.sim.faults.localisation import LATE_S, START_S
from tools.sim.fleet.window_clocks import WINDOW_S


class PodWatch:
    """A manager of a pod, with what it knows and told."""

    def __init__(self, fleet: "PodWatches", name: str, hellos: list[Hello]) -> None:
        self.name, self.fleet, self.epoch = name, fleet, 5
        self.is_up = self.leads = True
        self.hosts = {hello.host for hello in hellos}
        self.events: list[str] = []
        self.said: list[str] = []
        self.members = Members()
        for hello in hellos:
            self.members.hear(hello, START_S)
        self.watch = LinkWatch(self.members, self._note)
        self.routes = fleet.routes_of(self.hosts)
        self.duties = Duties()
        self._hears: list[tuple[str, Any, Callable[[Any], None]]] = []
        bus = SimpleNamespace(
            pod=name,
            counters={"dropped_too_large": 0},
            publish=self._publish,
            subscribe=lambda *what: self._hears.append(what),
        )
        self.together = FleetWatch(
            cast(Any, bus),
            cast(Any, self),
            self.members,
            self.watch.faults,
            self.duties,
            epoch=lambda: self.epoch,
            now_s=lambda: fleet.now_s,
        )
        self.together.listen()

    @property
    def root(self) -> str | None:
        """As `Pods` tells it."""
        return min((pod.name for pod in self.fleet.pods if pod.is_up and pod.leads), default=None)

    def others(self) -> list[Any]:
        """As above."""
        return [
            SimpleNamespace(pod=pod.name)
            for pod in self.fleet.pods
            if pod.is_up and pod.leads and pod is not self
        ]

    @property
    def named(self) -> list[str]:
        """What it finds now."""
        return [finding.subject.name for finding in self.findings]

    @property
    def findings(self) -> list[Finding]:
        """As above."""
        return list(self.watch.findings.current.values())

    def hear(self, subject: str, message: Any) -> None:
        """Something is said on the bus."""
        for own, of, handler in self._hears:
            if own in (subject, subject.replace(f".{message.pod}.", ".*.")) and self.is_up:
                handler(decode(of, encode(message)))

    def work(self, reports: list[Any]) -> None:
        """Take in a window of the pod's own hosts."""
        now_ns = round(self.fleet.now_s * 1e9)
        for report in reports:
            if report.host in self.hosts:
                self.watch.hear(report, now_ns)
        due = self.watch.due(self.routes)
        if due is not None:
            self.watch.take(due.make(), self.fleet.now_s)
        self.watch.step(self.fleet.now_s, now_ns, ())

    def _publish(self, subject: str, message: Any) -> None:
        assert is_of_pod(subject)
        self.said.append(subject)
        self.fleet.deliver(subject, message)

    def _note(self, host: str, kind: str, detail: str, *, nic: str | None = None) -> None:
        del host, nic
        self.events.append(f"{kind} {detail.partition(':')[0]}")


class PodWatches:
    """All pods, `a` and on, of a simulated fabric; where their timelines are related, delays between them are known."""

    def __init__(self, shape: Shape, seed: int, *, related: bool = False) -> None:
        self.fabric = LeafSpine(shape, np.random.default_rng(seed))
        self.number = round(START_S / WINDOW_S)
        self.now_s = START_S
        self.loses: Callable[[str, str], bool] = lambda _subject, _pod: False
        each = shape.leaves * shape.hosts_per_leaf
        hellos = self.fabric.hellos
        self.pods: list[PodWatch] = []
        for i in range(shape.pods):
            self.pods.append(PodWatch(self, "abcdef"[i], hellos[i * each : (i + 1) * each]))
        for pod in self.pods:
            if related:
                pod.watch._far = cast(Any, SimpleNamespace(on_our_timeline=lambda _table, rows: rows))
            for i, other in enumerate(self.pods):
                theirs = [
                    PodHost(host=each.host, nics=each.nics) for each in hellos if each.host in other.hosts
                ]
                if other is not pod:
                    pod.members.elsewhere.take(
                        other.name, theirs, epoch=1, number=i, timeline="t", now_s=self.now_s
                    )

    def routes_of(self, hosts: set[str]) -> Routes:
        """The paths that begin or end at some hosts."""
        addresses = {
            address: hello.host
            for hello in self.fabric.hellos
            for nic in hello.nics
            for address in (nic.ipv4,)
            if address is not None
        }
        whole = self.fabric.routes
        paths: dict[PathName, tuple[int, ...]] = {
            name: links
            for name, links in whole.paths.items()
            if name.src.partition("/")[0] in hosts or addresses[name.dst_addr] in hosts
        }
        used = sorted({link for links in paths.values() for link in links})
        number = {link: i for i, link in enumerate(used)}
        own = {name: tuple(number[link] for link in links) for name, links in paths.items()}
        return Routes(1, tuple(whole.links[link] for link in used), own)

    def deliver(self, subject: str, message: Any) -> None:
        """Bring a message to all that hear it."""
        for pod in self.pods:
            if not self.loses(subject, pod.name):
                pod.hear(subject, message)

    def run(self, windows: int, trouble: Trouble | None = None) -> None:
        """Window after window."""
        for _ in range(windows):
            self.now_s = (self.number + 1) * WINDOW_S + LATE_S
            reports = self.fabric.window(self.number, trouble or Trouble())
            for pod in self.pods:
                if pod.is_up:
                    pod.work(reports)
                    asyncio.run(pod.together.step())
            self.number += 1

    def cable(self, a: str, b: str) -> dict[int, float]:
        """A silent link."""
        return {i: 1.0 for i, link in enumerate(self.fabric.routes.links) if set(link) == {a, b}}
