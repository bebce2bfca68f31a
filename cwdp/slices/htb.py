"""Slices as classes of the qdisc htb, chosen by skb->priority.

    4791:      htb
    └── 4791:1      the link: its rate, and what is left is borrowed by priority
        ├── 4791:2      all that is in no slice: what is not guaranteed to anybody, last in line
        ├── 4791:3      the agent's probes: first in line
        ├── 4791:100    slice 1
        └── 4791:200    slice 2, whose queue pairs have a rate of their own
            ├── 4791:201
            └── ...         one class a queue pair

Classes are changed in place, and removed when they have run empty, so that no packet is lost. What waits in a slice goes
before what waits in none, so a queue pair that leaves its slice for none keeps its order. One that comes into a slice,
or changes it, while packets of it wait may see that they are overtaken, once.
"""

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from pyroute2 import IPRoute

from cwdp.dataplane import abi
from cwdp.shared.slices import MAX_PRIORITY, Share
from cwdp.slices import qdiscs
from cwdp.slices.enforcer import Usage
from cwdp.slices.qdiscs import HANDLE, Place
from cwdp.slices.shares import rest_bps

LINK, DEFAULT, PROBES = HANDLE | 1, HANDLE | 2, HANDLE | 3
NUMBER_SHIFT = 8
MINOR_MASK = 0xFFFF
QP_CLASSES = 64
QUEUE_PACKETS = 10_000
"""RoCEv2 does not back off for a short queue, it sends again; what bounds it is the senders' windows."""

REST_PRIORITY = MAX_PRIORITY + 1
LINK_BURST_S = 0.005
BURST_S = 0.002
QP_GUARANTEED_BPS = 80_000
PROBE_SHARE = 0.02
DRAIN_BPS = 8 * 10**12


@dataclass(frozen=True)
class Limits:
    """What a class is guaranteed, what it may borrow up to, and its place in line.

    Attributes:
        burst_s: how late a timer may be without costing rate; so much is sent at once.
    """

    guaranteed_bps: int
    ceiling_bps: int
    priority: int
    burst_s: float = BURST_S


@dataclass(frozen=True)
class Class:
    """A class as it is."""

    parent: int
    waiting_packets: int
    usage: Usage

    @classmethod
    def read(cls, message: Any) -> "Class":
        """From netlink's RTM_NEWTCLASS."""
        stats = message.get_attr("TCA_STATS2")
        queue = stats.get_attr("TCA_STATS_QUEUE")
        sent_bytes = stats.get_attr("TCA_STATS_BASIC")["bytes"]
        usage = Usage(sent_bytes, queue["backlog"], queue["drops"])
        return cls(message["parent"], queue["qlen"], usage)


def class_id(number: int) -> int:
    """The class of a slice."""
    return HANDLE | number << NUMBER_SHIFT


def number_of(handle: int) -> int:
    """The slice that a class belongs to; 0 for those that belong to none."""
    return (handle & MINOR_MASK) >> NUMBER_SHIFT


def classes_of(number: int, share: Share) -> dict[int, tuple[int, Limits]]:
    """The classes of a slice, parents first: each with its parent."""
    own = class_id(number)
    classes = {own: (LINK, Limits(share.guaranteed_bps, share.ceiling_bps, share.priority))}
    if share.qp_bps:
        each = Limits(min(QP_GUARANTEED_BPS, share.qp_bps), share.qp_bps, share.priority)
        classes |= {own + 1 + i: (own, each) for i in range(QP_CLASSES)}
    return classes


def common_classes(wanted: Iterable[Share], link_bps: int) -> dict[int, tuple[int, Limits]]:
    """The classes that belong to no slice."""
    probe_bps = round(link_bps * PROBE_SHARE)
    return {
        LINK: (HANDLE, Limits(link_bps, link_bps, 0, LINK_BURST_S)),
        DEFAULT: (LINK, Limits(rest_bps(wanted, link_bps), link_bps, REST_PRIORITY)),
        PROBES: (LINK, Limits(probe_bps, link_bps, 0)),
    }


