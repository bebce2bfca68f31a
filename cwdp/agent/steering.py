"""Keeps the steering of this host's NICs as the manager wants it; what was set by hand stays."""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence

from cwdp.dataplane import tree
from cwdp.dataplane.control import sample_below
from cwdp.dataplane.maps import Maps
from cwdp.dataplane.routes import require_routed
from cwdp.dataplane.steering import Address, QpKey, Steer, Steering, parse_address
from cwdp.errors import CwdpError, DataplaneError, SteeringError
from cwdp.shared.messages import RoceSettings, SteerQp

RETRY_S = 5.0

_NS_PER_MS = 1_000_000


class DesiredSteering:
    """Applies the latest wish, and tries again what was refused.

    Args:
        ifnames: the NICs.
        refuse: told, once, of each wish that cannot be granted: the NIC and why.

    Attributes:
        counters: totals by name.
    """

    def __init__(self, ifnames: Sequence[str], refuse: Callable[[str, str], None]) -> None:
        self.counters: Counter[str] = Counter(steer_refused=0)
        self._refuse = refuse
        self._steer: list[SteerQp] | None = None
        self._roce: RoceSettings | None = None
        self._refused: dict[str, set[str]] = {ifname: set() for ifname in ifnames}
        self._stale: set[str] = set()
        self._wake = asyncio.Event()

    def want(self, steer: list[SteerQp], roce: RoceSettings | None) -> None:
        """Have this from now on."""
        self._steer, self._roce = steer, roce
        self._stale = set(self._refused)
        self._wake.set()

    def loaded(self, ifname: str) -> None:
        """The dataplane of a NIC was found or loaded."""
        if self._steer is not None:
            self._stale.add(ifname)
            self._wake.set()

    async def follow(self) -> None:
        """Apply what is wanted whenever that changes, in a thread, for ever."""
        while True:
            self._wake.clear()
            for ifname in sorted(self._stale):
                self._stale.discard(ifname)
                await self._apply(ifname)
            try:
                await asyncio.wait_for(self._wake.wait(), RETRY_S)
            except TimeoutError:
                self._stale |= {ifname for ifname, refused in self._refused.items() if refused}

    async def _apply(self, ifname: str) -> None:
        mine = [wish for wish in self._steer or () if wish.nic == ifname]
        try:
            refused = {e.message for e in await asyncio.to_thread(apply, ifname, mine, self._roce)}
        except (DataplaneError, OSError) as error:
            refused = {error.message if isinstance(error, CwdpError) else str(error)}
        for message in sorted(refused - self._refused[ifname]):
            self.counters["steer_refused"] += 1
            self._refuse(ifname, message)
        self._refused[ifname] = refused


def apply(ifname: str, wanted: list[SteerQp], roce: RoceSettings | None) -> list[CwdpError]:
    """Make the steering of a NIC what is wanted.

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
        unrouted = _unrouted(ifname, new)
        steers = {key: steer for key, steer in steers.items() if key.dst not in unrouted}
        refused += steering.reconcile(steers)
        if roce is not None:
            _set_control(maps, roce)
    return refused + list(unrouted.values())


def _unrouted(ifname: str, addresses: set[Address]) -> dict[Address, CwdpError]:
    """The addresses that are not reached by a NIC, and how that is known."""
    found: dict[Address, CwdpError] = {}
    for address in addresses:
        try:
            require_routed(ifname, address)
        except CwdpError as error:
            found[address] = error
    return found


def translate(wanted: list[SteerQp]) -> tuple[dict[QpKey, Steer], list[CwdpError]]:
    """Wishes as the dataplane has them, without those that are impossible or stand twice, and why not."""
    steers: dict[QpKey, Steer] = {}
    refused: list[CwdpError] = []
    for wish in wanted:
        try:
            key = QpKey(parse_address(wish.dst_addr), wish.qpn)
            steer = Steer(wish.sport, wish.backup_sport, wish.flow_label, managed=True)
        except SteeringError as error:
            refused.append(error)
            continue
        if key in steers:
            refused.append(SteeringError(f"{key.dst} QPN {key.qpn} is wanted twice", "take one of them away"))
        else:
            steers[key] = steer
    return steers, refused


def _set_control(maps: Maps, roce: RoceSettings) -> None:
    control = maps.control
    control["dead_after_ns"] = round(roce.dead_after_ms * _NS_PER_MS)
    control["hold_down_ns"] = round(roce.hold_down_ms * _NS_PER_MS)
    control["hold_down_max_ns"] = round(roce.hold_down_max_ms * _NS_PER_MS)
    control["sample_below"] = sample_below(roce.sample_every)
