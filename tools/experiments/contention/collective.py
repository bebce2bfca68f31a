"""`contention --collective`: jobs whose steps wait for their inputs collide. What is measured, and how; no lab.

Hosts are members of the jobs in turns; the members of a job stand in an order in which neighbours are below different
leaves. Spine links have the rate at which the best placement of whole queue pairs just fits. What a placement costs is
how long iterations take beside those of the same queue pairs below spines that nobody can fill.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from msgspec.structs import replace

from tools.experiments import measure
from tools.experiments.contention.model import MTU, TIMEOUT_NS, unqueued_ns
from tools.experiments.optimum import fitting_spine_flows, open_spine_bps
from tools.lab import LabSpec
from tools.lab.topology import Topology
from tools.roce import Communicator, collective_result, plan_collective
from tools.roce.collective.plan import Plan, rank_ends
from tools.roce.jobs import in_turns, interleaved

SETTLE_S = 8.0
"""From the first packet to where iterations count: some of them pass before the jobs are known."""

SECONDS = 24.0
NIC_WINDOW = 18
"""Packets under way of all queue pairs of a NIC: the lab's queues hold them wherever they meet."""

NS_PER_S = 1_000_000_000

Json = dict[str, Any]


@dataclass(frozen=True)
class Setting:
    """What is the same for all arms and seeds.

    Attributes:
        spec: of the lab.
        communicators: one a job.
        jitter: of what ranks compute, from 0 to 1.
        seconds: of traffic a run.
    """

    spec: LabSpec
    communicators: tuple[Communicator, ...]
    jitter: float
    seconds: float

    @property
    def base_ns(self) -> float:
        """See `unqueued_ns`."""
        return unqueued_ns(self.spec, MTU)

    @property
    def open_bps(self) -> int:
        """See `open_spine_bps`."""
        return open_spine_bps(Topology(self.spec))

    def plan(self, seed: int) -> Plan:
        """The ranks and their queue pairs; QPNs, and so source ports, and jitter are drawn by the seed."""
        most = max(len(pairs_from) for pairs_from in _by_source(self.communicators).values())
        return plan_collective(
            rank_ends(Topology(self.spec)),
            self.communicators,
            jitter=self.jitter,
            seed=seed,
            mtu=MTU,
            window=max(1, NIC_WINDOW // most),
            timeout_ns=TIMEOUT_NS,
        )


def make_setting(
    spec: LabSpec,
    collective: str,
    *,
    jobs: int,
    buffer_bytes: int,
    compute_s: float,
    jitter: float,
    seconds: float = SECONDS,
    spine_rate_bps: int | None = None,
) -> Setting:
    """Work out who is in which job, and rates.

    Args:
        spec: of the lab; the rate of the links between its switches is not looked at.
        collective: one of `COLLECTIVES`.
        jobs: how many.
        buffer_bytes: of each rank.
        compute_s: what a rank computes in an iteration.
        jitter: see `Setting`.
        seconds: the same.
        spine_rate_bps: of links between switches, None for the rate at which the best placement just fits.

    Raises:
        ConfigError: there are too few hosts.
    """
    topology = Topology(spec)
    communicators = tuple(
        Communicator(
            name=job.name,
            collective=collective,
            ranks=tuple(f"{host}/{topology.nics[host][0].name}" for host in in_turns(topology, job.members)),
            buffer_bytes=buffer_bytes,
            compute_ns=round(compute_s * NS_PER_S),
        )
        for job in interleaved(topology.hosts, jobs)
    )
    if spine_rate_bps is None:
        targets = _by_source(communicators)
        pairs = [(source, target) for source in targets for target in targets[source]]
        most = max(len(found) for found in targets.values())
        spine_rate_bps = round(fitting_spine_flows(topology, pairs) * spec.rate_bps / most)
    return Setting(replace(spec, spine_rate_bps=spine_rate_bps), communicators, jitter, seconds)


def summarise(plan: Plan, result: measure.Result) -> Json:
    """What a run came to, by iterations that began after SETTLE_S: a row of the result."""
    from_ns = result["start_ns"] + round(SETTLE_S * NS_PER_S)
    found = collective_result(plan, result["messages"])["jobs"]
    jobs = [
        _times(communicator.name, job["iterations"], from_ns)
        for communicator, job in zip(plan.communicators, found, strict=True)
    ]
    return {"jobs": jobs, "idle_share": result["idle_share"], **measure.totals(result)}


def over(run: Json, reference: Json) -> float | None:
    """How many times as long iterations take as in another run, at the median of the job that suffers most.

    None where a job has completed none in either.
    """
    pairs = [
        (mine["p50_ns"], other["p50_ns"]) for mine, other in zip(run["jobs"], reference["jobs"], strict=True)
    ]
    if any(not mine or not other for mine, other in pairs):
        return None
    return max(float(mine / other) for mine, other in pairs)


def _times(name: str, iterations: Sequence[Json], from_ns: int) -> Json:
    took_ns = [row["duration_ns"] for row in iterations if row["start_ns"] >= from_ns]
    if not took_ns:
        return {"job": name, "iterations": 0, "p50_ns": None, "p99_ns": None}
    p50_ns, p99_ns = np.quantile(took_ns, (0.5, 0.99)).tolist()
    return {"job": name, "iterations": len(took_ns), "p50_ns": p50_ns, "p99_ns": p99_ns}


def _by_source(communicators: Iterable[Communicator]) -> dict[str, list[str]]:
    """The hosts that each host has queue pairs to."""
    found: dict[str, list[str]] = {}
    for communicator in communicators:
        for source, target in communicator.pairs:
            found.setdefault(_host(source), []).append(_host(target))
    return found


def _host(rank: str) -> str:
    return rank.partition("/")[0]