class Htb:
    """The classes of one interface.

    Args:
        ip: a netlink socket in the interface's namespace; it stays the caller's.
        frame_bytes: longest Ethernet frame, without FCS.
    """

    kind = abi.Enforcer.HTB
    probe_class = PROBES

    def __init__(self, ip: IPRoute, index: int, place: Place, frame_bytes: int) -> None:
        self._ip = ip
        self._index = index
        self._place = place
        self._frame_bytes = frame_bytes

    def hold(self, wanted: Mapping[int, Share], link_bps: int) -> None:
        """Make or change the classes of these slices, and what all have in common."""
        present = self._classes()
        classes = common_classes(wanted.values(), link_bps)
        for number, share in wanted.items():
            classes |= classes_of(number, share)
        for handle, (parent, limits) in classes.items():
            self._set(handle, parent, limits)
            if handle not in present and not _has_children(handle, classes):
                self._ip.tc("add", "pfifo", index=self._index, parent=handle, limit=QUEUE_PACKETS)

    def describe(self, record: np.void, number: int, share: Share) -> None:
        """Write the class of a slice, and how many there are below it."""
        record["class_id"] = class_id(number)
        record["leaves"] = QP_CLASSES if share.qp_bps else 0

    def release(self, numbers: Collection[int]) -> None:
        """Have the classes of some slices run empty."""
        self._drain(self._classes_of(numbers))

    def remove(self, numbers: Collection[int]) -> None:
        """Remove the classes of some slices, children first."""
        leaving = self._classes_of(numbers)
        self._drain(leaving)
        for handle in sorted(leaving, reverse=True):
            self._ip.tc("del-class", index=self._index, handle=handle)

    def usage(self) -> dict[int, Usage]:
        """What passes; what is in no slice is under 0."""
        found: dict[int, Usage] = {}
        for handle, seen in self._classes().items():
            if handle not in (LINK, PROBES):
                number = number_of(handle)
                whole_slice = found.get(number, Usage())
                sent_bytes = seen.usage.sent_bytes if seen.parent == LINK else 0  # of its classes too
                found[number] = Usage(
                    whole_slice.sent_bytes + sent_bytes,
                    whole_slice.backlog_bytes + seen.usage.backlog_bytes,
                    whole_slice.dropped_packets + seen.usage.dropped_packets,
                )
        return found

    def let_go(self) -> None:
        """Have the classes of all slices run empty."""
        self._hold_nothing(DEFAULT, LINK, REST_PRIORITY)
        self._drain({handle: seen for handle, seen in self._classes().items() if number_of(handle)})

    def dismantle(self) -> bool:
        """Remove the qdisc as soon as it is idle."""
        if not qdiscs.becomes(partial(qdiscs.is_idle, self._load)):
            return False
        qdiscs.take_away(self._ip, self._index, self._place)
        return True

    def _set(self, handle: int, parent: int, limits: Limits) -> None:
        rate, ceiling = limits.guaranteed_bps // 8, limits.ceiling_bps // 8
        self._ip.tc(
            "replace-class",
            "htb",
            index=self._index,
            handle=handle,
            parent=parent,
            rate=rate,
            ceil=ceiling,
            burst=self._frame_bytes + math.ceil(rate * limits.burst_s),
            cburst=self._frame_bytes + math.ceil(ceiling * limits.burst_s),
            prio=limits.priority,
            quantum=self._frame_bytes,
            mtu=self._frame_bytes,
        )

    def _classes(self) -> dict[int, Class]:
        found = (c for c in self._ip.get_classes(index=self._index) if c["handle"] & ~MINOR_MASK == HANDLE)
        return {c["handle"]: Class.read(c) for c in found}

    def _classes_of(self, numbers: Collection[int]) -> dict[int, Class]:
        return {handle: seen for handle, seen in self._classes().items() if number_of(handle) in numbers}

    def _drain(self, leaving: Mapping[int, Class]) -> None:
        """Wait until nothing is left in some classes, for as long as a queue may take."""
        for handle, seen in leaving.items():
            self._hold_nothing(handle, seen.parent, 0)
        qdiscs.becomes(lambda: not self._waiting(leaving))

    def _hold_nothing(self, handle: int, parent: int, priority: int) -> None:
        self._set(handle, parent, Limits(DRAIN_BPS, DRAIN_BPS, priority))

    def _load(self) -> tuple[int, int]:
        """How many packets wait, and the bytes of all that have passed."""
        classes = self._classes().values()
        return sum(seen.waiting_packets for seen in classes), sum(seen.usage.sent_bytes for seen in classes)

    def _waiting(self, handles: Collection[int]) -> int:
        return sum(seen.waiting_packets for handle, seen in self._classes().items() if handle in handles)


def _has_children(handle: int, classes: Mapping[int, tuple[int, Limits]]) -> bool:
    return any(parent == handle for parent, _ in classes.values())


def put_htb(ip: IPRoute, index: int, place: Place) -> None:
    """Have htb at a place, still without classes: what passes is not held up."""
    qdiscs.put(ip, index, place, "htb", default=DEFAULT & MINOR_MASK)
