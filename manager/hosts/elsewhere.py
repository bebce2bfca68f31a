"""Hosts of other pods, as these pods' leaders tell of them: they are probed, and nothing else is asked of them. No I/O.

Times are seconds of the manager's monotonic clock.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from msgspec import Struct

from cwdp.shared.bus.messages import ClockLine, Nic, host_of, nic_id
from manager.clock.apart import Apart, SeenAhead

LAPSE_S = 60.0
"""A pod that is not told of for so long has no hosts any more."""

HEARD_S = 10.0
LEFT_S = 3_600.0
"""For so long it is known whose addresses were whose: nothing rests on other NICs while a host is away and comes back."""

MOST_PODS, MOST_NICS = 64, 8_192
REASONS = ("ok", "old_leader", "too_many", "held_here", "held_elsewhere")


class PodHost(Struct, frozen=True, kw_only=True):
    """A host that is up: its NICs that can be probed, and how its clock leads to its pod's timeline, where that is known.

    NICs have the addresses of which it has been proved that they have them, and no others.
    """

    host: str
    nics: list[Nic]
    line: ClockLine | None = None
    observe_only: bool = False


@dataclass(frozen=True, kw_only=True)
class _Pod:
    epoch: int
    number: int
    heard_s: float
    timeline: str
    hosts: Mapping[str, PodHost]
    seen: Sequence[SeenAhead]


class Elsewhere:
    """The hosts of all other pods, each once: who is up in this pod is of this pod, and of two others of the first.

    Attributes:
        hosts: by name.
        pod_of: the pod of each.
        addresses: the NIC that has each address.
        left: the NIC that had each address which none has now, of hosts that are nobody's by now: for `LEFT_S`, and the last
            `MOST_NICS` at most.
        apart: how far the timelines of pods are ahead of this one's, where that is known; see `manager.pods.timelines`.
        version: another one whenever hosts, their NICs or addresses are others.
        told: messages and hosts by what became of them (`REASONS`).
    """

    def __init__(self) -> None:
        self.hosts: dict[str, PodHost] = {}
        self.pod_of: dict[str, str] = {}
        self.version = 0
        self.told: Counter[str] = Counter(dict.fromkeys(REASONS, 0))
        self.addresses: dict[str, str] = {}
        self.left: dict[str, str] = {}
        self._left_s: dict[str, float] = {}
        self.apart: Mapping[str, Apart] = {}
        self._pods: dict[str, _Pod] = {}
        self._here: frozenset[str] = frozenset()

    def take(
        self,
        pod: str,
        hosts: Sequence[PodHost],
        *,
        epoch: int,
        number: int,
        timeline: str,
        now_s: float,
        seen: Sequence[SeenAhead] = (),
    ) -> None:
        """A pod has these hosts, and no others.

        Args:
            pod: which.
            hosts: of it that are up.
            epoch: its leader's.
            number: another one where hosts or NICs are others, by this leader.
            timeline: the name of the pod's.
            now_s: the time.
            seen: other timelines, as its leader sees them.
        """
        known = self._pods.get(pod)
        if known is not None and epoch < known.epoch:
            self.told["old_leader"] += 1
            return
        if sum(len(host.nics) for host in hosts) > MOST_NICS or (
            known is None and len(self._pods) >= MOST_PODS
        ):
            self.told["too_many"] += 1
            return
        self.told["ok"] += 1
        told = _Pod(
            epoch=epoch,
            number=number,
            heard_s=now_s,
            timeline=timeline,
            hosts={each.host: each for each in hosts},
            seen=seen,
        )
        self._pods[pod] = told
        if known is not None and (known.epoch, known.number) == (epoch, number):
            self._refresh(pod)
        else:
            self._merge(now_s)

    def step(self, here: Collection[str], now_s: float) -> None:
        """Let go of pods that are silent, and of hosts that are up in this one."""
        silent = [pod for pod, told in self._pods.items() if now_s - told.heard_s > LAPSE_S]
        for pod in silent:
            del self._pods[pod]
        if silent or (self._here != frozenset(here)):
            self._here = frozenset(here)
            self._merge(now_s)
        old = [address for address, left_s in self._left_s.items() if now_s - left_s > LEFT_S]
        self.version += bool(old)
        self._forget(old)

    def is_heard(self, pod: str, now_s: float) -> bool:
        """Whether a pod is told of now, so that its hosts' lines can be gone by."""
        told = self._pods.get(pod)
        return told is not None and now_s - told.heard_s <= HEARD_S

    def knows(self, pod: str) -> bool:
        """Whether a pod has told of its hosts."""
        return pod in self._pods

    def timeline_of(self, pod: str) -> str | None:
        """The name of a pod's timeline."""
        told = self._pods.get(pod)
        return None if told is None else told.timeline

    def seen_by(self, pod: str) -> Sequence[SeenAhead]:
        """Other timelines, as a pod's leader sees them."""
        told = self._pods.get(pod)
        return () if told is None else told.seen

    def members(self) -> dict[str, list[tuple[str, Nic]]]:
        """The (host, NIC)s of each pod, in order of name."""
        found: dict[str, list[tuple[str, Nic]]] = {}
        for name in sorted(self.hosts):
            found.setdefault(self.pod_of[name], []).extend((name, nic) for nic in self.hosts[name].nics)
        return found

    def ifnames(self, host: str) -> list[str] | None:
        """The NICs of a host; None where it is no other pod's."""
        known = self.hosts.get(host)
        return None if known is None else [nic.ifname for nic in known.nics]

    def pod_at(self, address: str) -> str | None:
        """The pod of the host that has an address."""
        nic = self.addresses.get(address)
        return None if nic is None else self.pod_of[host_of(nic)]

    def _refresh(self, pod: str) -> None:
        """The same hosts as before, by other lines."""
        for name, host in self._pods[pod].hosts.items():
            if self.pod_of.get(name) == pod:
                self.hosts[name] = host

    def _forget(self, addresses: Iterable[str]) -> None:
        for address in addresses:
            del self.left[address], self._left_s[address]

    def _merge(self, now_s: float) -> None:
        before = {name: (host.nics, self.pod_of[name]) for name, host in self.hosts.items()}
        holders, hosts = dict[str, str](), dict[str, PodHost]()
        for pod in sorted(self._pods):
            for name, host in self._pods[pod].hosts.items():
                first = self.pod_of.get(name)
                holds = first in self._pods and name in self._pods[first].hosts
                if name in self._here:
                    self.told["held_here"] += 1
                elif name in hosts or (holds and first != pod):
                    self.told["held_elsewhere"] += 1
                else:
                    hosts[name], holders[name] = host, pod
        self.hosts, self.pod_of = hosts, holders
        if before != {name: (host.nics, holders[name]) for name, host in hosts.items()}:
            self.version += 1
            had, self.addresses = self.addresses, _addresses(hosts)
            self._remember(
                {address: nic for address, nic in had.items() if address not in self.addresses}, now_s
            )
        known = [
            address
            for address, nic in self.left.items()
            if address in self.addresses or host_of(nic) in hosts or host_of(nic) in self._here
        ]
        self.version += bool(known)
        self._forget(known)

    def _remember(self, left: Mapping[str, str], now_s: float) -> None:
        """Keep whose addresses were whose; the latest come last."""
        self._forget(self.left.keys() & left.keys())
        self.left |= left
        self._left_s |= dict.fromkeys(left, now_s)
        self._forget(list(self.left)[: max(0, len(self.left) - MOST_NICS)])


def _addresses(hosts: Mapping[str, PodHost]) -> dict[str, str]:
    owners: dict[str, str] = {}
    for name, host in hosts.items():
        for nic in host.nics:
            for address in (nic.ipv4, nic.ipv6):
                if address is not None:
                    owners.setdefault(address, nic_id(name, nic.ifname))
    return owners
