"""`failover --collective`: what jobs whose steps wait for their inputs lose by a cut. What is measured, and how; no lab.

The links between switches have the rate at which the best placement of whole queue pairs just fits, unless given. An
iteration is of the cut if it began before the link was mended and ended after it died. A job stops if it completes no
iteration any more: one of its queue pairs is dead.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from tools.experiments import measure
from tools.experiments.collectives.iterations import Iteration, by_job, settled, times
from tools.experiments.collectives.jobs import Jobs, Json, make_jobs
from tools.experiments.failover.model import Cut
from tools.lab import LabSpec
from tools.lab.topology import Topology
from tools.roce.collective.plan import Plan

BEFORE_S = 6.0
"""From where iterations count to the cut."""

PARTS = ("before", "cut", "after")


@dataclass(frozen=True)
class Setting:
    """What is the same for all cuts.

    Attributes:
        spec: of the lab.
        jobs: what runs.
    """

    spec: LabSpec
    jobs: Jobs

    def plan(self, seed: int) -> Plan:
        """See `Jobs.plan`."""
        return self.jobs.plan(Topology(self.spec), seed)


def make_setting(spec: LabSpec, collective: str, spine_rate_bps: int | None, **of_jobs: Any) -> Setting:
    """Work out who is in which job, and rates.

    Args:
        spec: of the lab; the rate of the links between its switches is not looked at.
        collective: one of `COLLECTIVES`.
        spine_rate_bps: of these links, None for the rate at which the best placement just fits.
        of_jobs: see `make_jobs`.

    Raises:
        ConfigError: there are too few hosts.
    """
    topology = Topology(spec)
    jobs = make_jobs(topology, collective, **of_jobs)
    return Setting(replace(spec, spine_rate_bps=spine_rate_bps or jobs.fitting_bps(topology)), jobs)


def summarise_cut(
    plan: Plan,
    cut: Cut,
    taken: Mapping[int, frozenset[str]],
    result: measure.Result,
    span_ns: tuple[int, int],
) -> Json:
    """What one cut did to each job.

    Args:
        plan: the jobs.
        cut: what was done.
        taken: directed links that each queue pair took just before, by flow.
        result: of the run.
        span_ns: just before it was done, and just before it was mended, CLOCK_MONOTONIC.
    """
    died = {flow["id"] for flow in result["flows"] if flow["failed"]}
    hit = {flow for flow, links in taken.items() if cut.hits(links)}
    flows = iter(plan.flows)
    jobs = []
    for communicator, iterations in zip(plan.communicators, by_job(plan, result).values(), strict=True):
        mine = {next(flows).id for _ in communicator.pairs}
        jobs.append(
            {
                "job": communicator.name,
                "queue_pairs_hit": len(mine & hit),
                "queue_pairs_died": len(mine & died),
                **_job_times(settled(iterations, result), span_ns, stopped=bool(mine & died)),
            }
        )
    return {
        "kind": str(cut.kind),
        "cut": cut.shown,
        "jobs": jobs,
        "retransmitted_packets": result["total"]["retransmitted_packets"],
        "moves": measure.moves(result["flows"]),
        "idle_share": result["idle_share"],
    }


def summarise_arm(arm: str, runs: Sequence[Json]) -> Json:
    """An arm over all its cuts; times are of the jobs that were hit."""
    hit = [job for run in runs for job in run["jobs"] if job["queue_pairs_hit"]]
    return {
        "arm": arm,
        "cuts": len(runs),
        "jobs_hit": len(hit),
        "jobs_stopped": sum(job["stopped"] for job in hit),
        "others_stopped": sum(
            job["stopped"] and not job["queue_pairs_hit"] for run in runs for job in run["jobs"]
        ),
        **_spread("excess", hit),
        **_spread("longest", hit),
        **{f"{part}_p50_ns": measure.median(job[part]["p50_ns"] for job in hit) for part in PARTS},
        "retransmitted_packets": sum(run["retransmitted_packets"] for run in runs),
        "moves": sum(run["moves"] for run in runs),
        "idle_share": measure.median(run["idle_share"] for run in runs),
    }


def _job_times(iterations: Sequence[Iteration], span_ns: tuple[int, int], *, stopped: bool) -> Json:
    """A job's iterations before, in and after a cut; the longest of those in it, None if the job stopped."""
    cut_ns, mended_ns = span_ns
    of_cut = [one for one in iterations if one.end_ns > cut_ns and one.start_ns < mended_ns]
    parts = {
        "before": times([one for one in iterations if one.end_ns <= cut_ns]),
        "cut": times(of_cut),
        "after": times([one for one in iterations if one.start_ns >= mended_ns]),
    }
    usual_ns = parts["before"]["p50_ns"]
    longest_ns = None if stopped else max((one.took_ns for one in of_cut), default=None)
    known = longest_ns is not None and usual_ns is not None
    return {
        "stopped": stopped,
        **parts,
        "longest_ns": longest_ns,
        "excess_ns": longest_ns - usual_ns if known else None,
    }


def _spread(name: str, jobs: Sequence[Json]) -> Json:
    """Median and maximum of a time of those jobs that have it."""
    known = [job[f"{name}_ns"] for job in jobs if job[f"{name}_ns"] is not None]
    return {f"{name}_p50_ns": measure.quantile(known, 0.5), f"{name}_max_ns": max(known, default=None)}
