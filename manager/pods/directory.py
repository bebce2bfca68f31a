"""Leaders tell each other which hosts their pods have, in bounded parts: on change, and again every few seconds."""

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Annotated

from msgspec import Meta, Struct

from cwdp.shared.bus.connection import Bus
from cwdp.shared.bus.messages import ClockLine, Hello, Nic, Trace, TraceReport
from cwdp.shared.bus.subjects import pod_hosts, pod_traces
from manager.clock.apart import SeenAhead
from manager.hosts.elsewhere import MOST_PODS, Elsewhere, PodHost
from manager.hosts.members import Members
from manager.pods.pods import PodReport

AGAIN_S, SOONEST_S, GLANCE_S = 4.0, 1.0, 0.25
PART_HOSTS, MOST_PARTS = 64, 128
REASONS = ("ok", "not_theirs")


class HostsPart(Struct, frozen=True, kw_only=True):
    """A part of the hosts of a pod; all parts of one `number` are its hosts.

    Attributes:
        pod: which.
        epoch: its leader's.
        number: another one where hosts or NICs are others.
        part, parts: which this is, from 0, of how many.
        timeline: the name of the pod's.
        hosts: some of those that are up.
        seen: timelines of other pods, as this pod's hosts see them; the same in all parts.
    """

    pod: str
    epoch: int
    number: int
    part: Annotated[int, Meta(ge=0)]
    parts: Annotated[int, Meta(ge=1, le=MOST_PARTS)]
    timeline: str
    hosts: Annotated[list[PodHost], Meta(max_length=PART_HOSTS)]
    seen: Annotated[list[SeenAhead], Meta(max_length=MOST_PODS)] = []


class PodTraces(Struct, frozen=True, kw_only=True):
    """What a host of a pod traced towards another pod's, passed on by its leader."""

    pod: str
    report: TraceReport


class Parts:
    """Puts the hosts of other pods together. No I/O."""

    def __init__(self) -> None:
        self._parts: dict[str, tuple[tuple[int, int, int], dict[int, list[PodHost]]]] = {}

    def hear(self, part: HostsPart) -> list[PodHost] | None:
        """All hosts of a pod once its last part is there."""
        name = part.epoch, part.number, part.parts
        known, held = self._parts.get(part.pod, (name, {}))
        if part.part >= part.parts:
            return None
        held = held if known == name else {}
        held[part.part] = part.hosts
        if len(held) < part.parts:
            self._parts[part.pod] = name, held
            return None
        self._parts.pop(part.pod, None)
        return [host for i in range(part.parts) for host in held[i]]


def split(hosts: Sequence[PodHost]) -> list[Sequence[PodHost]]:
    """Hosts by parts; at least one."""
    return [hosts[start : start + PART_HOSTS] for start in range(0, max(1, len(hosts)), PART_HOSTS)]


def hosts_told(
    members: Members, hellos: Iterable[Hello], line_of: Callable[[str], ClockLine | None], now_s: float
) -> list[PodHost]:
    """What other pods are told of this one's hosts: those that are up, and their NICs that can be probed.

    Args:
        members: the hosts.
        hellos: of each what it says of itself, with the addresses that are proven.
        line_of: tells how its clock leads to the timeline.
        now_s: the manager's monotonic clock.
    """
    told = []
    for hello in hellos:
        known = members.hosts.get(hello.host)
        if known is None or known.state == "lost":
            continue
        nics = [nic for nic in hello.nics if members.reason(known, nic, now_s) == "ok"]
        line = line_of(hello.host)
        told.append(PodHost(host=hello.host, nics=nics, line=line, observe_only=hello.observe_only))
    return told


