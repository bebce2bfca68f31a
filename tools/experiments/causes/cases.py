"""Runs the cases of a seed in a lab: several after each other are done to one job, with a quiet time between.

The hosts of a job wait until what the last one on them sent is forgotten, so jobs take turns on two groups of hosts.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from cwdp.cli.client import ManagerClient
from cwdp.cli.output import progress
from cwdp.errors import ManagerError
from cwdp.shared.bus.messages import host_of
from tools.experiments.causes.model import (
    FROM_THE_START,
    GROUPS,
    LEFT,
    LOSS,
    UNKNOWN,
    Json,
    Kind,
    Meanwhile,
    Setting,
    Trouble,
    Verdict,
    draw,
    fared,
    has_right,
    judge,
    not_inferred,
)
from tools.lab import Lab, faults, processor
from tools.roce.collective.plan import Plan
from tools.roce.collective.results import collective_result
from tools.roce.generator import Generator
from tools.waiting import wait_for

KNOWN_WITHIN_S = 40.0
STEADY_S = 10.0
"""For so long a job runs once its iterations are known, before something is done to it."""

FORGOTTEN_S = 34.0
"""Bursts of a job count for 30 s."""

SURE_S = 5.0
"""So long after the right cause is told a case is over."""

QUIET_S, QUIET_WITHIN_S = 10.0, 60.0
"""What was done to a job is undone so long ago at least, and nothing is said of it any more, before more is done to it."""

POLL_S = 0.5


@dataclass(frozen=True)
class Times:
    """Of each case.

    Attributes:
        within_s: in time is what is told by then.
        watch_s: how long it goes on at most.
    """

    within_s: float
    watch_s: float


@dataclass(frozen=True)
class _Job:
    """That runs.

    Attributes:
        plan: what it does.
        generator: of its packets.
        started_s: when, since 1970.
    """

    plan: Plan
    generator: Generator
    started_s: float

    def since(self, since_ns: int) -> Meanwhile:
        """How it has fared since a time, beside the seconds before."""
        (found,) = collective_result(self.plan, self.generator.iterations())["jobs"]
        return fared(found["iterations"], since_ns, STEADY_S)


class Cases:
    """Runs them.

    Args:
        lab: that is up, with a fleet.
        client: of its manager.
        setting: of the jobs.
        times: of each case.
    """

    def __init__(self, lab: Lab, client: ManagerClient, setting: Setting, times: Times) -> None:
        self._lab, self._client, self._setting, self._times = lab, client, setting, times
        self._ended_s = [0.0] * GROUPS
        self._group = 0

    def of_seed(self, seed: int, kinds: Sequence[Kind]) -> Iterator[Verdict]:
        """What was said in each case, as it is over.

        Raises:
            LabError: the lab failed.
        """
        later = [kind for kind in kinds if kind not in FROM_THE_START]
        if later:
            yield from self._later(seed, later)
        for kind in kinds:
            if kind in FROM_THE_START:
                trouble = draw(kind, self._lab.topology, seed, self._group)
                with self._job(trouble) as job:
                    since_s = self._known_at(trouble)
                    if since_s is None:
                        yield not_inferred(trouble)
                        continue
                    self._watch(trouble, since_s, job.started_s)
                    yield self._judged(trouble, since_s, job.started_s)

    def _later(self, seed: int, kinds: Sequence[Kind]) -> Iterator[Verdict]:
        """Of what is done to a job that is known, one after the other."""
        troubles = [draw(kind, self._lab.topology, seed, self._group) for kind in kinds]
        with self._job(troubles[0]) as job:
            if self._known_at(troubles[0]) is None:
                yield from map(not_inferred, troubles)
                return
            time.sleep(STEADY_S)
            for trouble in troubles:
                used = self._used(trouble)
                with self._troubled(trouble, used):
                    since_s = job.started_s if trouble.kind == "healthy" else time.time()
                    since_ns = time.monotonic_ns()
                    self._watch(trouble, since_s, since_s)
                    meanwhile = job.since(since_ns)
                self._wait_until_quiet()
                yield self._judged(trouble, since_s, since_s, meanwhile)

    @contextmanager
    def _job(self, trouble: Trouble) -> Iterator["_Job"]:
        """A job on the next group of hosts."""
        group = trouble.group
        time.sleep(max(0.0, self._ended_s[group] + FORGOTTEN_S - time.monotonic()))
        self._group = (group + 1) % GROUPS
        mine, _ = self._setting.plans(self._lab.topology, trouble)
        try:
            with _running(self._lab, mine) as generator:
                yield _Job(mine, generator, time.time())
        finally:
            self._ended_s[group] = time.monotonic()

    def _watch(self, trouble: Trouble, since_s: float, started_s: float) -> None:
        """Wait until the right cause has been told for a while, or the time is over."""
        until = time.monotonic() + self._times.watch_s
        while time.monotonic() < until:
            time.sleep(POLL_S)
            if has_right(trouble, self._lab.topology, self._told(since_s, started_s)):
                until = min(until, time.monotonic() + SURE_S)
                time.sleep(max(0.0, until - time.monotonic()))

    def _judged(
        self, trouble: Trouble, since_s: float, started_s: float, meanwhile: Meanwhile = UNKNOWN
    ) -> Verdict:
        told = self._told(since_s, started_s)
        return judge(trouble, self._lab.topology, told, since_s, self._times.within_s, meanwhile=meanwhile)

    def _told(self, since_s: float, started_s: float) -> list[Json]:
        """Causes that were told since a job was started; those before something could be seen count as told then."""
        rows = self._client.get("/v1/causes", {})["causes"]
        return [row | {"told_s": max(row["told_s"], since_s)} for row in rows if row["told_s"] >= started_s]

    def _known_at(self, trouble: Trouble) -> float | None:
        """Wait for the job's iterations; when they were known, since 1970. None if it takes too long."""
        name = self._setting.job_name(self._lab.topology, trouble)
        is_known = wait_for(lambda: self._is_known(name), KNOWN_WITHIN_S, poll_s=POLL_S)
        return time.time() if is_known else None

    def _is_known(self, name: str) -> bool:
        try:
            jobs = self._client.get("/v1/causes", {})["jobs"]
        except ManagerError:  # it does not lead yet
            return False
        return any(job["name"] == name and job["usual_ns"] for job in jobs)

    def _wait_until_quiet(self) -> None:
        time.sleep(QUIET_S)
        if not wait_for(self._is_quiet, QUIET_WITHIN_S, poll_s=POLL_S):
            progress(
                f"causes are still told of {QUIET_S + QUIET_WITHIN_S:.0f} s after what was done was undone"
            )

    def _is_quiet(self) -> bool:
        return all(row["end_s"] is not None for row in self._client.get("/v1/causes", {})["causes"])

    def _used(self, trouble: Trouble) -> float:
        """How much of a processor the host with trouble uses, if it is about processors."""
        if trouble.kind != "processor":
            return 0.0
        host = host_of(trouble.nic)
        before_s = processor.used_s(self._lab.name, host)
        time.sleep(STEADY_S)
        return (processor.used_s(self._lab.name, host) - before_s) / STEADY_S

    @contextmanager
    def _troubled(self, trouble: Trouble, used: float) -> Iterator[None]:
        lab, kind = self._lab, trouble.kind
        if kind == "rival":
            with _running(lab, self._setting.plans(lab.topology, trouble)[1]):
                yield
            self._ended_s[(trouble.group + 1) % GROUPS] = time.monotonic()
            return
        if kind == "processor":
            processor.limit(lab.name, host_of(trouble.nic), LEFT * used)
        if kind == "nic":
            faults.slow(lab.name, trouble.link, lab.spec.rate_bps // 2)
        elif kind in ("loss", "cut"):
            faults.drop(lab.name, trouble.link, LOSS if kind == "loss" else 1.0)
        try:
            yield
        finally:
            if kind == "processor":
                processor.limit(lab.name, host_of(trouble.nic), None)
            if trouble.link:
                faults.heal(lab.name, trouble.link, convergence_s=0)


@contextmanager
def _running(lab: Lab, plan: Plan) -> Iterator[Generator]:
    with Generator(plan.flows, lab.popen, lab.run_dir, ranks=plan.ranks) as generator:
        generator.start()
        yield generator
        generator.stop()
