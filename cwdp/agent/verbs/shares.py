"""What queue pairs send where no dataplane sees them: each its part of what their NIC sends.

The NIC's counters say how much that is, headers and retransmissions included. How it is parted is told by counts of the queue
pairs' own, the kernel's where a counter is bound to them, else those of the verbs shim, which count what programs post. What
these do not account for is of queue pairs that nobody counts, in equal parts. No count makes a NIC send more than it does.
"""

import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cwdp.agent.queuepairs import MOST_LISTED, QUIET_NS, ROWS_PER_QP_REPORT
from cwdp.agent.verbs.orders import VerbsQp
from cwdp.agent.verbs.reports import write_addresses
from cwdp.agent.verbs.sources import Sent, sent
from cwdp.rdma.shimwire import RTS
from cwdp.shared.bus.messages import NicQueuePairs
from cwdp.shared.bus.packing import row_bytes
from cwdp.shared.bus.records import EGRESS, QP_ROW

KEPT = 0.5
"""Of what was counted until the last report: counts come once a second, and what is posted at once is sent little by little."""

HEADER_BYTES = 100
"""Of a packet, at most: what is left of packets of this size is of nobody in particular."""

Own = Callable[[VerbsQp], int | None]
"""What a queue pair has sent by a count of its own, in bytes; None where nobody counts it."""


class Lately(NamedTuple):
    """What a NIC has sent of late."""

    packets: float
    bytes: float


def parts(total: Lately, own: Mapping[int, float]) -> dict[int, float]:
    """Each queue pair's part of what its NIC has sent; they add up to 1.

    Args:
        total: what the NIC has sent of late.
        own: what queue pairs have sent in that time by their own counts, in bytes, by number; 0 of those that nobody counts too.
    """
    counted = sum(own.values())
    uncounted = [number for number, octets in own.items() if not octets]
    rest = total.bytes - counted - HEADER_BYTES * total.packets
    if not counted or (uncounted and rest > 0):
        each = max(0.0, total.bytes - counted) / max(1, len(uncounted))
        own = {number: octets or each for number, octets in own.items()}
    whole = sum(own.values())
    return {number: octets / whole if whole else 1 / len(own) for number, octets in own.items()}


class SentShares:
    """What queue pairs of each NIC have sent.

    Args:
        read: tells what a NIC has sent.
        now_ns: a steady clock.
    """

    def __init__(
        self,
        read: Callable[[str, str, int], Sent | None] = sent,
        now_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._read, self._now_ns = read, now_ns
        self._before: dict[str, Sent] = {}
        self._lately: dict[str, Lately] = {}
        self._told_ns: dict[str, int] = {}
        self._totals: dict[int, tuple[float, float]] = {}
        self._own_before: dict[int, int] = {}
        self._own_lately: dict[int, float] = {}

    def reports(
        self,
        queue_pairs: Iterable[VerbsQp],
        nics: Collection[str],
        ports: dict[str, tuple[str, int]],
        own: Own,
    ) -> Iterator[NicQueuePairs]:
        """The queue pairs that can send, of the NICs that send.

        Args:
            queue_pairs: all that there are.
            nics: those without a dataplane.
            ports: the device and port of each.
            own: counts of queue pairs.
        """
        by_nic: defaultdict[str, list[VerbsQp]] = defaultdict(list)
        for qp in queue_pairs:
            if qp.nic in nics and qp.state == RTS:
                by_nic[qp.nic].append(qp)
        kept = {qp.number for those in by_nic.values() for qp in those}
        for memory in (self._totals, self._own_before, self._own_lately):
            for number in memory.keys() - kept:
                del memory[number]
        for nic, those in by_nic.items():
            self._count(those, own)
            is_sending = nic in ports and self._share(nic, *ports[nic], those)
            if is_sending or self._now_ns() - self._told_ns.get(nic, -QUIET_NS) >= QUIET_NS:
                self._told_ns[nic] = self._now_ns()
                yield from _listed(nic, self._rows(those) if is_sending else np.zeros(0, QP_ROW))

    def _count(self, queue_pairs: list[VerbsQp], own: Own) -> None:
        """Take in what queue pairs have sent by their own counts since the last time."""
        for qp in queue_pairs:
            now = own(qp)
            more = 0 if now is None else max(0, now - self._own_before.get(qp.number, now))
            self._own_lately[qp.number] = KEPT * self._own_lately.get(qp.number, 0.0) + more
            if now is not None:
                self._own_before[qp.number] = now

    def _share(self, nic: str, device: str, port: int, queue_pairs: list[VerbsQp]) -> bool:
        """Part what was sent since the last time; whether that was anything."""
        now, before = self._read(nic, device, port), self._before.get(nic)
        if now is None:
            return False
        self._before[nic] = now
        if before is None or now.bytes < before.bytes or now.packets <= before.packets:
            return False
        packets, octets = (a - b for a, b in zip(now, before, strict=True))
        lately = self._lately.get(nic, Lately(0.0, 0.0))
        self._lately[nic] = Lately(KEPT * lately.packets + packets, KEPT * lately.bytes + octets)
        of = parts(self._lately[nic], {qp.number: self._own_lately[qp.number] for qp in queue_pairs})
        for number, part in of.items():
            had = self._totals.get(number, (0.0, 0.0))
            self._totals[number] = had[0] + part * packets, had[1] + part * octets
        return True

    def _rows(self, queue_pairs: list[VerbsQp]) -> NDArray[np.void]:
        """QP_ROWs, one for each far end."""
        far_ends = list({(qp.dst_addr, qp.qpn): qp for qp in queue_pairs}.values())
        rows = np.zeros(len(far_ends), QP_ROW)
        write_addresses(rows, far_ends)
        rows["direction"] = EGRESS
        totals = [self._totals.get(qp.number, (0.0, 0.0)) for qp in far_ends]
        rows["packets"], rows["bytes"] = np.array(totals).T.astype(np.uint64)
        return rows


def _listed(nic: str, rows: NDArray[np.void]) -> Iterator[NicQueuePairs]:
    unlisted = max(0, len(rows) - MOST_LISTED)
    rows = rows[:MOST_LISTED]
    for start in range(0, max(1, len(rows)), ROWS_PER_QP_REPORT):
        chunk = row_bytes(rows[start : start + ROWS_PER_QP_REPORT])
        yield NicQueuePairs(nic=nic, rows=chunk, unlisted=0 if start else unlisted)
