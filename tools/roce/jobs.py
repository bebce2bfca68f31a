"""Jobs: collectives whose members are spread over the fabric, and their queue pairs. No I/O."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from cwdp.errors import ConfigError
from tools.lab.topology import Topology
from tools.roce.flows import Endpoint, Flow, drawn_flows

JOBS = 2


@dataclass(frozen=True)
class Job:
    """A collective: every member has one queue pair to every other."""

    name: str
    members: tuple[str, ...]

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """Source and target of each queue pair."""
        return [(a, b) for a in self.members for b in self.members if a != b]


def interleaved(hosts: Sequence[str], jobs: int = JOBS) -> list[Job]:
    """Jobs whose members take turns along the hosts, so that each job is spread over all leaves.

    Raises:
        ConfigError: there are too few hosts for two members each.
    """
    if len(hosts) < 2 * jobs:
        raise ConfigError(
            f"{jobs} jobs on {len(hosts)} hosts",
            f"raise a lab of {2 * jobs} hosts or more: --hosts, --leaves",
        )
    return [Job(chr(ord("A") + number), tuple(hosts[number::jobs])) for number in range(jobs)]


def in_turns(topology: Topology, members: Sequence[str]) -> tuple[str, ...]:
    """Members so that neighbours are below different leaves, as far as can be: leaves take turns."""
    leaf = {member: topology.nics[member][0].leaf for member in members}
    nth: dict[str, int] = {}
    turn = {}
    for member in members:
        turn[member] = nth.setdefault(leaf[member], 0)
        nth[leaf[member]] += 1
    return tuple(sorted(members, key=lambda member: (turn[member], leaf[member])))


def pair_flows(
    topology: Topology, pairs: Sequence[tuple[str, str]], seed: int, **settings: Any
) -> list[Flow]:
    """A queue pair for each pair of hosts, first NIC to first NIC over IPv4.

    Args:
        topology: of the lab.
        pairs: source and target of each.
        seed: draws QPNs and first PSNs; source ports follow from QPNs as they do in Linux.
        settings: further fields of `Flow`, the same for all.
    """
    ends = [(_endpoint(topology, source), _endpoint(topology, target)) for source, target in pairs]
    return drawn_flows(ends, random.Random(seed), **settings)


def _endpoint(topology: Topology, host: str) -> Endpoint:
    return Endpoint(host, topology.nics[host][0].ipv4)
