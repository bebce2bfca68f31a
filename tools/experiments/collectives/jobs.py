"""Jobs whose ranks do a collective in each iteration: who is in which, and their queue pairs. No I/O.

Hosts are members of the jobs in turns; the members of a job stand in an order in which neighbours are below different
leaves.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tools.experiments.optimum import Pair, fitting_spine_flows
from tools.lab.topology import Topology
from tools.roce.collective.plan import Communicator, Plan, plan_collective, rank_ends
from tools.roce.jobs import in_turns, interleaved

SETTLE_S = 8.0
"""From the first packet to where iterations count: some of them pass before the jobs are known."""

NIC_WINDOW = 18
"""Packets under way of all queue pairs of a NIC: the lab's queues hold them wherever they meet."""

MTU = 4096
TIMEOUT_NS = 268_435_456
"""4.096 us * 2^16: the lab's queues alone hold packets for tens of milliseconds, a thousand times a real fabric's."""

NS_PER_S = 1_000_000_000

Json = dict[str, Any]


@dataclass(frozen=True)
class Jobs:
    """What runs.

    Attributes:
        communicators: one a job.
        jitter: of what ranks compute, from 0 to 1.
    """

    communicators: tuple[Communicator, ...]
    jitter: float

    @property
    def pairs(self) -> list[Pair]:
        """Source and target host of each queue pair."""
        return [(_host(a), _host(b)) for job in self.communicators for a, b in job.pairs]

    @property
    def most_from_host(self) -> int:
        """Queue pairs of the host that has the most."""
        sources = [source for source, _ in self.pairs]
        return max(sources.count(source) for source in sources)

    def plan(self, topology: Topology, seed: int, **settings: Any) -> Plan:
        """The ranks and their queue pairs.

        Args:
            topology: of the lab.
            seed: draws QPNs, and so source ports, and jitter.
            settings: fields of `Flow`, the same for all.
        """
        defaults = {"mtu": MTU, "window": max(1, NIC_WINDOW // self.most_from_host)}
        return plan_collective(
            rank_ends(topology), self.communicators, jitter=self.jitter, seed=seed, **defaults | settings
        )

    def fitting_bps(self, topology: Topology) -> int:
        """The rate of the links between switches at which the best placement of the queue pairs just fits."""
        fitting = fitting_spine_flows(topology, self.pairs)
        return round(fitting * topology.spec.rate_bps / self.most_from_host)

    def describe(self) -> Json:
        """What `--json` says of them."""
        first = self.communicators[0]
        return {
            "collective": first.collective,
            "jobs": len(self.communicators),
            "buffer_bytes": first.buffer_bytes,
            "compute_ns": first.compute_ns,
            "jitter": self.jitter,
        }


def make_jobs(
    topology: Topology,
    collective: str,
    *,
    jobs: int,
    buffer_bytes: int,
    compute_s: float,
    jitter: float,
    hosts: Sequence[str] | None = None,
) -> Jobs:
    """Work out who is in which job.

    Args:
        topology: of the lab.
        collective: one of `COLLECTIVES`.
        jobs: how many.
        buffer_bytes: of each rank.
        compute_s: what a rank computes in an iteration.
        jitter: see `Jobs`.
        hosts: that take part, None for all.

    Raises:
        ConfigError: there are too few hosts.
    """
    communicators = tuple(
        Communicator(
            name=job.name,
            collective=collective,
            ranks=tuple(f"{host}/{topology.nics[host][0].name}" for host in in_turns(topology, job.members)),
            buffer_bytes=buffer_bytes,
            compute_ns=round(compute_s * NS_PER_S),
        )
        for job in interleaved(hosts or topology.hosts, jobs)
    )
    return Jobs(communicators, jitter)


def _host(rank: str) -> str:
    return rank.partition("/")[0]
