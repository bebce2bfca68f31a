"""What NICs send each other, by the bursts that both ends tell of. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cwdp.shared.bus.messages import nic_id
from cwdp.shared.bus.records import EGRESS
from manager.queue_pairs.bursts import by_queue_pair

Rows = NDArray[np.void]
NicName = tuple[str, str]


def nic_name(nic: str) -> NicName:
    """The host and the interface of a NIC's fabric-wide name."""
    host, _, ifname = nic.rpartition("/")
    return host, ifname


class Flow(NamedTuple):
    """One direction of a queue pair: the NICs at both ends as HOST/IFNAME, and the destination QPN."""

    src: str
    dst: str
    qpn: int


@dataclass(frozen=True, eq=False)
class FlowBursts:
    """The bursts of a flow, by their beginning: as they left, and as they arrived.

    Where one end tells of none, they are what the other one tells. Dtype BURST_ROW, shapes (n,) and (m,).
    """

    flow: Flow
    left: Rows
    arrived: Rows

    def since(self, since_ns: int) -> "FlowBursts | None":
        """Those that ended after a moment on the timeline; None where none left."""
        left, arrived = (_ended_after(rows, since_ns) for rows in (self.left, self.arrived))
        return FlowBursts(self.flow, left, arrived) if len(left) else None


def _ended_after(rows: Rows, since_ns: int) -> Rows:
    """Those rows; not as copies where they are the last ones, as they mostly are."""
    late = rows["end_ns"] >= since_ns
    first = len(late) - int(np.count_nonzero(late))
    return rows[first:] if late[first:].all() else rows[late]


def flows_of(rings: Mapping[NicName, Rows], owners: Mapping[bytes, str], since_ns: int) -> list[FlowBursts]:
    """The flows of all NICs that sent of late, in order.

    A flow of which one end tells and the other, which tells of others, does not is left out: a host that lies joins no job so.

    Args:
        rings: bursts of each NIC in any order, dtype BURST_ROW, shape (n,).
        owners: the NIC that has each packed address; what goes to others is left out.
        since_ns: on the timeline; what ended before does not count.
    """
    left: dict[Flow, Rows] = {}
    arrived: dict[Flow, Rows] = {}
    telling = set()
    for name, ring in rings.items():
        nic, late = nic_id(*name), ring[ring["end_ns"] >= since_ns]
        if len(late):
            telling.add(nic)
        for rows in by_queue_pair(late):
            far = owners.get(rows["addr"][0].tobytes())
            if far is None or far == nic:
                continue
            is_sent, qpn = rows["direction"][0] == EGRESS, int(rows["qpn"][0])
            if is_sent:
                left[Flow(nic, far, qpn)] = rows
            else:
                arrived[Flow(far, nic, qpn)] = rows
    one_sided = {flow for flow in left if flow.dst in telling} ^ {
        flow for flow in arrived if flow.src in telling
    }
    return [
        FlowBursts(flow, left.get(flow, arrived.get(flow)), arrived.get(flow, left.get(flow)))  # type: ignore[arg-type]
        for flow in sorted((left.keys() | arrived.keys()) - one_sided)
    ]
