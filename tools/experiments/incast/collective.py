"""`incast --collective`: a job's iterations while others fill the last hop to one of its ranks. No I/O.

The hosts of the jobs and those that send to one of them are drawn, all different. The windows of all queue pairs to that
one together fit the last switch's queue, as without `--collective`.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tools.clocks import ClockKind
from tools.experiments import measure
from tools.experiments.collectives.iterations import Iteration, by_job, over, settled, times
from tools.experiments.collectives.jobs import NS_PER_S, SETTLE_S, TIMEOUT_NS, Jobs, Json, make_jobs
from tools.experiments.incast.model import MIN_WINDOW, jain, lab_spec
from tools.lab.topology import LabSpec, Topology
from tools.roce.collective.plan import Plan
from tools.roce.flows import Flow
from tools.roce.jobs import pair_flows
from tools.roce.patterns import NIC_WINDOW

RANKS = 4
"""Of a job."""

SECONDS = 24.0
_SENDERS_SEED = 1 << 32
"""Added to the seed: queue pairs of one run must not have the same numbers."""


@dataclass(frozen=True)
class Setting:
    """What is the same for all arms.

    Attributes:
        spec: of the lab.
        jobs: what runs; the first job's is the rank at the target.
        sources: hosts of no job, that send to the target.
        target: the host of a rank.
        message_bytes: of what they send.
        seconds: of traffic an arm.
    """

    spec: LabSpec
    jobs: Jobs
    sources: tuple[str, ...]
    target: str
    message_bytes: int
    seconds: float

    @property
    def hosts(self) -> set[str]:
        """All that send."""
        return {source for source, _ in self.jobs.pairs} | set(self.sources)

    @property
    def window(self) -> int:
        """Packets under way of each queue pair."""
        to_target = sum(target == self.target for _, target in self.jobs.pairs) + len(self.sources)
        return max(MIN_WINDOW, NIC_WINDOW // to_target)

    def plan(self) -> Plan:
        """The ranks and their queue pairs."""
        return self.jobs.plan(Topology(self.spec), self.spec.seed, window=self.window, timeout_ns=TIMEOUT_NS)

    def others(self, plan: Plan) -> list[Flow]:
        """The queue pairs of those that send to the target, numbered on from the jobs'."""
        flows = pair_flows(
            Topology(self.spec),
            [(source, self.target) for source in self.sources],
            self.spec.seed + _SENDERS_SEED,
            window=self.window,
            timeout_ns=TIMEOUT_NS,
            message_bytes=self.message_bytes,
        )
        return [replace(flow, id=flow.id + len(plan.flows)) for flow in flows]


def make_setting(
    name: str,
    senders: int,
    collective: str,
    *,
    rate_bps: int,
    seed: int,
    clocks: ClockKind,
    message_bytes: int,
    seconds: float,
    jobs: int,
    **of_jobs: Any,
) -> Setting:
    """Draw the hosts of the jobs, those that send, and to whom.

    Args:
        name: of the lab.
        senders: how many.
        collective: one of `COLLECTIVES`.
        rate_bps: of all links.
        seed: draws hosts, queue pairs and clocks.
        clocks: of the hosts.
        message_bytes: see `Setting`.
        seconds: the same.
        jobs: how many, each of RANKS hosts.
        of_jobs: see `make_jobs`.
    """
    members = RANKS * jobs
    spec = lab_spec(name, senders + members - 1, rate_bps, seed, clocks)
    topology = Topology(spec)
    drawn = random.Random(seed).sample(list(topology.hosts), senders + members)
    in_order = sorted(drawn[:members], key=topology.hosts.index)
    made = make_jobs(topology, collective, jobs=jobs, hosts=in_order, **of_jobs)
    target = made.communicators[0].ranks[0].partition("/")[0]
    return Setting(spec, made, tuple(drawn[members:]), target, message_bytes, seconds)


def summarise(setting: Setting, plan: Plan, result: measure.Result) -> Json:
    """One arm in numbers, over the time after SETTLE_S."""
    deliveries = measure.Deliveries(result)
    each_bps = deliveries.mean_bps(SETTLE_S * NS_PER_S, deliveries.end_ns)
    to_target = np.array([flow["target"] == setting.target for flow in result["flows"]])
    of_senders = to_target & (np.array(deliveries.flows) >= len(plan.flows))
    return {
        "jobs": [_job(name, settled(found, result)) for name, found in by_job(plan, result).items()],
        "senders_bps": float(each_bps[of_senders].sum()),
        "senders_jain": jain(each_bps[of_senders]) if of_senders.any() else None,
        "goodput_share": float(each_bps[to_target].sum()) / setting.spec.rate_bps,
        "idle_share": result["idle_share"],
        **measure.totals(result),
    }


def compare(run: Json, alone: Mapping[str, Any]) -> Json:
    """What an arm lost, beside the jobs alone; a row of the result.

    `excess_ns`: by how much a job's longest iteration exceeds the median of those without others, None if unknown.
    """
    for mine, other in zip(run["jobs"], alone["jobs"], strict=True):
        known = mine["longest_ns"] is not None and other["p50_ns"] is not None
        mine["excess_ns"] = mine["longest_ns"] - other["p50_ns"] if known else None
    return {"over_alone": over(run, alone)} | run


def _job(name: str, iterations: Sequence[Iteration]) -> Json:
    longest_ns = max((one.took_ns for one in iterations), default=None)
    return {"job": name, **times(iterations), "longest_ns": longest_ns}
