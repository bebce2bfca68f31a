"""Which switches packets cross by their ports: the switches' kernel is asked, which hashes as it does for packets."""

import json
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter

from cwdp.dataplane.abi import ROCE_PORT
from cwdp.errors import LabError
from cwdp.shared.addresses import Address
from tools.lab.lab import Lab


@dataclass(frozen=True)
class Stream:
    """Packets from the first NIC of a host, of RoCEv2 unless told otherwise.

    Attributes:
        source: the host.
        source_address, target_address: of one IP version.
        sport, dport: source port and destination port.
        protocol: `udp` or `tcp`, which is told right only where switches hash by headers.
    """

    source: str
    source_address: Address
    target_address: Address
    sport: int
    dport: int = ROCE_PORT
    protocol: str = "udp"


@dataclass(frozen=True)
class _Under:
    """A stream on its way: the switch that it is at, and the interface by which it came."""

    switch: str
    came_by: str
    stream: Stream

    @property
    def version(self) -> int:
        return self.stream.target_address.version


def switches_of(lab: Lab, streams: Sequence[Stream]) -> dict[Stream, tuple[str, ...]]:
    """The switches that each crosses now, in order.

    Raises:
        LabError: the kernel has no route for some.
    """
    leaf_of = {host.name: host.nics[0].leaf for host in lab.hosts}
    order = attrgetter("switch", "version")
    crossed: dict[Stream, tuple[str, ...]] = {stream: (leaf_of[stream.source],) for stream in streams}
    under = [_Under(crossed[stream][0], stream.source, stream) for stream in crossed]
    while under:
        onward = []
        for (switch, version), group in groupby(sorted(under, key=order), key=order):
            here = list(group)
            devices = _devices(lab.topology.netns(switch), version, here)
            onward += [
                _Under(dev, switch, one.stream)
                for one, dev in zip(here, devices, strict=True)
                if dev in lab.topology.tiers
            ]
        for one in onward:
            crossed[one.stream] += (one.switch,)
        under = onward
    return crossed


def _devices(netns: str, version: int, under: Sequence[_Under]) -> Iterator[str]:
    """The interface, named for the neighbour, by which a switch sends each on."""
    asked = "".join(
        f"route get {one.stream.target_address} from {one.stream.source_address} iif {one.came_by} "
        f"ipproto {one.stream.protocol} sport {one.stream.sport} dport {one.stream.dport}\n"
        for one in under
    )
    command = ("ip", "-n", netns, f"-{version}", "-j", "-batch", "-")
    done = subprocess.run(command, input=asked, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise LabError(f"`{' '.join(command)}` failed: {done.stderr.strip()}", "Is the lab whole?")
    return (json.loads(line)[0]["dev"] for line in done.stdout.splitlines() if line.strip())
