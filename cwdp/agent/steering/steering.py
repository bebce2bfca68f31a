"""Keeps the steering of this host's NICs as the manager wants it; what was set by hand stays."""

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from cwdp.agent.steering import tcp
from cwdp.agent.steering.desired import Reconciler
from cwdp.agent.steering.wishes import translated
from cwdp.dataplane.pinned import tree
from cwdp.dataplane.pinned.control import sample_below
from cwdp.dataplane.pinned.maps import Maps
from cwdp.dataplane.steering.routes import unrouted
from cwdp.dataplane.steering.steering import QpKey, Steer, Steering, parse_address
from cwdp.errors import CwdpError
from cwdp.shared.bus.messages import RoceSettings, SteerQp
from cwdp.shared.tcp import SteerTcp

LOOK_S = 5.0
CONFIRMED_S = 1.0
"""So often after other connections are wanted: only once the far end confirms them can their sockets' timers be set."""

_NS_PER_MS = 1_000_000


@dataclass(frozen=True)
class _Held:
    """What is steered of a NIC while flows are under way: to their peers nothing that was not before."""

    peers: frozenset[str] = frozenset()
    steered: frozenset[tuple[str, int]] = frozenset()

    def admits(self, one: SteerQp) -> bool:
        return one.dst_addr not in self.peers or _name(one) in self.steered


class DesiredSteering(Reconciler):
    """The steering that is wanted of each NIC; see `Reconciler`."""

    def __init__(self, ifnames: Sequence[str], refuse: Callable[[str, str], None]) -> None:
        super().__init__(ifnames, refuse, "steer_refused")
        self._steer: list[SteerQp] | None = None
        self._roce: RoceSettings | None = None
        self._tcp: list[SteerTcp] = []
        self._pinned: list[SteerQp] = []
        self._held: dict[str, _Held] = {}
        self._looked_s = time.monotonic()
        self._others_until_s = 0.0

    def want(self, steer: list[SteerQp], roce: RoceSettings | None, tcp: list[SteerTcp]) -> None:
        """Have this from now on."""
        if tcp != self._tcp:
            self._others_until_s = time.monotonic() + LOOK_S
        self._steer, self._roce, self._tcp = steer, roce, tcp
        self._look_at(self._ifnames)

    def hold(self, ifname: str, peers: Collection[str]) -> None:
        """Steer no other queue pairs of a NIC to these addresses than now, whatever is desired, until `release`."""
        steered = frozenset(_name(one) for one in self._steer or () if one.nic == ifname)
        self._held[ifname] = _Held(frozenset(peers), steered)

    def release(self, ifname: str) -> None:
        """Do as is desired again."""
        self._held.pop(ifname, None)
        self.loaded(ifname)

    def pin(self, one: SteerQp) -> None:
        """Steer a queue pair of this host's own so from now on, whatever is desired of it; not before anything is desired."""
        self._pinned = [*self._pinned, one]
        self.loaded(one.nic)

    def unpin(self, one: SteerQp) -> None:
        """Do so no more."""
        self._pinned = [pinned for pinned in self._pinned if pinned != one]
        self.loaded(one.nic)

    def loaded(self, ifname: str) -> None:
        """The dataplane of a NIC was found or loaded."""
        if self._steer is not None:
            self._look_at({ifname})

    def _reconcile(self, ifname: str) -> list[CwdpError]:
        pinned = [one for one in self._pinned if one.nic == ifname]
        own, held = {_name(one) for one in pinned}, self._held.get(ifname, _Held())
        others = [
            one
            for one in self._steer or ()
            if one.nic == ifname and _name(one) not in own and held.admits(one)
        ]
        wanted = [*pinned, *others]
        return apply(ifname, wanted, self._roce, [one for one in self._tcp if one.nic == ifname])

    def _unsettled(self) -> set[str]:
        """All of them now and then: other hosts announce connections, or cease to."""
        now_s = time.monotonic()
        if self._steer is None or (now_s - self._looked_s < LOOK_S and now_s > self._others_until_s):
            return super()._unsettled()
        self._looked_s = now_s
        return set(self._ifnames)

    def _wait_s(self) -> float:
        return CONFIRMED_S if time.monotonic() < self._others_until_s else super()._wait_s()


def _name(one: SteerQp) -> tuple[str, int]:
    return one.dst_addr, one.qpn


def apply(
    ifname: str, wanted: list[SteerQp], roce: RoceSettings | None, connections: list[SteerTcp]
) -> list[CwdpError]:
    """Make the steering of a NIC what is wanted, of queue pairs and of TCP connections.

    Returns:
        Why some of it could not be.

    Raises:
        DataplaneError: the NIC has no dataplane.
        OSError: its maps cannot be opened or changed.
    """
    steers, refused = translate(wanted)
    with tree.locked(), Maps(tree.here(ifname)) as maps:
        steering = Steering(maps)
        new = {key.dst for key in steers.keys() - steering.all().keys()}
        elsewhere = unrouted(ifname, new)
        steers = {key: steer for key, steer in steers.items() if key.dst not in elsewhere}
        refused += steering.reconcile(steers)
        if roce is not None:
            _set_control(maps, roce)
        refused += tcp.apply(ifname, maps, connections)
    return refused + list(elsewhere.values())


def translate(wanted: list[SteerQp]) -> tuple[dict[QpKey, Steer], list[CwdpError]]:
    """Steering as the dataplane has it, without those that are impossible or stand twice, and why not."""
    return translated(wanted, _read, lambda key: f"{key.dst} QPN {key.qpn}")


def _read(one: SteerQp) -> tuple[QpKey, Steer]:
    """One of them; raises SteeringError where it is impossible."""
    key = QpKey(parse_address(one.dst_addr), one.qpn)
    return key, Steer(one.sport, one.backup_sport, one.flow_label, managed=True, override=one.override)


def _set_control(maps: Maps, roce: RoceSettings) -> None:
    control = maps.control
    control["dead_after_ns"] = round(roce.dead_after_ms * _NS_PER_MS)
    control["hold_down_ns"] = round(roce.hold_down_ms * _NS_PER_MS)
    control["hold_down_max_ns"] = round(roce.hold_down_max_ms * _NS_PER_MS)
    control["sample_below"] = sample_below(roce.sample_every)
