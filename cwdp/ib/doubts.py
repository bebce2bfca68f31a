"""What is amiss with a subnet as a whole, for people. Pure."""

from collections.abc import Iterator

import numpy as np

from cwdp.ib.attributes import PortState
from cwdp.shared.ib.subnet import SWITCH, Subnet


def doubts(subnet: Subnet) -> Iterator[str]:
    """One sentence for each."""
    ports = subnet.ports
    if not ports["sm_lid"].any():
        yield "no subnet manager: no port knows one, start opensm or the switches' own"
        return
    waits = ports["is_linked"] & (ports["number"] > 0)
    waits &= (ports["state"] == PortState.INITIALIZE) | (ports["state"] == PortState.ARMED)
    if waits.any():
        yield f"{np.count_nonzero(waits)} ports have a link and are not active: the subnet manager has not come there yet"
    managers = np.unique(ports["sm_lid"][(ports["lid"] > 0) & (ports["sm_lid"] > 0)])
    if len(managers) > 1:
        yield f"ports know different subnet managers: LIDs {', '.join(map(str, managers.tolist()))}"
    owners = (ports["lid"] > 0) & ((subnet.kinds[ports["node"]] != SWITCH) | (ports["number"] == 0))
    lids, count = np.unique(ports["lid"][owners], return_counts=True)
    if (count > 1).any():
        yield f"LIDs that two ports have: {', '.join(map(str, lids[count > 1].tolist()))}"
