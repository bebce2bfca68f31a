"""One-way delays of the data packets of each queue pair: stamps of hosts in, the last few hundred delays kept.

A flow is one direction of a queue pair: source NIC, destination address, destination QPN. Memory is bounded by
`MOST_FLOWS` and linear in the flows that there are.
"""

import itertools
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cwdp.shared.bus.records import EGRESS, packed_address
from manager.hosts.members import Host
from manager.queue_pairs.sample_join import STAMP, SampleJoin, packet_names

KEPT = 256
WINDOW_NS = 30_000_000_000
MOST_FLOWS = 65_536

NicName = tuple[str, str]
FlowName = tuple[NicName, bytes, int]
Rows = NDArray[np.void]


@dataclass(frozen=True)
class FlowDelay:
    """Delays of a flow's data packets over the last 30 s, the last `KEPT` at most; all in ns."""

    samples: int
    min_ns: int
    p50_ns: int
    p99_ns: int
    max_ns: int
    bound_ns: int


@dataclass(frozen=True)
class FlowSamples:
    """The delays of a flow's stamped data packets, by when they left on the timeline; int64 ns, shape (samples,) each."""

    time_ns: NDArray[np.int64]
    owd_ns: NDArray[np.int64]
    bound_ns: NDArray[np.int64]


