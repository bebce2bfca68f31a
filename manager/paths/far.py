"""Windows of probes to hosts of other pods: these are on timelines of their own, so one-way delays are not known. No I/O."""

import numpy as np
from numpy.typing import NDArray

from cwdp.shared.bus.messages import host_of
from cwdp.shared.bus.records import NO_DELAY_NS, WINDOW_DELAYS, packed_address
from manager.hosts.members import Members
from manager.paths.told import HostPaths


class FarPaths:
    """Which paths lead to hosts that are not this pod's, by each host's table.

    Args:
        members: this pod's hosts and others'.
    """

    def __init__(self, members: Members) -> None:
        self._members = members
        self._version = -1
        self._ours: NDArray[np.bytes_] = np.zeros(0, "S16")
        self._far: dict[str, tuple[HostPaths, NDArray[np.bool_]]] = {}

    def without_delays(self, table: HostPaths, rows: NDArray[np.void]) -> NDArray[np.void]:
        """PLACED_ROWs of a table, without delays to hosts elsewhere."""
        if not self._members.elsewhere.version:
            return rows
        far = self._of(table)[rows["path"]]
        if far.any():
            rows = rows.copy()
            for name in WINDOW_DELAYS:
                rows[name][far] = NO_DELAY_NS
        return rows

    def _of(self, table: HostPaths) -> NDArray[np.bool_]:
        """Which of a table's paths lead elsewhere, shape (paths,)."""
        if self._version != self._members.version:
            self._version, ours = self._members.version, self._members.ours
            owners = self._members.nics_by_address.items()
            packed = [packed_address(address) for address, nic in owners if host_of(nic) in ours]
            self._ours = np.sort(np.array(packed, "S16"))
            self._far.clear()
        known = self._far.get(table.host)
        if known is None or known[0] is not table:
            addresses = np.ascontiguousarray(table.paths["dst_addr"]).view("S16").ravel()
            place = np.searchsorted(self._ours, addresses)
            known = self._far[table.host] = table, np.append(self._ours, b"")[place] != addresses
        return known[1]
