"""Slices by earliest departure times, which the dataplane writes into packets and the qdisc fq keeps.

The dataplane holds each slice to a rate; nothing in the kernel gives what one leaves unused to another. That is done
by `cwdp.slices.borrowing`, as long as it runs. Without it every slice has its guarantee, and what is in none the rest.
"""

import time
from collections.abc import Collection, Mapping
from functools import partial
from typing import Any

import numpy as np
from pyroute2 import IPRoute, NetlinkError
from pyroute2.netlink.rtnl import TC_H_ROOT

from cwdp.dataplane import abi
from cwdp.dataplane.abi import Direction
from cwdp.dataplane.pinned.maps import Maps
from cwdp.shared.slices import MAX_PRIORITY, Share
from cwdp.slices import qdiscs
from cwdp.slices.enforcer import Usage
from cwdp.slices.qdiscs import HANDLE, Place
from cwdp.slices.shares import rest_bps

QUEUE_PACKETS = 1_000_000
"""RoCEv2 does not back off for a short queue, it sends again; what bounds it is the senders' windows."""

FQ_SETTINGS = {
    "plimit": QUEUE_PACKETS,
    "flow_plimit": QUEUE_PACKETS,
    "horizon": 10_000_000,
    "horizon_drop": 0,
}
PACE_SHIFT = 18
NS_BITS_PER_BYTE = 8 * 10**9


def pace_q18(rate_bps: float) -> int:
    """A rate as the dataplane has it: 2^-18 ns per byte; at least 1, since 0 is no pace."""
    return max(round((NS_BITS_PER_BYTE << PACE_SHIFT) / rate_bps), 1)


class Edt:
    """The departure times on one interface.

    Args:
        ip: a netlink socket in the interface's namespace; it stays the caller's.
        maps: of the interface.
    """

    kind = abi.Enforcer.EDT
    probe_class = 0

    def __init__(self, ip: IPRoute, index: int, place: Place, maps: Maps) -> None:
        self._ip = ip
        self._index = index
        self._place = place
        self._maps = maps

    def hold(self, wanted: Mapping[int, Share], link_bps: int) -> None:
        """Slices need no room here; what is in none has what they leave."""
        rest = self._maps.slices[0]
        rest["ceiling_bps"] = link_bps
        rest["guaranteed_bps"] = rest_bps(wanted.values(), link_bps)
        rest["priority"] = MAX_PRIORITY + 1
        rest["fair_q18"] = pace_q18(float(rest["guaranteed_bps"]))

    def describe(self, record: np.void, number: int, share: Share) -> None:
        """Write the rates of a slice that borrows nothing."""
        del number
        record["fair_q18"] = pace_q18(share.guaranteed_bps)
        record["qp_pace_q18"] = pace_q18(share.qp_bps) if share.qp_bps else 0

    def release(self, numbers: Collection[int]) -> None:
        """Give packets of some slices leave to go at once, and wait until those that have a time are gone."""
        slices = self._maps.slices
        for number in numbers:
            slices["lease_ns"][number], slices["fair_q18"][number], slices["qp_pace_q18"][number] = 0, 1, 0
        self._maps.next_generation()
        qdiscs.becomes(lambda: self._last_departure_ns(numbers) <= time.monotonic_ns())

    def remove(self, numbers: Collection[int]) -> None:
        """Nothing: a slice has no queue of its own here."""

    def usage(self) -> dict[int, Usage]:
        """What passes. Slices have no queues of their own here: what fq has dropped is under 0."""
        slices, now_ns = self._maps.slices, time.monotonic_ns()
        found: dict[int, Usage] = {}
        for number in np.flatnonzero(slices["fair_q18"]):
            ahead_ns = max(int(slices["departure_ns"][number]) - now_ns, 0)
            backlog_bytes = (ahead_ns << PACE_SHIFT) // int(slices["fair_q18"][number])
            dropped = 0 if number else self._queued("drops")
            found[int(number)] = Usage(int(slices["bytes"][number]), backlog_bytes, dropped)
        return found

    def let_go(self) -> None:
        """Give all packets leave to go."""
        self.release(np.flatnonzero(self._maps.slices["fair_q18"]).tolist())

    def dismantle(self) -> bool:
        """Remove fq as soon as it is idle."""
        if not qdiscs.becomes(partial(qdiscs.is_idle, self._load)):
            return False
        qdiscs.take_away(self._ip, self._index, self._place)
        return True

    def _last_departure_ns(self, numbers: Collection[int]) -> int:
        pairs = self._maps.qps[Direction.EGRESS]
        theirs = pairs["departure_ns"][np.isin(pairs["slice"], list(numbers))]
        return max(
            [int(theirs.max(initial=0)), *(int(self._maps.slices["departure_ns"][n]) for n in numbers)]
        )

    def _load(self) -> tuple[int, int]:
        """How many packets wait, and the bytes of all that have passed."""
        stats = self._stats()
        waiting = sum(each.get_attr("TCA_STATS_QUEUE")["qlen"] for each in stats)
        return waiting, sum(each.get_attr("TCA_STATS_BASIC")["bytes"] for each in stats)

    def _queued(self, count: str) -> int:
        """One of the counts of fq's queues, all of them together."""
        return sum(each.get_attr("TCA_STATS_QUEUE")[count] for each in self._stats())

    def _stats(self) -> list[Any]:
        kept = (q for q in self._ip.get_qdiscs(index=self._index) if q.get_attr("TCA_KIND") == "fq")
        return [q.get_attr("TCA_STATS2") for q in kept]


def put_fq(ip: IPRoute, index: int, place: Place) -> bool:
    """Have fq keep departure times, one for each transmit queue; False where the kernel has no fq."""
    per_queue = place.parent == TC_H_ROOT and place.queues > 1
    try:
        if per_queue:
            qdiscs.put(ip, index, place, "mq")
            for queue in range(1, place.queues + 1):
                ip.tc("replace", "fq", index=index, parent=HANDLE | queue, handle=0, **FQ_SETTINGS)
        else:
            qdiscs.put(ip, index, place, "fq", **FQ_SETTINGS)
    except NetlinkError as error:
        if error.code != qdiscs.UNKNOWN_KIND:
            raise
        if per_queue:
            qdiscs.take_away(ip, index, place)
        return False
    return True
