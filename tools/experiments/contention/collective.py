"""`contention --collective`: jobs whose steps wait for their inputs collide. What is measured, and how; no lab.

Spine links have the rate at which the best placement of whole queue pairs just fits. What a placement costs is how
long iterations take beside those of the same queue pairs below spines that nobody can fill.
"""

from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from tools.experiments import measure
from tools.experiments.collectives.iterations import by_job, settled, times
from tools.experiments.collectives.jobs import MTU, TIMEOUT_NS, Jobs, Json, make_jobs
from tools.experiments.contention.model import unqueued_ns
from tools.experiments.optimum import open_spine_bps
from tools.lab import LabSpec
from tools.lab.topology import Topology
from tools.roce.collective.plan import Plan

SECONDS = 24.0


@dataclass(frozen=True)
class Setting:
    """What is the same for all arms and seeds.

    Attributes:
        spec: of the lab.
        jobs: what runs.
        seconds: of traffic a run.
    """

    spec: LabSpec
    jobs: Jobs
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
        """See `Jobs.plan`."""
        return self.jobs.plan(Topology(self.spec), seed, timeout_ns=TIMEOUT_NS)


def make_setting(
    spec: LabSpec,
    collective: str,
    *,
    seconds: float = SECONDS,
    spine_rate_bps: int | None = None,
    **of_jobs: Any,
) -> Setting:
    """Work out who is in which job, and rates.

    Args:
        spec: of the lab; the rate of the links between its switches is not looked at.
        collective: one of `COLLECTIVES`.
        seconds: see `Setting`.
        spine_rate_bps: of links between switches, None for the rate at which the best placement just fits.
        of_jobs: see `make_jobs`.

    Raises:
        ConfigError: there are too few hosts.
    """
    topology = Topology(spec)
    jobs = make_jobs(topology, collective, **of_jobs)
    if spine_rate_bps is None:
        spine_rate_bps = jobs.fitting_bps(topology)
    return Setting(replace(spec, spine_rate_bps=spine_rate_bps), jobs, seconds)


def summarise(plan: Plan, result: measure.Result) -> Json:
    """What a run came to, by iterations that began once all had settled: a row of the result."""
    jobs = [{"job": name, **times(settled(found, result))} for name, found in by_job(plan, result).items()]
    return {"jobs": jobs, "idle_share": result["idle_share"], **measure.totals(result)}
