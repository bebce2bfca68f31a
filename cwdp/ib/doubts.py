"""What is amiss with a subnet as a whole, for people. Pure."""

from collections.abc import Iterator, Mapping

import numpy as np

from cwdp.ib.attributes import ManagerState, PortState
from cwdp.shared.ib.subnet import SWITCH, Subnet


def doubts(subnet: Subnet, managers: Mapping[str, int]) -> Iterator[str]:
    """One sentence for each.

    Args:
        subnet: as it was read.
        managers: the state of each subnet manager that answers, by its node.
    """
    ports = subnet.ports
    if not ports["sm_lid"].any():
        yield "no subnet manager: no port knows one, start opensm or the switches' own"
        return
    masters = [name for name, state in managers.items() if state == ManagerState.MASTER]
    if managers and not masters:
        yield f"no subnet manager is the master: {', '.join(managers)} wait or look around"
    if len(masters) > 1:
        yield f"several subnet managers are masters: {', '.join(masters)}"
    waits = ports["is_linked"] & (ports["number"] > 0)
    waits &= (ports["state"] == PortState.INITIALIZE) | (ports["state"] == PortState.ARMED)
    if waits.any():
        yield f"{np.count_nonzero(waits)} ports have a link and are not active: the subnet manager has not come there yet"
    known = np.unique(ports["sm_lid"][(ports["lid"] > 0) & (ports["sm_lid"] > 0)])
    if len(known) > 1:
        yield f"ports know different subnet managers: LIDs {', '.join(map(str, known.tolist()))}"
    owners = (ports["lid"] > 0) & ((subnet.kinds[ports["node"]] != SWITCH) | (ports["number"] == 0))
    lids, count = np.unique(ports["lid"][owners], return_counts=True)
    if (count > 1).any():
        yield f"LIDs that two ports have: {', '.join(map(str, lids[count > 1].tolist()))}"