class Directory:
    """Tells of this pod's hosts while its manager leads, and takes in what other pods' leaders tell.

    Args:
        bus: the manager's.
        elsewhere: where hosts of other pods are kept.
        hosts: those of this pod that are up.
        leader: the epoch and the timeline's name; None while this manager does not lead.
        seen: timelines of other pods, as this pod's hosts see them.
        on_traces: is told of what other pods' hosts traced towards this one's.
        now_s: a clock that only ever goes on.

    Attributes:
        traces: what was passed on by other pods, by what became of it (`REASONS`).
    """

    def __init__(
        self,
        bus: Bus,
        elsewhere: Elsewhere,
        *,
        hosts: Callable[[], Sequence[PodHost]],
        leader: Callable[[], tuple[int, str] | None],
        seen: Callable[[], list[SeenAhead]],
        on_traces: Callable[[TraceReport], None],
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self.traces = dict.fromkeys(REASONS, 0)
        self._bus, self._elsewhere, self._now_s = bus, elsewhere, now_s
        self._hosts, self._leader, self._seen, self._on_traces = hosts, leader, seen, on_traces
        self._parts = Parts()
        self._number, self._told_s = 0, float("-inf")
        self._told: list[tuple[str, list[Nic]]] = []

    def awaits(self, others: Iterable[PodReport]) -> bool:
        """Whether some pod that is heard has not told yet which hosts it has."""
        return any(not self._elsewhere.knows(report.pod) for report in others)

    def listen(self) -> None:
        """Hear other pods; before the bus is started."""
        self._bus.subscribe(pod_hosts("*"), HostsPart, self.hear)
        self._bus.subscribe(pod_traces(self._bus.pod), PodTraces, self.hear_traces)

    async def run(self) -> None:
        """Tell of this manager's pod while it leads, for ever."""
        while True:
            await asyncio.sleep(GLANCE_S)
            parts = self.due()
            for part in parts:
                self._bus.publish(pod_hosts(self._bus.pod), part)
                await asyncio.sleep(SOONEST_S / 2 / len(parts))

    def due(self) -> list[HostsPart]:
        """What is to be told now."""
        leader, now_s = self._leader(), self._now_s()
        if leader is None or now_s - self._told_s < SOONEST_S:
            return []
        hosts = sorted(self._hosts(), key=lambda host: host.host)[: PART_HOSTS * MOST_PARTS]
        content = [(host.host, host.nics) for host in hosts]
        if content == self._told and now_s - self._told_s < AGAIN_S:
            return []
        self._number += content != self._told
        self._told, self._told_s = content, now_s
        epoch, timeline = leader
        parts, seen = split(hosts), self._seen()[:MOST_PODS]
        return [
            HostsPart(
                pod=self._bus.pod,
                epoch=epoch,
                number=self._number,
                part=i,
                parts=len(parts),
                timeline=timeline,
                hosts=list(part),
                seen=seen,
            )
            for i, part in enumerate(parts)
        ]

    def hear(self, part: HostsPart) -> None:
        """A pod's leader has told of some of its hosts."""
        if part.pod == self._bus.pod:
            return
        hosts = self._parts.hear(part)
        if hosts is not None:
            self._elsewhere.take(
                part.pod,
                hosts,
                epoch=part.epoch,
                number=part.number,
                timeline=part.timeline,
                seen=part.seen,
                now_s=self._now_s(),
            )

    def pass_on(self, report: TraceReport) -> None:
        """Tell other pods of paths from a host of this one to theirs: replies to their probes take them."""
        if self._leader() is None or not self._elsewhere.hosts:
            return
        by_pod: dict[str, list[Trace]] = {}
        for trace in report.traces:
            pod = self._elsewhere.pod_at(trace.dst_addr)
            if pod is not None:
                by_pod.setdefault(pod, []).append(trace)
        for pod, traces in by_pod.items():
            own = TraceReport(host=report.host, boot_id=report.boot_id, traces=traces)
            self._bus.publish(pod_traces(pod), PodTraces(pod=self._bus.pod, report=own))

    def hear_traces(self, passed: PodTraces) -> None:
        """A pod's leader passes on what a host of its pod has traced."""
        is_theirs = self._elsewhere.pod_of.get(passed.report.host) == passed.pod
        self.traces["ok" if is_theirs else "not_theirs"] += 1
        if is_theirs:
            self._on_traces(passed.report)
