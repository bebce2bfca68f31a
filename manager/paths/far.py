"""Delays of probes to hosts of other pods, which are on timelines of their own, put on this pod's. No I/O.

An agent tells the difference of what two timelines showed, by its lowest 32 bits where these are far apart; so a delay comes
out whole once it is known how far they are. Older agents clip what is too large, and that tells nothing.
"""

import numpy as np
from numpy.typing import NDArray

from cwdp.shared.bus.messages import host_of
from cwdp.shared.bus.records import (
    LARGEST_NS,
    NO_DELAY_NS,
    WINDOW_DELAYS,
    WINDOW_NS,
    packed_address,
    within_32_bits,
)
from manager.hosts.members import Members
from manager.paths.told import HostPaths

WIDEST_NS = 2**32 - 2
_OURS, _UNKNOWN = -1, -2
_SIGN = {"fwd": -1, "rev": 1}


def on_our_timeline(delay_ns: NDArray[np.int32], way: str, ahead_ns: NDArray[np.int64]) -> NDArray[np.int32]:
    """Delays as told, `fwd` or `rev`, with what the other timeline is ahead by taken out; all of one shape."""
    void = (delay_ns <= NO_DELAY_NS + 1) | (delay_ns == LARGEST_NS)
    moved_ns = within_32_bits(delay_ns.astype(np.int64) + _SIGN[way] * ahead_ns)
    return np.where(void, NO_DELAY_NS, moved_ns).astype(np.int32)


def widened_ns(bound_ns: NDArray[np.uint32], more_ns: NDArray[np.float64]) -> NDArray[np.uint32]:
    """Bounds with more to them; of one shape."""
    return np.minimum(bound_ns + np.ceil(more_ns), WIDEST_NS).astype(np.uint32)


class FarPaths:
    """Which paths lead to hosts that are not this pod's, by each host's table.

    Args:
        members: this pod's hosts and others'.
    """

    def __init__(self, members: Members) -> None:
        self._members = members
        self._version = -1
        self._pods: list[str] = []
        self._addresses: NDArray[np.bytes_] = np.zeros(0, "S16")
        self._of_address = np.zeros(0, np.int64)
        self._of_table: dict[str, tuple[HostPaths, NDArray[np.int64]]] = {}

    def on_our_timeline(self, table: HostPaths, rows: NDArray[np.void]) -> NDArray[np.void]:
        """PLACED_ROWs of a table with delays on this timeline; none to hosts whose timeline is not known."""
        elsewhere = self._members.elsewhere
        if not elsewhere.version:
            return rows
        pod = self._of(table)[rows["path"]]
        if (pod == _OURS).all():
            return rows
        rows = rows.copy()
        for place in np.unique(pod[pod != _OURS]).tolist():
            of_pod = pod == place
            apart = None if place == _UNKNOWN else elsewhere.apart.get(self._pods[place])
            if apart is None:
                for name in WINDOW_DELAYS:
                    rows[name][of_pod] = NO_DELAY_NS
                continue
            half_ns = (rows["further"][of_pod].astype(np.int64) + 1) * (WINDOW_NS // 2)
            ahead_ns, bound_ns = apart.during(rows["window"][of_pod] * WINDOW_NS + half_ns, half_ns)
            for name in WINDOW_DELAYS:
                rows[name][of_pod] = on_our_timeline(rows[name][of_pod], name[:3], ahead_ns)
            rows["bound_ns"][of_pod] = widened_ns(rows["bound_ns"][of_pod], bound_ns)
        return rows

    def _of(self, table: HostPaths) -> NDArray[np.int64]:
        """The pod that each of a table's paths leads to: its place in `_pods`, or what it is instead; shape (paths,)."""
        if self._version != self._members.version:
            self._follow()
        known = self._of_table.get(table.host)
        if known is None or known[0] is not table:
            addresses = np.ascontiguousarray(table.paths["dst_addr"]).view("S16").ravel()
            place = np.searchsorted(self._addresses, addresses)
            is_known = np.append(self._addresses, b"")[place] == addresses
            pod = np.where(is_known, np.append(self._of_address, _UNKNOWN)[place], _UNKNOWN)
            known = self._of_table[table.host] = table, pod
        return known[1]

    def _follow(self) -> None:
        """See whose addresses are whose."""
        self._version, ours = self._members.version, self._members.ours
        pod_of = self._members.elsewhere.pod_of
        self._pods = sorted(set(pod_of.values()))
        places = {pod: place for place, pod in enumerate(self._pods)}
        found = {}
        for address, nic in self._members.nics_by_address.items():
            host = host_of(nic)
            found[packed_address(address)] = (
                _OURS if host in ours else places.get(pod_of.get(host, ""), _UNKNOWN)
            )
        self._addresses = np.array(sorted(found), "S16")
        self._of_address = np.array([found[address] for address in sorted(found)], np.int64)
        self._of_table.clear()
