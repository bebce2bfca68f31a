"""How long the iterations of each job of a run took, by when they were. No I/O; times are CLOCK_MONOTONIC in ns."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tools.experiments import measure
from tools.experiments.collectives.jobs import NS_PER_S, SETTLE_S
from tools.roce.collective.plan import Plan
from tools.roce.collective.results import collective_result

Json = dict[str, Any]


@dataclass(frozen=True)
class Iteration:
    """From the first rank's start to the last one's end."""

    start_ns: int
    end_ns: int

    @property
    def took_ns(self) -> int:
        """How long."""
        return self.end_ns - self.start_ns


def by_job(plan: Plan, result: measure.Result) -> dict[str, list[Iteration]]:
    """The iterations that all ranks of a job have completed, by the job's name, in order."""
    found = collective_result(plan, result["messages"])["jobs"]
    return {
        communicator.name: [Iteration(row["start_ns"], row["end_ns"]) for row in job["iterations"]]
        for communicator, job in zip(plan.communicators, found, strict=True)
    }


def settled(iterations: Sequence[Iteration], result: measure.Result) -> list[Iteration]:
    """Those that began SETTLE_S after the first packet or later."""
    from_ns = result["start_ns"] + round(SETTLE_S * NS_PER_S)
    return [iteration for iteration in iterations if iteration.start_ns >= from_ns]


def times(iterations: Sequence[Iteration]) -> Json:
    """Their number (`iterations`), `p50_ns` and `p99_ns` of how long they took; None where there are none."""
    took_ns = [iteration.took_ns for iteration in iterations]
    return {
        "iterations": len(took_ns),
        "p50_ns": measure.quantile(took_ns, 0.5),
        "p99_ns": measure.quantile(took_ns, 0.99),
    }


def over(run: Mapping[str, Any], reference: Mapping[str, Any]) -> float | None:
    """How many times as long iterations take as in another run, at the median of the job that suffers most.

    None where a job has completed none in either.
    """
    pairs = [
        (mine["p50_ns"], other["p50_ns"]) for mine, other in zip(run["jobs"], reference["jobs"], strict=True)
    ]
    if any(not mine or not other for mine, other in pairs):
        return None
    return max(float(mine / other) for mine, other in pairs)
