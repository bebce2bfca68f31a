"""One-way delays of the data packets that the hosts' dataplanes stamped, as the hosts' own clocks tell them.

Both ends of a queue pair stamp the same packets. The stamps are joined as the manager joins them; the departures are
then put on the machine's clock, on which a lab is cut and healed.
"""

import time
from collections import Counter
from collections.abc import Mapping
from types import TracebackType
from typing import Self

import numpy as np
from numpy.typing import NDArray

from cwdp.dataplane import abi
from cwdp.dataplane.addresses import words_address
from cwdp.dataplane.pinned import tree
from cwdp.dataplane.pinned.maps import Maps
from cwdp.dataplane.pinned.ring import Ring
from cwdp.shared.addresses import Address
from cwdp.shared.bus.records import EGRESS
from manager.queue_pairs.sample_join import STAMP, join_settled, packet_names
from tools.lab import Host, Lab
from tools.lab.network.netns import netns_enter
from tools.lab.truth.clocks import local_ns
from tools.picture.summary import Delays

DECIDED_NS = 2**62
"""All stamps are in."""


class Stamps:
    """What all hosts of a lab stamp from when this is entered; their dataplanes are loaded."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab
        self._maps: dict[Host, Maps] = {}
        self._rings: dict[Host, Ring] = {}

    def __enter__(self) -> Self:
        for host in self._lab.hosts:
            with netns_enter(host.netns):
                maps = self._maps[host] = Maps(tree.here(host.nics[0].name))
            self._rings[host] = Ring(maps.samples, maps.control["sample_head"])
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for maps in self._maps.values():
            maps.close()

    def delays(self) -> Delays:
        """The packets that were stamped at both ends."""
        numbers: dict[Address, int] = {
            host.nics[0].ipv4: number for number, host in enumerate(self._lab.hosts)
        }
        records = {host: self._synced(host) for host in self._lab.hosts}
        stamps = [_stamps(found, numbers, numbers[host.nics[0].ipv4]) for host, found in records.items()]
        joined, _ = join_settled(np.concatenate(stamps), DECIDED_NS, Counter())
        host, found = next((host, found) for host, found in records.items() if len(found))
        left_ns = joined["time_ns"] - self._timeline_ahead_ns(host, int(found["offset_ns"][-1]))
        return Delays(left_ns, joined["owd_ns"])

    def _synced(self, host: Host) -> NDArray[np.void]:
        found = self._rings[host].take()
        synced: NDArray[np.void] = found[found["bound_ns"] != abi.BOUND_UNSYNCED]
        return synced

    def _timeline_ahead_ns(self, host: Host, offset_ns: int) -> int:
        """The common timeline less CLOCK_MONOTONIC, now: they part by less than a millisecond in ten seconds."""
        now_ns = time.monotonic_ns()
        return local_ns(host, self._maps[host].read_base(), now_ns) + offset_ns - now_ns


def _stamps(records: NDArray[np.void], numbers: Mapping[Address, int], own: int) -> NDArray[np.void]:
    """A host's records, dtype `abi.SAMPLE`, as STAMPs on the common timeline."""
    peer = np.array([numbers.get(words_address(words), -1) for words in records["key"]["addr"]], np.int64)
    mine = np.full(len(records), own, np.int64)
    leaves = records["direction"] == EGRESS
    stamps = np.zeros(len(records), STAMP)
    stamps["name"] = packet_names(
        np.where(leaves, mine, peer),
        np.where(leaves, peer, mine),
        records["key"]["qpn"],
        records["psn"],
    )
    stamps["time_ns"] = records["local_ns"].astype(np.int64) + records["offset_ns"]
    for name in ("bound_ns", "sport", "direction"):
        stamps[name] = records[name]
    return stamps
