"""The pods of a fleet: each has a leader, and says once a second how it is; one of the leaders is the root.

The root is the leader of the pod that comes first by name among those that are heard. It goes on with what concerns the
whole fleet. Two may take themselves for it for a while: what it decides is kept on the bus by compare-and-set.
"""

import asyncio
import math
import time
from collections.abc import Callable, Collection

from msgspec import Struct

from cwdp.shared.bus.connection import Bus
from cwdp.shared.bus.subjects import pod_report
from manager.identity.probe_keys import ProbeKeys

SAY_S, SILENT_S = 1.0, 5.0


class PodReport(Struct, frozen=True, kw_only=True):
    """What a pod's leader says of it.

    Attributes:
        pod: which it is.
        manager: its leader's name, for people.
        hosts_up: how many hosts are up.
        keys: the fingerprint of the probe keys that all of these have; empty where they have not all the same.
    """

    pod: str
    manager: str
    hosts_up: int
    keys: str


class Pods:
    """The other pods of the fleet, as their leaders tell of them, and what this manager tells of its own.

    Args:
        bus: the manager's.
        manager: its name.
        leads: whether it leads its pod.
        hosts: the hosts of its pod that are up.
        keys: the probe keys.
        now_s: a clock that only ever goes on.
    """

    def __init__(
        self,
        bus: Bus,
        manager: str,
        *,
        leads: Callable[[], bool],
        hosts: Callable[[], Collection[str]],
        keys: ProbeKeys,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._bus, self._manager = bus, manager
        self._leads, self._hosts, self._keys, self._now_s = leads, hosts, keys, now_s
        self._heard: dict[str, tuple[float, PodReport]] = {}
        self._connected_s = math.inf

    def listen(self) -> None:
        """Hear other pods; before the bus is started."""
        self._bus.subscribe(pod_report("*"), PodReport, self.hear)

    def connect(self, connected: bool) -> None:
        """The bus has come, or is gone."""
        self._connected_s = self._now_s() if connected else math.inf

    async def run(self) -> None:
        """Tell of this manager's pod while it leads, for ever."""
        while True:
            if self._leads():
                self._bus.publish(pod_report(self._bus.pod), self.own())
            await asyncio.sleep(SAY_S)

    def hear(self, report: PodReport) -> None:
        """A pod's leader has spoken."""
        if report.pod != self._bus.pod:
            self._heard[report.pod] = self._now_s(), report

    def own(self) -> PodReport:
        """Of this manager's pod."""
        hosts, wanted = self._hosts(), self._keys.wanted.fingerprint
        has_keys = self._keys.are_with(hosts)
        return PodReport(
            pod=self._bus.pod,
            manager=self._manager,
            hosts_up=len(hosts),
            keys=wanted if has_keys else "",
        )

    def others(self) -> list[PodReport]:
        """The other pods that are heard, by name."""
        since_s = self._now_s() - SILENT_S
        self._heard = {pod: heard for pod, heard in self._heard.items() if heard[0] > since_s}
        return [self._heard[pod][1] for pod in sorted(self._heard)]

    def all(self) -> list[PodReport]:
        """All pods that are heard, by name; this manager's among them if it leads."""
        own = [self.own()] if self._leads() else []
        return sorted(self.others() + own, key=lambda report: report.pod)

    @property
    def leads(self) -> bool:
        """Whether this manager leads its pod."""
        return self._leads()

    @property
    def root(self) -> str | None:
        """The pod whose leader is the root; None where too little has been heard yet to know."""
        others = [report.pod for report in self.others()]
        if self._leads():
            if self._now_s() - self._connected_s < SILENT_S:
                return None
            others.append(self._bus.pod)
        return min(others, default=None)

    def may_go_on(self) -> bool:
        """Whether it is this manager's to go on with a rotation of the keys, and no other pod has to be waited for."""
        wanted = self._keys.wanted.fingerprint
        is_root = self._leads() and self.root == self._bus.pod
        return is_root and all(report.keys == wanted for report in self.others())
