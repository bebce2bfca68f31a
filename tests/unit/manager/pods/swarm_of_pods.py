"""Pods of a swarm and what their leaders know, in arithmetic: virtual time, no bus, leaders told of each other as they tell it."""

from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from bus_fakes import manager_bus
from msgspec import ValidationError

from cwdp.agent.probing.windows import WindowReports
from cwdp.shared.bus.messages import Desired, Leader, decode, encode
from manager.clock.timeline import Identity
from manager.config import ProbeSettings
from manager.neighbours import Neighbours
from manager.pods.directory import HostsPart, PodTraces
from manager.probing.graph_timer import GraphTimer
from manager.state import FleetState
from tools.swarm.fabric import Size, SwarmFabric
from tools.swarm.hosts import SwarmHost, World
from tools.swarm.iterations import Iterations
from tools.swarm.timelines import Clocks, Timelines
from tools.swarm.traffic import Traffic
from tools.swarm.turns import reports, windows

TICK_S = 0.25
SECOND = round(1 / TICK_S)


class LeadingPod:
    """A pod's leader."""

    def __init__(self, name: str, number: int, hosts: list[SwarmHost]) -> None:
        self.name, self.hosts = name, {host.name: host for host in hosts}
        self.state = FleetState(
            Identity(timeline=f"timeline {number}", starts=1), ProbeSettings(), continued=False
        )
        self.state.leader = Leader(epoch=number + 1, since_s=0.0)
        bus = manager_bus("tls://127.0.0.1:1", pod=name)
        self.sent: list[Any] = []
        bus.publish = lambda _subject, message: bool(self.sent.append(message))  # type: ignore[func-returns-value,method-assign,assignment]
        self.neighbours = Neighbours(bus, self.state)
        self.graph = GraphTimer()


class SwarmOfPods:
    """All of it; `now_s` is what all clocks of managers show.

    Args:
        size: of the swarm.
        monkeypatch: has the clocks show it.
        seed: of all draws.
    """

    def __init__(self, size: Size, monkeypatch: pytest.MonkeyPatch, seed: int = 1) -> None:
        self.now_s, self._turn = 1000.0, 0
        monkeypatch.setattr("time.monotonic", lambda: self.now_s)
        monkeypatch.setattr("time.monotonic_ns", lambda: round(self.now_s * 1e9))
        self.fabric = SwarmFabric(size)
        self.traffic = Traffic(self.fabric, seed)
        clocks = Clocks(size.hosts, seed)
        self.timelines = Timelines(clocks, size.pods)
        iterations = Iterations(self.fabric.size.hosts, seed)
        world = World(self.fabric, self.traffic, clocks, self.timelines, iterations, seed)
        self.hosts = [SwarmHost(i, world) for i in range(size.hosts)]
        for host in self.hosts:
            host._windows = WindowReports(host.name, lambda: self.now_s)
        self.pods = [
            LeadingPod(f"p{i}", i, [host for host in self.hosts if host.pod == i]) for i in range(size.pods)
        ]
        for pod in self.pods:
            pod.neighbours._now_s = lambda: self.now_s

    def run(self, seconds: float) -> None:
        """Let time pass."""
        for _ in range(round(seconds * SECOND)):
            self.now_s += TICK_S
            self.traffic.count(self.now_s)
            for pod in self.pods:
                self._speak(pod)
                self._lead(pod)
            for pod in self.pods:
                self._tell(pod)
            self._turn += 1

    def ahead_ns(self, pod: int) -> np.ndarray:
        """By how much each timeline is ahead of a pod's."""
        return self.timelines.ahead_ns(pod, round(self.now_s * 1e9))

    def shown_ns(self, pod: int) -> int:
        """What a pod's timeline shows."""
        heard = self.timelines._heard[pod]
        assert heard is not None
        return self.timelines.of(*heard, round(self.now_s * 1e9))

    def _speak(self, pod: LeadingPod) -> None:
        """What hosts tell their leader within a tick."""
        state, now_ns = pod.state, round(self.now_s * 1e9)
        for host in pod.hosts.values():
            if self._turn % SECOND == 0:
                state.hear_hello(host.hello(), self.now_s)
                state.hear_steering(host.steered(), self.now_s)
            for _, told in windows([host], now_ns):
                state.hear_windows(told, self.now_s)
            full = (self._turn + host.number) % SECOND == 0
            for _, report in reports([host], now_ns, with_fits=True, in_full=full, with_counters=full):
                state.hear_report(report, self.now_s)
            if full:
                state.traffic.hear_queue_pairs(host.queue_pairs(now_ns), self.now_s)
            traced = host.traces(64)
            if traced is not None:
                pod.neighbours.hear_own_traces(traced)

    def _lead(self, pod: LeadingPod) -> None:
        """What a leader does within a tick."""
        state, now_s = pod.state, self.now_s
        if self._turn % SECOND == 0:
            state.expire(now_s)
            self._direct(pod, state.overtaken())
        edges = state.clock.begin(now_s)
        solved = None if edges is None else state.clock.solve_edges(edges)
        if edges is not None and solved is not None:
            state.clock.finish(edges, solved, now_s)
            state.compare_timelines(now_s)
            for update in state.clock.updates():
                pod.hosts[update.host].take_clock(update)
        members = state.probeable(now_s)
        elsewhere = state.members.elsewhere
        if pod.graph.due(members, now_s, taken_up=False, elsewhere=elsewhere.version):
            between = pod.neighbours.between(members, ProbeSettings().seed)()
            self._direct(pod, state.schedule(members, state.build_graph(members), between))
        due = state.watch.due(state.fabric.routes)
        if due is not None:
            state.watch.take(due.make(), now_s)
        state.watch_links(now_s)
        state.note_fabric(state.discovery.learn(now_s))
        self._direct(pod, state.discover(now_s))
        self._direct(pod, state.plan(now_s))

    def _tell(self, pod: LeadingPod) -> None:
        """What leaders tell each other."""
        told = [*pod.neighbours.due(), *pod.sent]
        pod.sent.clear()
        for other in self.pods:
            for message in map(encode, told) if other is not pod else ():
                with suppress(ValidationError):
                    other.neighbours.hear(decode(HostsPart, message))
                with suppress(ValidationError):
                    other.neighbours.hear_traces(decode(PodTraces, message))

    def _direct(self, pod: LeadingPod, documents: list[Desired]) -> None:
        for document in documents:
            pod.hosts[document.host].take_document(document)
