"""The flows of a fleet, by the bursts that both ends tell of. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from cwdp.shared.bus.messages import nic_id
from cwdp.shared.bus.records import BURST_ROW, EGRESS, as_bytes, taken
from manager.jobs.flows import COLUMNS, BurstColumns, Flow, FlowBursts, Ints, NicName, Places, Rows, Told

ADDR_BYTES = 16


@dataclass(frozen=True, eq=False)
class OrderedBursts:
    """The bursts of all NICs, one's behind another's; those of one direction of a queue pair are together, by their beginning.

    They stay where NICs keep them, but for their times: those of thousands of NICs are hundreds of megabytes.

    Attributes:
        rings: of each NIC, dtype BURST_ROW.
        firsts: where each NIC's begin, and the end of the last one's, shape (rings + 1,).
        order: the place of each in its ring, shape (n,).
        start_ns, end_ns: shape (n,).
    """

    rings: Sequence[Rows]
    firsts: Places
    order: NDArray[np.int32]
    start_ns: Ints
    end_ns: Ints

    def take(self, places: Places) -> BurstColumns:
        """Some of them."""
        ring = np.searchsorted(self.firsts, places, side="right") - 1
        by_ring = np.argsort(ring, kind="stable")
        edges = np.concatenate([[0], np.flatnonzero(np.diff(ring[by_ring])) + 1, [len(ring)]])
        rows = np.empty(len(places), BURST_ROW)
        for begin, end in pairwise(edges.tolist() if len(ring) else []):
            these = by_ring[begin:end]
            as_bytes(rows)[these] = as_bytes(self.rings[ring[these[0]]])[self.order[places[these]]]
        return BurstColumns(*(np.ascontiguousarray(rows[name]) for name in COLUMNS))


@dataclass(frozen=True, eq=False)
class FlowTable:
    """Flows in order, and where their bursts are.

    Attributes:
        flows: shape (n,).
        since_ns: on the timeline; bursts that ended before do not count.
        bursts: of all NICs.
        left, arrived: where those of each flow begin and end among them, as the one end tells and the other, shapes (n, 2).
    """

    flows: Sequence[Flow]
    since_ns: int
    bursts: OrderedBursts
    left: Places
    arrived: Places

    def since(self, since_ns: int) -> "FlowTable":
        """The flows of which some burst that left ended after a later moment, and only what ended after it."""
        late = _sums(self.bursts.end_ns >= since_ns)
        return replace(self.take(late[self.left[:, 1]] > late[self.left[:, 0]]), since_ns=since_ns)

    def take(self, these: NDArray[np.bool_]) -> "FlowTable":
        """Some of the flows, shape (n,)."""
        flows = [self.flows[i] for i in np.flatnonzero(these).tolist()]
        return replace(self, flows=flows, left=self.left[these], arrived=self.arrived[these])

    def starts_ns(self, flow: int) -> Ints:
        """When the bursts of a flow, by its place, began, also those that ended before `since_ns`."""
        return self.bursts.start_ns[slice(*self.left[flow].tolist())]

    def first_ns(self) -> Ints:
        """When each flow began to send, also where that ended before `since_ns`, shape (n,)."""
        return self.bursts.start_ns[self.left[:, 0]]

    def of(self, places: Sequence[int]) -> FlowBursts:
        """The bursts of some flows by their places."""
        left, arrived = (self._told(spans[list(places)]) for spans in (self.left, self.arrived))
        return FlowBursts([self.flows[i] for i in places], left, arrived)

    def _told(self, spans: Places) -> Told:
        begins, lengths = spans[:, 0], spans[:, 1] - spans[:, 0]
        firsts = _sums(lengths)
        places = np.arange(firsts[-1]) + np.repeat(begins - firsts[:-1], lengths)
        late = self.bursts.end_ns[places] >= self.since_ns
        return Told(self.bursts.take(places[late]), _sums(late)[firsts])


def flows_of(rings: Mapping[NicName, Rows], owners: Mapping[bytes, str], since_ns: int) -> FlowTable:
    """The flows of all NICs that sent of late, in order.

    A flow of which one end tells and the other, which tells of others, does not is left out: a host that lies joins no job so.

    Args:
        rings: bursts of each NIC in any order, dtype BURST_ROW, shape (n,).
        owners: the NIC that has each packed address; what goes to others is left out.
        since_ns: on the timeline; what ended before does not count.
    """
    nics = sorted({nic_id(*name) for name in rings} | set(owners.values()))
    number = {nic: i for i, nic in enumerate(nics)}
    numbers = {address: number[nic] for address, nic in owners.items()}
    kept: list[Rows] = []
    orders: list[NDArray[np.int32]] = []
    ends, firsts = [np.zeros((6, 0), np.intp)], [0]
    for name, ring, late in _late(rings, since_ns):
        order, queue_pairs = _by_queue_pair(taken(ring, late), numbers)
        mine = np.full((1, queue_pairs.shape[1]), number[nic_id(*name)])
        queue_pairs[-2:] += firsts[-1]
        ends.append(np.concatenate([mine, queue_pairs]))
        kept.append(ring)
        orders.append(late[order].astype(np.int32))
        firsts.append(firsts[-1] + len(order))
    flows, left, arrived = _paired(np.concatenate(ends, axis=1))
    named = [Flow(nics[src], nics[dst], qpn) for src, dst, qpn in flows.tolist()]
    return FlowTable(named, since_ns, _ordered(kept, orders, firsts), left, arrived)


def _late(rings: Mapping[NicName, Rows], since_ns: int) -> Iterator[tuple[NicName, Rows, Places]]:
    """The places of those rows of each NIC that has any that ended after a moment."""
    for name, ring in rings.items():
        late = np.flatnonzero(ring["end_ns"] >= since_ns)
        if len(late):
            yield name, ring, late


def _ordered(
    rings: Sequence[Rows], orders: Sequence[NDArray[np.int32]], firsts: Sequence[int]
) -> OrderedBursts:
    start_ns, end_ns = (np.empty(firsts[-1], np.int64) for _ in range(2))
    for ring, mine, (begin, end) in zip(rings, orders, pairwise(firsts), strict=True):
        start_ns[begin:end], end_ns[begin:end] = ring["start_ns"][mine], ring["end_ns"][mine]
    order = np.concatenate([np.zeros(0, np.int32), *orders])
    return OrderedBursts(rings, np.array(firsts, np.intp), order, start_ns, end_ns)


def _by_queue_pair(rows: Rows, numbers: Mapping[bytes, int]) -> tuple[Places, Places]:
    """What a NIC tells of each direction of its queue pairs.

    Args:
        rows: its bursts in any order, dtype BURST_ROW, shape (n,).
        numbers: the number of the NIC that has each packed address.

    Returns:
        The order that has those of each direction together, by their beginning, shape (n,); and of each the far NIC's number, -1 for
        none, the destination QPN, whether it is sent, and where its bursts begin and end in that order, shape (5, directions).
    """
    addr = np.ascontiguousarray(rows["addr"]).view(">u8").astype(np.uint64)
    pair = rows["qpn"].astype(np.uint64) << np.uint64(8) | rows["direction"]
    order = np.lexsort((rows["start_ns"], pair, addr[:, 1], addr[:, 0]))
    addr, pair = addr[order], pair[order]
    differs = (pair[1:] != pair[:-1]) | (addr[1:] != addr[:-1]).any(axis=1)
    edges = np.concatenate([[0], np.flatnonzero(differs) + 1, [len(rows)]])
    first = rows[order[edges[:-1]]]
    packed = first["addr"].tobytes()
    far = [numbers.get(packed[at : at + ADDR_BYTES], -1) for at in range(0, len(packed), ADDR_BYTES)]
    return order, np.array([far, first["qpn"], first["direction"] == EGRESS, edges[:-1], edges[1:]], np.intp)


def _paired(ends: Places) -> tuple[Places, Places, Places]:
    """The flows of which NICs tell, in order, as source, target and QPN, shape (n, 3), and where their bursts are, shapes (n, 2).

    Args:
        ends: the NIC that tells, the far one, the QPN, whether it is sent, and where the bursts begin and end, shape (6, m).
    """
    telling = np.unique(ends[0])
    nic, far, qpn, is_sent, *spans = ends[:, (ends[1] >= 0) & (ends[1] != ends[0])]
    src, dst = np.where(is_sent, (nic, far), (far, nic))
    flows, flow = np.unique(np.stack([src, dst, qpn], axis=1), axis=0, return_inverse=True)
    left, arrived = (np.full((len(flows), 2), -1) for _ in range(2))
    for found, mine in ((left, is_sent == 1), (arrived, is_sent == 0)):
        found[flow[mine]] = np.stack(spans, axis=1)[mine]
    is_told = [
        (found[:, 0] >= 0) | ~np.isin(end, telling)
        for found, end in zip((left, arrived), flows.T[:2], strict=True)
    ]
    kept = is_told[0] & is_told[1]
    left, arrived = (np.where(a < 0, b, a)[kept] for a, b in ((left, arrived), (arrived, left)))
    return flows[kept], left, arrived


def _sums(values: NDArray[np.generic]) -> Places:
    """Of the first so many, shape (n + 1,)."""
    found = np.zeros(len(values) + 1, np.intp)
    np.cumsum(values, out=found[1:])
    return found