class QpDelays:
    """Joins the stamps of all hosts and keeps the delays.

    Attributes:
        outcomes: what became of stamps, see `SampleJoin`; `unknown_address` were for, or from, no NIC of the fleet,
            `unlisted` of more flows than are kept.
    """

    def __init__(self) -> None:
        self._join = SampleJoin()
        self.outcomes: Counter[str] = self._join.outcomes
        self.outcomes.update(dict.fromkeys(("unknown_address", "unlisted"), 0))
        self._numbers: dict[NicName, int] = {}
        self._next_number = itertools.count()
        self._by_address: dict[bytes, int] = {}
        self._flows: dict[FlowName, int] = {}
        self._free: list[int] = []
        self._next = np.zeros(0, np.int64)
        self._heard_ns = np.zeros(0, np.int64)
        self._time_ns = np.zeros((0, KEPT), np.int64)
        self._owd_ns = np.zeros((0, KEPT), np.int64)
        self._bound_ns = np.zeros((0, KEPT), np.int64)

    def __len__(self) -> int:
        return len(self._flows)

    def know(self, hosts: Iterable[Host]) -> None:
        """Learn whose address is whose, of two that claim one the first's; NICs that are not there are forgotten."""
        before, self._numbers = self._numbers, {}
        self._by_address.clear()
        for host in hosts:
            for nic in host.hello.nics:
                name = host.hello.host, nic.ifname
                if name in before:
                    self._numbers[name] = before[name]
                number = self._number(name)
                for address in (nic.ipv4, nic.ipv6):
                    if address is not None:
                        self._by_address.setdefault(packed_address(address), number)

    def hear(self, nic: NicName, rows: Rows, now_ns: int) -> None:
        """Take in a NIC's stamps, dtype SAMPLE_ROW, at a time of the timeline."""
        addresses, inverse = np.unique(rows["addr"], axis=0, return_inverse=True)
        packed = [address.tobytes() for address in addresses]
        peers = np.array([self._by_address.get(address, -1) for address in packed], dtype=np.int64)
        peer = peers[inverse.ravel()]
        known = peer >= 0
        self.outcomes["unknown_address"] += int(np.count_nonzero(~known))
        rows, peer, which = rows[known], peer[known], inverse.ravel()[known]
        mine = np.full(len(rows), self._number(nic), dtype=np.int64)
        leaves = rows["direction"] == EGRESS
        stamps = np.zeros(len(rows), dtype=STAMP)
        stamps["name"] = packet_names(
            np.where(leaves, mine, peer), np.where(leaves, peer, mine), rows["qpn"], rows["psn"]
        )
        for name in ("time_ns", "bound_ns", "sport", "direction"):
            stamps[name] = rows[name]
        stamps["flow"] = -1
        stamps["flow"][leaves] = self._flows_of(nic, packed, which[leaves], rows["qpn"][leaves])
        self.outcomes["unlisted"] += int(np.count_nonzero(leaves & (stamps["flow"] < 0)))
        self._heard_ns[stamps["flow"][stamps["flow"] >= 0]] = now_ns
        self._join.add(stamps[~leaves | (stamps["flow"] >= 0)])

    def join(self, now_ns: int) -> None:
        """Find the packets whose stamps have settled by now, a time of the timeline."""
        joined = self._join.join(now_ns)
        joined = joined[np.argsort(joined["flow"], kind="stable")]
        flow, first, count = np.unique(joined["flow"], return_index=True, return_counts=True)
        from_end = np.repeat(first + count, count) - np.arange(len(joined))
        joined = joined[from_end <= KEPT]
        kept = np.minimum(count, KEPT)
        rank = np.arange(len(joined)) - np.repeat(np.cumsum(kept) - kept, kept)
        row = joined["flow"]
        slot = (self._next[row] + rank) % KEPT
        self._time_ns[row, slot] = joined["time_ns"]
        self._owd_ns[row, slot] = joined["owd_ns"]
        self._bound_ns[row, slot] = joined["bound_ns"]
        self._next[flow] = (self._next[flow] + kept) % KEPT

    def expire(self, now_ns: int) -> None:
        """Forget flows of which nothing was stamped for long."""
        for name, row in list(self._flows.items()):
            if now_ns - self._heard_ns[row] > WINDOW_NS:
                del self._flows[name]
                self._free.append(row)

    def delay(self, nic: NicName, address: bytes, qpn: int, now_ns: int) -> FlowDelay | None:
        """The delays of a flow from a NIC; None where there are none."""
        row = self._flows.get((nic, address, qpn))
        if row is None:
            return None
        current = self._time_ns[row] > now_ns - WINDOW_NS
        owd_ns = np.sort(self._owd_ns[row][current])
        if not len(owd_ns):
            return None
        middle, high = (int(owd_ns[round(q * (len(owd_ns) - 1))]) for q in (0.5, 0.99))
        bound_ns = int(self._bound_ns[row][current].max())
        return FlowDelay(len(owd_ns), int(owd_ns[0]), middle, high, int(owd_ns[-1]), bound_ns)

    def samples(self, nic: NicName, address: bytes, qpn: int, since_ns: int) -> FlowSamples | None:
        """The delays of a flow from a NIC since a moment of the timeline, those that are kept; None where there are none."""
        row = self._flows.get((nic, address, qpn))
        if row is None:
            return None
        order = np.argsort(self._time_ns[row], kind="stable")
        order = order[self._time_ns[row][order] >= since_ns]
        if not len(order):
            return None
        return FlowSamples(*(table[row][order] for table in (self._time_ns, self._owd_ns, self._bound_ns)))

    def _flows_of(
        self, nic: NicName, addresses: list[bytes], which: NDArray[np.intp], qpn: NDArray[np.uint32]
    ) -> NDArray[np.int64]:
        """The numbers of the flows from a NIC to addresses and QPNs; -1 for those that there is no room for."""
        both = which.astype(np.int64) << 32 | qpn.astype(np.int64)
        distinct, inverse = np.unique(both, return_inverse=True)
        flows = [self._flow((nic, addresses[name >> 32], name & 0xFFFFFFFF)) for name in distinct.tolist()]
        return np.array(flows, dtype=np.int64)[inverse]

    def _flow(self, name: FlowName) -> int:
        row = self._flows.get(name)
        if row is not None:
            return row
        if not self._free:
            if len(self._next) >= MOST_FLOWS:
                return -1
            self._grow()
        row = self._flows[name] = self._free.pop()
        self._next[row] = 0
        self._time_ns[row] = 0
        return row

    def _grow(self) -> None:
        """Double the room for flows."""
        old = len(self._next)
        new = max(64, 2 * old)
        self._free.extend(range(new - 1, old - 1, -1))
        self._next, self._heard_ns = (
            np.concatenate([column, np.zeros(new - old, np.int64)]) for column in (self._next, self._heard_ns)
        )
        more = np.zeros((new - old, KEPT), np.int64)
        self._time_ns, self._owd_ns, self._bound_ns = (
            np.concatenate([table, more]) for table in (self._time_ns, self._owd_ns, self._bound_ns)
        )

    def _number(self, nic: NicName) -> int:
        if nic not in self._numbers:
            self._numbers[nic] = next(self._next_number)
        return self._numbers[nic]
