"""Who is there: hosts by their hellos, their NICs, and which of them can be probed. Pure: time is an argument.

Times are seconds of the manager's monotonic clock.
"""

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from cwdp.shared.bus.messages import HELLO_INTERVAL_S, Hello, Nic, host_of, nic_id
from cwdp.shared.bus.records import packed_address
from manager.hosts.elsewhere import Elsewhere

MISSED_HELLOS = 5
LOST_AFTER_S = MISSED_HELLOS * HELLO_INTERVAL_S
GRACE_S = 30.0
"""For so long what has gone keeps its place in the probe graph: a NIC without carrier, and a host that is lost, as where its agent is
begun anew. Paths that are known stay so, and nobody's probes are others."""

FORGET_AFTER_S = 3600.0

HostState = Literal["up", "lost"]
Reason = Literal["ok", "no_carrier", "no_address", "no_dataplane", "no_rdma", "no_key", "host_lost"]


@dataclass(kw_only=True)
class Host:
    """One host as last heard of. `carrier_lost_s` holds since when each NIC without carrier has had none."""

    hello: Hello
    last_seen_s: float
    state: HostState = "up"
    restarts: int = 0
    carrier_lost_s: dict[str, float] = field(default_factory=dict)


class Members:
    """All hosts, by name. `version` is another one whenever hosts, their NICs or addresses are others.

    Attributes:
        proven: the NIC that has each address of which that has been proved; see `manager.paths.addresses`.
        elsewhere: hosts of other pods; their addresses are known, and no more is asked of them.
        keys_in_use: tells the numbers of the cluster's probe keys that hosts sign with now; none where that is not known.
    """

    def __init__(self) -> None:
        self.hosts: dict[str, Host] = {}
        self.version = 0
        self.proven: Mapping[str, str] = {}
        self.elsewhere = Elsewhere()
        self.keys_in_use: Callable[[], Collection[int]] = frozenset
        self._elsewhere_version = 0
        self._ours: Collection[str] = ()
        self._ours_version = -1
        self._owners: dict[str, str] = {}
        self._owners_version = 0
        self._packed: tuple[Mapping[str, str], dict[bytes, str]] = {}, {}
        self._likely_bps = math.inf
        self._likely_version = 0

    @property
    def nics_by_address(self) -> Mapping[str, str]:
        """The NIC that has each address; of two that claim one whose it is not proved to be, the one that was there first.

        What is proved here counts before what other pods tell, that before what hosts only claim here, and that before whose it
        was of hosts that other pods have no more.
        """
        if self._owners_version != self.version:
            version = self.version
            moved = self.elsewhere.hosts.keys() & self.hosts.keys()
            owners = {address: nic for address, nic in self.proven.items() if host_of(nic) not in moved}
            owners = {**self.elsewhere.addresses, **owners}
            for name, host in list(self.hosts.items()):
                for nic in host.hello.nics:
                    for address in (nic.ipv4, nic.ipv6):
                        if address is not None:
                            owners.setdefault(address, nic_id(name, nic.ifname))
            self._owners = {**self.elsewhere.left, **owners}
            self._owners_version = version
        return self._owners

    @property
    def nics_by_packed_address(self) -> Mapping[bytes, str]:
        """The same by addresses as rows on the bus have them."""
        owners = self.nics_by_address
        if self._packed[0] is not owners:
            self._packed = owners, {packed_address(address): nic for address, nic in owners.items()}
        return self._packed[1]

    def reads_changes(self, host: str) -> bool:
        """Whether a host's agent takes in changes of its document."""
        known = self.hosts.get(host)
        return known is not None and known.hello.reads_changes

    @property
    def likely_link_bps(self) -> float:
        """The fastest link that two different hosts tell of, or the one there is; infinite where none does.

        What one host alone says of itself bounds nothing that concerns others.
        """
        if self._likely_version != self.version:
            told = [
                max((nic.speed_bps or 0 for nic in host.hello.nics), default=0)
                for host in self.hosts.values()
            ]
            fastest = sorted(speed_bps for speed_bps in told if speed_bps > 0)[-2:]
            self._likely_bps, self._likely_version = float(fastest[0]) if fastest else math.inf, self.version
        return self._likely_bps

    @property
    def have_lids(self) -> bool:
        """Whether programs of some host take the LIDs of InfiniBand."""
        return any(host.hello.ib_ports for host in self.hosts.values())

    def ifnames(self, host: str) -> list[str] | None:
        """The NICs of a host of this pod, or of another; None where there is none of that name."""
        known = self.hosts.get(host)
        elsewhere = self.elsewhere.ifnames(host)
        if known is None or (elsewhere is not None and known.state == "lost"):
            return elsewhere
        return [nic.ifname for nic in known.hello.nics]

    @property
    def ours(self) -> Collection[str]:
        """The hosts that are this pod's, up or lost, and so on its timeline; not those that another pod has by now."""
        if self._ours_version != self.version:
            version = self.version
            self._ours, self._ours_version = self.hosts.keys() - self.elsewhere.hosts.keys(), version
        return self._ours

    @property
    def ours_of_several(self) -> Collection[str] | None:
        """The same where other pods have hosts too; None where they do not."""
        return self.ours if self.elsewhere.hosts else None

    def follow_elsewhere(self, now_s: float) -> None:
        """See which hosts other pods have; one that is up here is not theirs."""
        self.elsewhere.step(self.up(), now_s)
        if self._elsewhere_version != self.elsewhere.version:
            self._elsewhere_version = self.elsewhere.version
            self.version += 1

    def prove(self, proven: Mapping[str, str]) -> None:
        """Take it as proved which NICs have some addresses; each of them claims them."""
        before, self.proven, self._owners_version = self.nics_by_address, proven, -1
        if self.nics_by_address != before:
            self.version += 1

    def hear(self, hello: Hello, now_s: float) -> bool:
        """Take in a hello; whether the host is new, back, or restarted since the last one."""
        host = self.hosts.get(hello.host)
        if host is None:
            host = self.hosts[hello.host] = Host(hello=hello, last_seen_s=now_s)
            arrived = True
        else:
            arrived = host.state == "lost"
            host.restarts += host.hello.boot_id != hello.boot_id
        if arrived or host.hello.nics != hello.nics:
            self.version += 1
        host.hello, host.last_seen_s, host.state = hello, now_s, "up"
        host.carrier_lost_s = {
            nic.ifname: host.carrier_lost_s.get(nic.ifname, now_s) for nic in hello.nics if not nic.carrier
        }
        return arrived

    def expire(self, now_s: float) -> list[str]:
        """Mark hosts lost that missed too many hellos, and return them; forget those long gone."""
        lost = []
        for name, host in list(self.hosts.items()):
            silent_s = now_s - host.last_seen_s
            if host.state == "up" and silent_s > LOST_AFTER_S:
                host.state = "lost"
                self.version += 1
                lost.append(name)
            elif silent_s > FORGET_AFTER_S:
                del self.hosts[name]
                self.version += 1
        return lost

    def forget(self, host: str) -> None:
        """Let go of a host that has left for good."""
        if self.hosts.pop(host, None) is not None:
            self.version += 1

    def is_lost(self, host: str) -> bool:
        """Whether a host was there and is silent."""
        known = self.hosts.get(host)
        return known is not None and known.state == "lost"

    def up(self) -> list[str]:
        """The hosts that are up."""
        return [name for name, host in self.hosts.items() if host.state == "up"]

    def excuse(self, now_s: float) -> None:
        """Start every host's silence anew: the bus was away, not they."""
        for host in self.hosts.values():
            if host.state == "up":
                host.last_seen_s = now_s

    def reason(self, host: Host, nic: Nic, now_s: float) -> Reason:
        """Why a NIC can't be probed, or "ok". A NIC keeps its place for a while after it lost its carrier."""
        return "host_lost" if host.state == "lost" else self._reason_of_nic(host, nic, now_s)

    def _reason_of_nic(self, host: Host, nic: Nic, now_s: float) -> Reason:
        bare = nic.ipv4 is None and nic.ipv6 is None
        dark = not nic.carrier and now_s - host.carrier_lost_s.get(nic.ifname, now_s) > GRACE_S
        found: dict[Reason, bool] = {
            "no_key": self._lacks_keys(host),
            "no_rdma": nic.transport == "ud" and nic.ud is None,
            "no_address": bare,
            "no_dataplane": nic.transport == "xdp" and nic.mode == "absent",
            "no_carrier": dark,
        }
        return next((reason for reason, holds in found.items() if holds), "ok")

    def _lacks_keys(self, host: Host) -> bool:
        """Whether it has none of the keys that the others sign with: it was away while these were replaced."""
        in_use, has = self.keys_in_use(), host.hello.key_ids
        return bool(in_use and has) and not set(has) & set(in_use)

    def without_keys(self) -> list[str]:
        """Hosts with none of the keys that the others sign with; where that is not known, that most of them have."""
        in_use = set(self.keys_in_use()) or self._usual_keys()
        return [
            name
            for name, host in self.hosts.items()
            if in_use and host.hello.key_ids and in_use.isdisjoint(host.hello.key_ids)
        ]

    def _usual_keys(self) -> set[int]:
        """The numbers of the keys that most of the hosts have that are up."""
        has = [
            host.hello.key_ids for host in self.hosts.values() if host.state == "up" and host.hello.key_ids
        ]
        times = Counter(key for keys in has for key in set(keys))
        return {key for key, count in times.items() if 2 * count > len(has)}

    def probeable(self, now_s: float) -> Iterable[tuple[str, Nic]]:
        """Every (host, NIC) that belongs into the probe graph, in order of name; of hosts lost of late too."""
        for name in sorted(self.hosts):
            host = self.hosts[name]
            if host.state == "lost" and now_s - host.last_seen_s > LOST_AFTER_S + GRACE_S:
                continue
            for nic in host.hello.nics:
                if self._reason_of_nic(host, nic, now_s) == "ok":
                    yield name, nic
