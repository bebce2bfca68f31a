"""Which spine packets take by their source port: the switches' kernel is asked, which hashes as it does for packets."""

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
    """Packets of RoCEv2 from the first NIC of a host.

    Attributes:
        source: the host.
        source_address, target_address: of one IP version.
        sport: UDP source port.
    """

    source: str
    source_address: Address
    target_address: Address
    sport: int


def spines_of(lab: Lab, streams: Sequence[Stream]) -> dict[Stream, str]:
    """The spine that each takes now; those that stay below their leaf have none.

    Raises:
        LabError: the kernel has no route for some.
    """
    found: dict[Stream, str] = {}
    leaf_of = {host.name: host.nics[0].leaf for host in lab.hosts}
    order = attrgetter("leaf", "version")
    asked = sorted((_Asked(leaf_of[one.source], one) for one in set(streams)), key=order)
    for (leaf, version), group in groupby(asked, key=order):
        chosen = [one.stream for one in group]
        devices = _devices(lab.topology.netns(leaf), version, chosen)
        found |= {one: dev for one, dev in zip(chosen, devices, strict=True) if dev in lab.topology.spines}
    return found


@dataclass(frozen=True)
class _Asked:
    leaf: str
    stream: Stream

    @property
    def version(self) -> int:
        return self.stream.target_address.version


def _devices(netns: str, version: int, streams: Sequence[Stream]) -> Iterator[str]:
    """The interface, named for the neighbour, by which a leaf sends each on."""
    asked = "".join(
        f"route get {one.target_address} from {one.source_address} iif {one.source} "
        f"ipproto udp sport {one.sport} dport {ROCE_PORT}\n"
        for one in streams
    )
    command = ("ip", "-n", netns, f"-{version}", "-j", "-batch", "-")
    done = subprocess.run(command, input=asked, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise LabError(f"`{' '.join(command)}` failed: {done.stderr.strip()}", "Is the lab whole?")
    return (json.loads(line)[0]["dev"] for line in done.stdout.splitlines() if line.strip())
