"""The slices of one interface: what is wanted brought into the qdiscs and the dataplane's maps, and read from them."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum, IntFlag

import numpy as np
from numpy.typing import NDArray
from pyroute2 import IPRoute

from cwdp.dataplane import abi
from cwdp.dataplane.abi import Direction
from cwdp.dataplane.kernel.barrier import store_barrier
from cwdp.dataplane.kernel.interface import ifindex_of
from cwdp.dataplane.pinned.maps import Maps
from cwdp.errors import ConfigError
from cwdp.shared.rates import format_rate
from cwdp.shared.slices import DEFAULT_PRIORITY, Job, Match, Share, SliceSet
from cwdp.slices import jobs, qdiscs, shares
from cwdp.slices.edt import Edt, put_fq
from cwdp.slices.enforcer import Enforcer, Usage
from cwdp.slices.htb import Htb, put_htb
from cwdp.slices.qdiscs import Place
from cwdp.slices.shares import Shape

ETHERNET_BYTES = 18
"""Of an Ethernet header with one VLAN tag."""

SETTLE_S = 0.005
"""A packet that was judged by the old rules has reached the qdisc by then."""


EVERYTHING = "(everything)"
"""Name of the slice of all queue pairs where nobody asked for any; no name that can be asked for."""

EVERYTHING_SHARE = 0.9
"""Of the link, guaranteed to it: the rest is for what is not RoCEv2."""

ALL_DESTINATIONS = ("0.0.0.0/0", "2000::/3", "fc00::/7", "fe80::/10")


class SliceFlag(IntFlag):
    """Whether the slices are of the desired state, and whether each queue pair is held to a rate of its own."""

    MANAGED = 1
    APART = 2


class Deletion(Enum):
    """What became of the slices of an interface."""

    NOTHING = "there are no slices"
    DONE = "no slices any more"
    QDISC_STAYS = (
        "no slices any more; their qdisc stays, holding nothing back, while packets pass: delete again later"
    )


@dataclass(frozen=True)
class Listed:
    """A slice as it is; number 0 is all that is in none, and has neither name nor matches."""

    number: int
    name: str
    guaranteed_bps: int
    ceiling_bps: int
    priority: int
    qp_bps: int
    matches: tuple[Match, ...]
    queue_pairs: int
    usage: Usage


class Slicing:
    """The slices of one interface. Callers that change them hold `tree.locked()`.

    Args:
        maps: the interface's open maps; they stay the caller's.
        ip: a netlink socket in the interface's namespace; it stays the caller's.
    """

    def __init__(self, maps: Maps, ip: IPRoute, ifname: str) -> None:
        self._maps = maps
        self._ip = ip
        self._ifname = ifname
        self._index = ifindex_of(ifname)

    @property
    def enforcer(self) -> abi.Enforcer:
        """What holds the slices to their rates; NONE where there are none."""
        return abi.Enforcer(int(self._maps.slice_table["enforcer"][0]))

    @property
    def link_bps(self) -> int:
        """Of the link that they are slices of."""
        return int(self._maps.slice_table["link_bps"][0])

    @property
    def knows_link(self) -> bool:
        """Whether the rate of the link need not be given."""
        with qdiscs.kernel_errors(self._ifname):
            return qdiscs.find_place(self._ip, self._index, self._ifname).link_bps is not None

    @property
    def managed(self) -> bool:
        """Whether they are wanted by the agent's desired state."""
        return SliceFlag.MANAGED in self._flags

    @property
    def unasked(self) -> bool:
        """Whether nobody asked for the slices: there is one of everything, so that each queue pair can be paced."""
        return bool((self._maps.slices["name"] == EVERYTHING.encode()).any())

    @property
    def _flags(self) -> SliceFlag:
        return SliceFlag(int(self._maps.slice_table["managed"][0]))

    @property
    def holding(self) -> bool:
        """Whether there are slices and their qdisc still is where they put it."""
        with qdiscs.kernel_errors(self._ifname):
            place = qdiscs.find_place(self._ip, self._index, self._ifname)
        return bool(self.enforcer) and place.ours is not None

    def apply(self, wanted: SliceSet, *, managed: bool = False) -> None:
        """Have exactly these slices; what does not change keeps its queue, and no packet is lost. None: as `delete`.

        Raises:
            ConfigError: they cannot be had, or somebody applied others by hand and `managed` is set.
            ForeignQdiscError: somebody else shapes the interface.
            DataplaneError: the kernel refused.
        """
        if managed and self.enforcer and not (self.managed or self.unasked):
            raise ConfigError(
                f"the slices of {self._ifname} were applied by hand",
                f"let go of them: cwdp slice delete --dev {self._ifname}",
            )
        if not wanted.slice:
            self.delete()
            return
        flags = (self._flags & SliceFlag.APART) | (SliceFlag.MANAGED if managed else SliceFlag(0))
        with qdiscs.kernel_errors(self._ifname):
            place = qdiscs.find_place(self._ip, self._index, self._ifname)
            link_bps = self._choose_link_bps(wanted, place)
            self._have(place, wanted.shares(link_bps), link_bps, wanted.job, flags)

    def hold_apart(self, link_rate: str | None = None) -> None:
        """See to it that each queue pair can be held to a rate of its own: in a slice of everything if there are none.

        Slices that are there already have their queue pairs held apart from when they are applied again.

        Args:
            link_rate: of the interface, if the kernel does not know it or is wrong.

        Raises:
            ConfigError: the rate of the link is not known.
            ForeignQdiscError: somebody else shapes the interface.
            DataplaneError: the kernel refused.
        """
        if self.enforcer and (self.holding or not self.unasked):
            self._maps.slice_table["managed"] = self._flags | SliceFlag.APART
            return
        with qdiscs.kernel_errors(self._ifname):
            place = qdiscs.find_place(self._ip, self._index, self._ifname)
            link_bps = self._choose_link_bps(SliceSet(link_rate=link_rate), place)
            self._have(place, (_everything(link_bps),), link_bps, (), SliceFlag.APART)

    def hold_together(self) -> None:
        """Undo `hold_apart`; slices that were asked for go on as they are until they are applied again.

        Raises:
            DataplaneError: the kernel refused.
        """
        if self.unasked:
            self.delete()
        self._maps.slice_table["managed"] = self._flags & ~SliceFlag.APART

    def _have(
        self,
        place: Place,
        asked: tuple[Share, ...],
        link_bps: int,
        members: tuple[Job, ...],
        flags: SliceFlag,
    ) -> None:
        """Have exactly these slices."""
        if SliceFlag.APART in flags:
            asked = tuple(replace(share, qp_bps=share.qp_bps or share.ceiling_bps) for share in asked)
        enforcer = self._installed(place) or self._install(place)
        present = self._present(enforcer)
        numbered = shares.number(asked, present)
        leaving = present.keys() - numbered.keys()
        enforcer.hold(numbered, link_bps)
        enforcer.release(leaving)
        jobs.replace(self._maps.jobs_fd, members, managed=SliceFlag.MANAGED in flags)
        self._publish(numbered, enforcer, link_bps, flags)
        enforcer.remove(leaving)
        self._maps.slices[list(leaving)] = np.zeros((), dtype=abi.SLICE)

    def delete(self) -> Deletion:
        """Have no slices, and no qdisc for them as soon as that loses no packet."""
        managed, gone = self.managed, Deletion.NOTHING
        with qdiscs.kernel_errors(self._ifname):
            enforcer = self._installed(qdiscs.find_place(self._ip, self._index, self._ifname))
            if enforcer:
                enforcer.let_go()
            self._publish({}, None, 0, self._flags & SliceFlag.APART)
            if enforcer:
                gone = Deletion.DONE if enforcer.dismantle() else Deletion.QDISC_STAYS
        self._maps.slices[:] = np.zeros((), dtype=abi.SLICE)
        jobs.replace(self._maps.jobs_fd, (), managed=managed)
        return gone

    def listed(self) -> list[Listed]:
        """All slices in the order of their first matches, and last what is in none; empty where there are none."""
        if not self.enforcer:
            return []
        with qdiscs.kernel_errors(self._ifname):
            enforcer = self._installed(qdiscs.find_place(self._ip, self._index, self._ifname))
        usage = enforcer.usage() if enforcer else {}
        matches = shares.matches(self._active_rules())
        queue_pairs = self._queue_pairs()
        return [
            _listed(n, self._maps.slices[n], matches.get(n, ()), int(queue_pairs[n]), usage.get(n, Usage()))
            for n in (*matches, 0)
        ]

    def _choose_link_bps(self, wanted: SliceSet, place: Place) -> int:
        link_bps = wanted.given_link_bps() or place.link_bps
        if link_bps is None:
            raise ConfigError(
                f"the driver of {self._ifname} does not tell the link's rate", "give --link-rate"
            )
        if place.limit_bytes and place.link_bps and link_bps > place.link_bps:
            raise ConfigError(
                f"{self._ifname} has a token bucket (tbf) of {format_rate(place.link_bps)}, less than the "
                f"{format_rate(link_bps)} asked for",
                "raise it, or leave the link's rate out: it is the bucket's then",
            )
        return link_bps

    def _installed(self, place: Place) -> Enforcer | None:
        if place.ours == "htb":
            mtu = self._ip.get_links(self._index)[0].get_attr("IFLA_MTU")
            return Htb(self._ip, self._index, place, mtu + ETHERNET_BYTES)
        return Edt(self._ip, self._index, place, self._maps) if place.ours else None

    def _install(self, place: Place) -> Enforcer:
        if not put_fq(self._ip, self._index, place):
            put_htb(self._ip, self._index, place)
        enforcer = self._installed(qdiscs.find_place(self._ip, self._index, self._ifname))
        assert enforcer is not None
        return enforcer

    def _present(self, enforcer: Enforcer) -> dict[int, Shape]:
        """The numbers of slices in use; those of which only the enforcer knows were left by a killed process."""
        slices = self._maps.slices
        known = {int(n): shares.shape(slices[n]) for n in np.flatnonzero(slices["name"] != b"")}
        return dict.fromkeys(enforcer.usage().keys() - {0}, ("", False)) | known

    def _active_rules(self) -> NDArray[np.void]:
        table = self._maps.slice_table[0]
        rules: NDArray[np.void] = table["lists"]["rules"][int(table["active"]) & 1]
        return rules

    def _publish(
        self, numbered: Mapping[int, Share], enforcer: Enforcer | None, link_bps: int, flags: SliceFlag
    ) -> None:
        """Tell the dataplane, and wait until no packet can be on its way that was judged by what was before."""
        for number, share in numbered.items():
            record = self._maps.slices[number]
            shares.describe(record, share)
            if enforcer:
                enforcer.describe(record, number, share)
        table = self._maps.slice_table
        inactive = 1 - (int(table["active"][0]) & 1)
        table["lists"]["rules"][0, inactive] = shares.rules(numbered)
        store_barrier()
        table["active"] = inactive
        table["enforcer"] = enforcer.kind if enforcer else abi.Enforcer.NONE
        table["probe_class"] = enforcer.probe_class if enforcer else 0
        table["link_bps"], table["managed"] = link_bps, flags
        self._maps.next_generation()
        time.sleep(SETTLE_S)

    def _queue_pairs(self) -> NDArray[np.int64]:
        """How many have sent since the last change, by slice; shape (SLICES,)."""
        pairs = self._maps.qps[Direction.EGRESS]
        seen = (pairs["tag"] != 0) & (pairs["generation"] == self._maps.control["generation"][0])
        return np.bincount(pairs["slice"][seen], minlength=abi.SLICES)


def _everything(link_bps: int) -> Share:
    return Share(
        name=EVERYTHING,
        guaranteed_bps=round(EVERYTHING_SHARE * link_bps),
        ceiling_bps=link_bps,
        priority=DEFAULT_PRIORITY,
        qp_bps=link_bps,
        matches=tuple(Match(dst=destination) for destination in ALL_DESTINATIONS),
    )


def _listed(number: int, record: np.void, matches: tuple[Match, ...], pairs: int, usage: Usage) -> Listed:
    return Listed(
        number=number,
        name=record["name"].decode(),
        guaranteed_bps=int(record["guaranteed_bps"]),
        ceiling_bps=int(record["ceiling_bps"]),
        priority=int(record["priority"]),
        qp_bps=int(record["qp_bps"]),
        matches=matches,
        queue_pairs=pairs,
        usage=usage,
    )
