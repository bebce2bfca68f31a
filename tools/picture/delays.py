"""One-way delays of the data packets that the hosts' dataplanes stamped, as the hosts' own clocks tell them.

Both ends of a queue pair stamp the same packets. The stamps are joined as the manager joins them; the departures are
then put on the machine's clock, on which a lab is cut and healed.
"""

import time
from types import TracebackType
from typing import Self

import numpy as np

from cwdp.dataplane.pinned import tree
from cwdp.dataplane.pinned.maps import Maps
from cwdp.dataplane.pinned.ring import Ring
from cwdp.shared.addresses import Address
from tools.lab import Host, Lab
from tools.lab.network.netns import netns_enter
from tools.lab.truth.clocks import local_ns
from tools.lab.truth.stamps import joined, stamps, synced
from tools.picture.summary import Delays


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
        records = {host: synced(ring.take()) for host, ring in self._rings.items()}
        made = [stamps(found, numbers, numbers[host.nics[0].ipv4]) for host, found in records.items()]
        packets = joined(np.concatenate(made))
        host, found = next((host, found) for host, found in records.items() if len(found))
        left_ns = packets["time_ns"] - self._timeline_ahead_ns(host, int(found["offset_ns"][-1]))
        return Delays(left_ns, packets["owd_ns"])

    def _timeline_ahead_ns(self, host: Host, offset_ns: int) -> int:
        """The common timeline less CLOCK_MONOTONIC, now: they part by less than a millisecond in ten seconds."""
        now_ns = time.monotonic_ns()
        return local_ns(host, self._maps[host].read_base(), now_ns) + offset_ns - now_ns
