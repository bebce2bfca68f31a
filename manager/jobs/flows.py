"""What NICs send each other: the bursts of flows, as columns of all of them. Pure.

What is asked of a job's bursts is asked of all at once, which takes a fraction of the time that small arrays of rows of each flow take.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.void]
NicName = tuple[str, str]
Places = NDArray[np.intp]
Ints = NDArray[np.int64]
Counts = NDArray[np.unsignedinteger]


class Flow(NamedTuple):
    """One direction of a queue pair: the NICs at both ends as HOST/IFNAME, and the destination QPN."""

    src: str
    dst: str
    qpn: int


def nic_name(nic: str) -> NicName:
    """The host and the interface of a NIC's fabric-wide name."""
    host, _, ifname = nic.rpartition("/")
    return host, ifname


@dataclass(frozen=True, eq=False)
class BurstColumns:
    """The columns of BURST_ROWs that tell of the bursts themselves, shapes (n,)."""

    start_ns: Ints
    end_ns: Ints
    packets: Counts
    bytes: Counts
    ce_marks: Counts
    resent: Counts
    naks: Counts
    bound_ns: Counts

    def __len__(self) -> int:
        return len(self.start_ns)

    def take(self, places: slice | Places | NDArray[np.bool_]) -> "BurstColumns":
        """Some of them."""
        return BurstColumns(*(getattr(self, name)[places] for name in COLUMNS))


COLUMNS = tuple(each.name for each in fields(BurstColumns))


@dataclass(frozen=True, eq=False)
class Told:
    """What one end of each of some flows tells: each flow's bursts by their beginning, behind those of the flow before it.

    Attributes:
        bursts: of all flows, shape (n,).
        firsts: where each flow's begin, and the end of the last one's, shape (flows + 1,).
    """

    bursts: BurstColumns
    firsts: Places

    def of(self, flow: int) -> BurstColumns:
        """Those of a flow by its place."""
        return self.bursts.take(slice(self.firsts[flow], self.firsts[flow + 1]))

    def each(self, of_flows: Places) -> Places:
        """For each burst what is given for its flow, shape (n,)."""
        return np.repeat(of_flows, np.diff(self.firsts))

    def sums(self, values: Counts) -> Counts:
        """Of what is given for each burst the sum of each flow, shape (flows,)."""
        until = np.zeros(len(values) + 1, np.uint64)
        np.cumsum(values, out=until[1:])
        found: Counts = until[self.firsts[1:]] - until[self.firsts[:-1]]
        return found


@dataclass(frozen=True, eq=False)
class FlowBursts:
    """The bursts of some flows, as they left and as they arrived; where one end tells of none, they are what the other one tells."""

    flows: Sequence[Flow]
    left: Told
    arrived: Told

    @cached_property
    def nics(self) -> list[str]:
        """Those at the ends of flows, in order."""
        return sorted({nic for flow in self.flows for nic in flow[:2]})

    @cached_property
    def ends(self) -> Places:
        """The places in `nics` of the sources and of the targets, shape (2, flows)."""
        place = {nic: i for i, nic in enumerate(self.nics)}
        return np.array(
            [[place[flow.src] for flow in self.flows], [place[flow.dst] for flow in self.flows]], np.intp
        )

    def sent_bytes(self) -> Counts:
        """By each flow, shape (flows,)."""
        return self.left.sums(self.left.bursts.bytes)

    def sent(self) -> dict[str, BurstColumns]:
        """What each NIC sent that sent any, in the order of `nics`."""
        return self._by_nic(self.left, self.ends[0])

    def came(self) -> dict[str, BurstColumns]:
        """What each NIC was sent that was sent any, in the order of `nics`."""
        return self._by_nic(self.arrived, self.ends[1])

    def _by_nic(self, told: Told, nic_of_flows: Places) -> dict[str, BurstColumns]:
        nic = told.each(nic_of_flows)
        order = np.argsort(nic, kind="stable")
        edges = np.searchsorted(nic[order], np.arange(len(self.nics) + 1)).tolist()
        told_of = set(nic_of_flows.tolist())
        return {
            self.nics[i]: told.bursts.take(order[edges[i] : edges[i + 1]])
            for i in range(len(self.nics))
            if i in told_of
        }
