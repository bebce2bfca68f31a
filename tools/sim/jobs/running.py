"""What the ranks of a plan do one after the other, in arithmetic, and what is done to them meanwhile."""

import math
import random
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tools.roce.collective.plan import Plan
from tools.roce.collective.rank import RankStep, Stall
from tools.roce.flows import Flow

Span = tuple[int, int, int]
"""A message: when its first byte leaves and its last one, in ns, and its length."""

OWD_NS = 20_000
RATE_BPS = 10e9


@dataclass(frozen=True, kw_only=True)
class Conditions:
    """When ranks run, and what is done to them and to flows; times from the beginning of the run.

    Attributes:
        begins_ns: when ranks begin, in the second after it.
        ends_ns: when they begin nothing more.
        since_ns: when what is done to them begins.
        late: by what share ranks compute longer, by name.
        slow: how many times as long messages of flows take, by the flow's place in the plan.
        stalls: ranks that take no notice of what arrives now and then, by name.
        checkpoint: after so many iterations all ranks do something else for so many ns; none for 0. From the start.
    """

    begins_ns: int = 0
    ends_ns: float = math.inf
    since_ns: int = 0
    late: Mapping[str, float] = field(default_factory=dict)
    slow: Mapping[int, float] = field(default_factory=dict)
    stalls: Mapping[str, Stall] = field(default_factory=dict)
    checkpoint: tuple[int, int] = (0, 0)


WELL = Conditions()


@dataclass(frozen=True)
class Call:
    """A rank's part of an iteration.

    Attributes:
        start_ns, end_ns: when it has computed, and when all it sent is acknowledged.
        waited_ns: how long what each of the others sent it waited until it took it, by the flow's place.
    """

    start_ns: int
    end_ns: int
    waited_ns: Mapping[int, int]


@dataclass(frozen=True)
class Run:
    """What was done.

    Attributes:
        spans: the messages of each flow.
        starts_ns: when the first rank began its iterations.
        calls: of each rank, one an iteration.
    """

    spans: list[list[Span]]
    starts_ns: NDArray[np.int64]
    calls: list[list[Call]]


def run(plan: Plan, until_ns: int, rng: random.Random, conditions: Conditions = WELL) -> Run:
    """Let the ranks of a plan go on until a moment, in ns from the beginning."""
    return _Running(plan, until_ns, rng, conditions).run()


class _Running:
    """A run that goes on."""

    def __init__(self, plan: Plan, until_ns: int, rng: random.Random, conditions: Conditions) -> None:
        self._plan, self._rng, self._conditions = plan, rng, conditions
        self._until_ns = min(until_ns, conditions.ends_ns)
        self._spans: list[list[Span]] = [[] for _ in plan.flows]
        self._taken = [0] * len(plan.flows)
        ranks = len(plan.ranks)
        self._at_ns, self._place = [conditions.begins_ns + rng.randrange(10**9)] * ranks, [0] * ranks
        self._began_ns, self._waited = [0] * ranks, [dict[int, int]() for _ in range(ranks)]
        self._starts: list[int] = []
        self._calls: list[list[Call]] = [[] for _ in range(ranks)]

    def run(self) -> Run:
        going = True
        while going:
            going = False
            for r, rank in enumerate(self._plan.ranks):
                while self._at_ns[r] < self._until_ns:
                    step = rank.steps[self._place[r] % len(rank.steps)]
                    if any(self._taken[i] >= len(self._spans[i]) for i in step.inputs):
                        break
                    going = True
                    self._do(r, step)
        return Run(self._spans, np.array(self._starts, np.int64), self._calls)

    def _do(self, r: int, step: RankStep) -> None:
        """A step of which all inputs are on their way."""
        rank = self._plan.ranks[r]
        iteration, place = divmod(self._place[r], len(rank.steps))
        if place == 0 and r == 0:
            self._starts.append(self._at_ns[r])
        arrived = [self._spans[i][self._taken[i]][1] + OWD_NS for i in step.inputs]
        noticed_ns = self._noticed(rank.name, max([self._at_ns[r], *arrived]))
        for i, at_ns in zip(step.inputs, arrived, strict=True):
            self._taken[i] += 1
            self._waited[r][i] = self._waited[r].get(i, 0) + noticed_ns - at_ns
        self._at_ns[r] = noticed_ns + self._computes_ns(
            rank.name, step, noticed_ns, iteration if place == 0 else 0
        )
        if place == 0:
            self._began_ns[r] = self._at_ns[r]
        for i in step.outputs:
            self._spans[i].append(self._message(i, self._at_ns[r]))
        self._place[r] += 1
        if place + 1 == len(rank.steps):
            mine = {i for each in rank.steps for i in each.outputs}
            self._at_ns[r] = max([self._at_ns[r], *(self._spans[i][-1][1] + 2 * OWD_NS for i in mine)])
            self._calls[r].append(Call(self._began_ns[r], self._at_ns[r], self._waited[r]))
            self._waited[r] = {}

    def _computes_ns(self, name: str, step: RankStep, at_ns: int, iteration: int) -> int:
        late = self._conditions.late.get(name, 0.0) if self._is_on(at_ns) else 0.0
        every, pause_ns = self._conditions.checkpoint
        longer_ns = pause_ns if every and iteration and iteration % every == 0 else 0
        jitter = self._rng.uniform(-step.jitter_ns, step.jitter_ns)
        return round((step.compute_ns + jitter) * (1 + late)) + longer_ns

    def _noticed(self, name: str, at_ns: int) -> int:
        """When a rank takes notice of what has arrived: as soon as it does not stand still."""
        stall = self._conditions.stalls.get(name)
        if stall is None or not self._is_on(at_ns):
            return at_ns
        left_ns = stall.every_ns - at_ns % stall.every_ns
        return at_ns + left_ns if left_ns <= stall.stall_ns else at_ns

    def _message(self, i: int, at_ns: int) -> Span:
        flow: Flow = self._plan.flows[i]
        before = self._spans[i]
        begins = max(at_ns, before[-1][1] if before else 0)
        slow = self._conditions.slow.get(i, 1.0) if self._is_on(begins) else 1.0
        return begins, begins + round(8e9 * slow * flow.message_bytes / RATE_BPS), flow.message_bytes

    def _is_on(self, at_ns: int) -> bool:
        return at_ns >= self._conditions.since_ns
