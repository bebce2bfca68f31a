"""A job over two leaves and two spines, and what is done to it. Pure."""

import math
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import numpy as np

from manager.causes.cause import Links
from manager.fabric.routes import DirectedLink
from manager.jobs.flows import Flow
from manager.links.loads import tiers
from tools.roce.collective.plan import Plan
from tools.roce.collective.rank import Stall
from tools.sim.jobs.running import Conditions
from tools.sim.jobs.world import EPOCH_NS, World, ends_of, job, play

Kind = Literal["healthy", "compute", "nic", "rival", "stall"]
KINDS: tuple[Kind, ...] = "healthy", "compute", "nic", "rival", "stall"
RIGHT: Mapping[Kind, tuple[str, ...]] = {
    "healthy": (),
    "compute": ("compute",),
    "nic": ("nic",),
    "rival": ("contention", "incast"),
    "stall": ("host",),
}
"""What the manager may call each."""

NICS = tuple(f"h{i}/nic0" for i in range(1, 9))
MINE, BESIDE = NICS[::2], NICS[1::2]
HALF = len(NICS) // 2
RATE_BPS = 10e9
LATE, SLOW = 0.2, 2.0
STALL_NS, STALL_EVERY_NS = 50_000_000, 2_000_000_000
QUEUED_NS, QUIET_NS = 20e6, 100e3
QUEUE_SEEN_NS = 10**9
"""So long after packets wait at a link the manager knows."""


@dataclass(frozen=True, kw_only=True)
class Pace:
    """How a job runs when nothing is done to it.

    Attributes:
        iteration_s: how long an iteration takes.
        sending: the share of it in which it sends.
        jitter: by what share ranks compute longer or shorter.
        checkpoint: as `Conditions` has it.
        collective: which.
    """

    iteration_s: float = 0.55
    sending: float = 0.45
    jitter: float = 0.03
    checkpoint: tuple[int, int] = (0, 0)
    collective: str = "ring"


@dataclass(frozen=True, kw_only=True)
class Drawn:
    """A job, what is done to it, and when.

    Attributes:
        kind: what is done.
        seed: draws the rest.
        since_s: when it begins, after the job.
        ends_s: when all is over.
        pace: of the job.
        stops_s: when the job is over.
        beside_s: from when until when another job runs on hosts of its own, at the same pace, and gets in nobody's way; None for
            never. A rival runs from when the trouble begins.
    """

    kind: Kind
    seed: int
    pace: Pace = field(default_factory=Pace)
    since_s: float = 32.0
    ends_s: float = 75.0
    stops_s: float = math.inf
    beside_s: tuple[float, float] | None = None

    @cached_property
    def nic(self) -> str:
        """Of the rank that it is about."""
        return random.Random(f"{self.kind} {self.seed}").choice(MINE)

    @cached_property
    def ways(self) -> dict[Flow, list[DirectedLink]]:
        """The links that each queue pair crosses; those between leaves all use one spine."""
        return {Flow(*flow): _way(flow[0], flow[1]) for flows in self.world.jobs for flow in flows}

    @cached_property
    def bad(self) -> DirectedLink | None:
        """The link at which packets wait."""
        if self.kind == "nic":
            return DirectedLink(_leaf(self.nic), self.nic)
        return DirectedLink("l1", "s1") if self.kind == "rival" else None

    @property
    def bad_name(self) -> str:
        """The link at which packets wait, for people."""
        return "" if self.bad is None else f"{self.bad.a} > {self.bad.b}"

    @cached_property
    def world(self) -> World:
        """What is sent."""
        ends = ends_of([(nic.partition("/")[0], "nic0") for nic in NICS])
        plans = [self._plan(ends, MINE, 2 * self.seed)]
        conditions = [self._conditions(plans[0], {str(end.address): nic for nic, end in ends.items()})]
        beside_s = (self.since_s, math.inf) if self.kind == "rival" else self.beside_s
        if beside_s is not None:
            plans.append(self._plan(ends, BESIDE, 2 * self.seed + 1))
            conditions.append(Conditions(begins_ns=round(beside_s[0] * 1e9), ends_ns=beside_s[1] * 1e9))
        return play(plans, ends, self.ends_s, seed=self.seed, conditions=conditions)

    def _plan(self, ends: object, ranks: tuple[str, ...], seed: int) -> Plan:
        pace = self.pace
        sent_bytes = pace.sending * pace.iteration_s * RATE_BPS / 8
        steps = 2 * (len(ranks) - 1) if pace.collective == "ring" else 1
        return job(
            ends,  # type: ignore[arg-type]
            pace.collective,
            ranks,
            1e3 * (1 - pace.sending) * pace.iteration_s,
            jitter=pace.jitter,
            seed=seed,
            buffer_bytes=round(sent_bytes * len(ranks) / steps),
        )

    def _conditions(self, plan: Plan, nics: Mapping[str, str]) -> Conditions:
        kind, bad = self.kind, self.bad
        slow = [
            i
            for i, flow in enumerate(plan.flows)
            if bad in _way(nics[str(flow.source.address)], nics[str(flow.target.address)])
        ]
        return Conditions(
            ends_ns=self.stops_s * 1e9,
            since_ns=round(self.since_s * 1e9),
            late={self.nic: LATE} if kind == "compute" else {},
            slow=dict.fromkeys(slow, SLOW),
            stalls={self.nic: Stall(STALL_NS, STALL_EVERY_NS)} if kind == "stall" else {},
            checkpoint=self.pace.checkpoint,
        )

    def links(self, now_ns: int) -> Links:
        """What the manager knows of links at a moment on the timeline."""
        names = sorted({link for way in self.ways.values() for link in way})
        place = {link: i for i, link in enumerate(names)}
        waits = now_ns - EPOCH_NS > self.since_s * 1e9 + QUEUE_SEEN_NS
        queued = [QUEUED_NS if waits and link == self.bad else QUIET_NS for link in names]
        return Links(
            names=names,
            tier=tiers(names),
            queue_p99_ns=np.array(queued),
            of={flow: frozenset(place[link] for link in way) for flow, way in self.ways.items()},
        )


def _leaf(nic: str) -> str:
    return "l1" if NICS.index(nic) < HALF else "l2"


def _way(src: str, dst: str) -> list[DirectedLink]:
    a, b = _leaf(src), _leaf(dst)
    between = [] if a == b else [DirectedLink(a, "s1"), DirectedLink("s1", b)]
    return [DirectedLink(src, a), *between, DirectedLink(b, dst)]
