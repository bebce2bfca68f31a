"""The experiment `tcp-contention`: two jobs of OpenMPI's all-reduces over TCP collide. What is measured, and how; no lab.

Every host is a member of one of two jobs, interleaved over the hosts, whose ranks stand in a ring: each sends all that it has
to its neighbour below another leaf, by one connection. A ring is as fast as its slowest connection. Links between switches
have the rate at which the best placement of whole connections just fits.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import replace as replace_setting
from typing import Any

import numpy as np
from msgspec.structs import replace

from cwdp.errors import ConfigError
from tools.experiments.optimum import fair_optimum_bps, fitting_spine_flows, link_capacities, open_spine_bps
from tools.experiments.tcp.arms import Arm
from tools.lab import LabSpec
from tools.lab.topology import Topology
from tools.mpi.allreduce import Family, Job, Reduces
from tools.roce.jobs import JOBS, in_turns, interleaved

SIZE_BYTES = 1 << 20
SECONDS = 20.0
SETTLE_S = 4.0
"""From the beginning to where all-reduces count."""

RATE_BPS = 15_000_000
"""Of the NICs: with more, what a token bucket of one frame loses to late timers is missing from the best possible."""

QUEUE_BYTES = 256 * 1024
LEAST_RANKS = 4
"""OpenMPI's non-blocking all-reduce of fewer is no ring."""

FIRST_PORT, PORTS = 10_000, 100
"""Where the ranks of the first job listen, and how many ports each job has."""

TCP_BYTES = 32
"""Of a header with time stamps."""

IP_BYTES: dict[Family, int] = {"ipv4": 20, "ipv6": 40}
ETHERNET_BYTES = 14


@dataclass(frozen=True)
class Setting:
    """What is the same for all runs.

    Attributes:
        spec: of the lab.
        members: the hosts of each job, in the order of their ranks.
        size_bytes: of an all-reduce.
        optimum_bps: of frames, that every connection can have at the same time, by linear program.
    """

    spec: LabSpec
    members: tuple[tuple[str, ...], ...]
    size_bytes: int
    optimum_bps: float

    @property
    def ports(self) -> tuple[int, int]:
        """Where ranks listen, the first and the last of them."""
        return FIRST_PORT, FIRST_PORT + len(self.members) * PORTS - 1

    def jobs(self, family: Family) -> list[Job]:
        """What to start."""
        return [
            Job(
                members=members,
                size_bytes=self.size_bytes,
                ports=(FIRST_PORT + number * PORTS, PORTS),
                family=family,
            )
            for number, members in enumerate(self.members)
        ]

    def best_ns(self, job: Job) -> float:
        """How long an all-reduce takes at least; acknowledgements are not taken off."""
        headers = IP_BYTES[job.family] + TCP_BYTES
        payload = (self.spec.mtu - headers) / self.spec.frame_bytes
        return 8e9 * job.sent_bytes / (self.optimum_bps * payload)


def make_setting(spec: LabSpec, size_bytes: int = SIZE_BYTES) -> Setting:
    """Work out rates and the optimum; the rate of the links between the lab's switches is not looked at.

    Raises:
        ConfigError: there are too few hosts.
    """
    topology = Topology(spec)
    if len(topology.hosts) < JOBS * LEAST_RANKS:
        raise ConfigError(
            f"{JOBS} rings of {LEAST_RANKS} hosts or more do not fit on {len(topology.hosts)} hosts",
            "raise a larger lab: --hosts, --leaves",
        )
    members = tuple(in_turns(topology, job.members) for job in interleaved(topology.hosts))
    pairs = [pair for ring in members for pair in zip(ring, (*ring[1:], ring[0]), strict=True)]
    spec = replace(spec, spine_rate_bps=round(fitting_spine_flows(topology, pairs) * spec.rate_bps))
    topology = Topology(spec)
    optimum_bps = fair_optimum_bps(topology, pairs, spec.rate_bps, link_capacities(topology))
    return Setting(spec, members, size_bytes, optimum_bps)


def opened(setting: Setting) -> Setting:
    """The same below spines whose links all hosts together cannot fill: what programs reach when nobody is in their way."""
    spine_rate_bps = open_spine_bps(Topology(setting.spec))
    return replace_setting(setting, spec=replace(setting.spec, spine_rate_bps=spine_rate_bps))


def summarise(setting: Setting, arm: Arm, results: Sequence[Reduces], began_ns: int) -> dict[str, Any]:
    """What the jobs of a run came to, by all-reduces that began after SETTLE_S.

    Args:
        setting: of the experiment.
        arm: whose run it is.
        results: of each job.
        began_ns: when traffic began.
    """
    jobs = [
        _summarise_job(result, began_ns + round(SETTLE_S * 1e9), setting.best_ns(job))
        for job, result in zip(setting.jobs(arm.family), results, strict=True)
    ]
    return {
        "arm": str(arm),
        "jobs": jobs,
        "optimum_share": min(job["optimum_share"] for job in jobs),
        "wrong_sums": sum(result.wrong for result in results),
    }


def _summarise_job(result: Reduces, from_ns: int, best_ns: float) -> dict[str, Any]:
    counts = result.began_ns >= from_ns
    took_ns = (result.ended_ns - result.began_ns)[counts].astype(float)
    if not len(took_ns):
        return {"iterations": 0, "p50_ns": None, "p99_ns": None, "mean_ns": None, "optimum_share": 0.0}
    return {
        "iterations": len(took_ns),
        "p50_ns": float(np.median(took_ns)),
        "p99_ns": float(np.quantile(took_ns, 0.99)),
        "mean_ns": float(took_ns.mean()),
        "optimum_share": best_ns / float(took_ns.mean()),
    }
