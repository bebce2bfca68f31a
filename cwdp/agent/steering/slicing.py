"""Keeps the bandwidth slices of this host's NICs as the manager wants them; what was applied by hand stays."""

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from pyroute2 import IPRoute

from cwdp.agent.steering.desired import Reconciler
from cwdp.dataplane.pinned import tree
from cwdp.dataplane.pinned.maps import Maps
from cwdp.errors import CwdpError
from cwdp.shared.bus.messages import NicSlices
from cwdp.shared.slices import SliceSet
from cwdp.slices.slicing import Deletion, Slicing

BORROW_INTERVAL_S, NO_SLICES_INTERVAL_S = 0.02, 0.5


class Lending(Protocol):
    """See `cwdp.agent.nic.HostNic`."""

    def share_unused(self, now_ns: int) -> bool:
        """Let its slices borrow; whether it has any."""


async def share_unused(nics: Sequence[Lending]) -> None:
    """Let slices borrow unused bandwidth, for ever; where there are none, see now and then whether that has changed."""
    while True:
        now_ns = time.monotonic_ns()
        are_sliced = [nic.share_unused(now_ns) for nic in nics]
        await asyncio.sleep(BORROW_INTERVAL_S if any(are_sliced) else NO_SLICES_INTERVAL_S)


class DesiredSlices(Reconciler):
    """The slices that are wanted of each NIC; see `Reconciler`.

    They are applied when they change and when the dataplane is a new one. In between it is seen to that they are
    there: somebody may delete them, or their qdisc.
    """

    def __init__(self, ifnames: Sequence[str], refuse: Callable[[str, str], None]) -> None:
        super().__init__(ifnames, refuse, "slice_refused")
        self._wanted: dict[str, SliceSet] | None = None
        self._applied: dict[str, SliceSet] = {}
        self._lingering: set[str] = set()

    def want(self, slices: list[NicSlices]) -> None:
        """Have these from now on."""
        before, self._wanted = self._wanted, {one.nic: one.wanted for one in slices}
        self._look_at(i for i in self._ifnames if before is None or before.get(i) != self._wanted.get(i))

    def loaded(self, ifname: str) -> None:
        """The dataplane of a NIC was found or loaded."""
        if self._wanted is not None:
            self._look_at([ifname])

    def _unsettled(self) -> set[str]:
        sliced = set(self._ifnames) & (self._wanted or {}).keys()
        return super()._unsettled() | self._lingering | sliced

    def _reconcile(self, ifname: str) -> list[CwdpError]:
        wanted, where = (self._wanted or {}).get(ifname), tree.here(ifname)
        before = self._applied.pop(ifname, None)
        if wanted is None and not where.path.exists():
            self._lingering.discard(ifname)
            return []
        with tree.locked(), Maps(where) as maps, IPRoute() as ip:
            slicing = Slicing(maps, ip, ifname)
            if wanted is None:
                self._drop(ifname, slicing)
            else:
                if wanted != before or not (slicing.managed and slicing.holding):
                    slicing.apply(wanted, managed=True)
                self._applied[ifname] = wanted
        return []

    def _drop(self, ifname: str, slicing: Slicing) -> None:
        """Have no slices but those applied by hand; a qdisc that packets still wait in is tried again later."""
        left = ifname in self._lingering and not slicing.enforcer
        self._lingering.discard(ifname)
        if (slicing.managed or left) and slicing.delete() is Deletion.QDISC_STAYS:
            self._lingering.add(ifname)
