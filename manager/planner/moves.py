"""Which queue pairs are moved for more room: those that it helps most, no more at once than the budget has.

Queue pairs whose NICs talk to each other, directly or by others, are a job: a move may hold all of it up.
"""

import math
from collections import Counter
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from manager.config import PlannerSettings
from manager.placement import Fabric, improve, utilisation
from manager.planner.demand import STARVED
from manager.planner.events import Outcome
from manager.planner.problem import PlannerInputs, Problem, hopeful
from manager.planner.retry import put_one_back

FULL = 1.05
"""From this utilisation on more is wanted of a link than it carries: neither of the two is known to a few hundredths."""

SETTLED_S = 1.0
"""So long after a move a queue pair's rate is not yet what it will be."""

FULL_S = 2.0
"""So long a queue pair must have been where it is to be moved for no more than a queue that stands there."""

LEAST_STEP, STEP_SHARE = 4, 0.25
"""Moves in one step at most: so many, or this share of the queue pairs, whichever is more."""

REMEMBERED_S = 10.0
"""For so long a job that was moved is rather left alone."""

DRAINED_REST_S = 60.0
"""Between two moves of a queue pair that is drained for it."""

BURST_S = 1.0
REST_S = 0.2

_TRIES = 4

Mask = NDArray[np.bool_]
Indices = NDArray[np.intp]


class Budget:
    """Token buckets, one of the fleet and one of each host, that hold what comes in in `BURST_S`.

    Args:
        per_s: moves of the fleet in a second.
        per_host_s: moves of each host in a second.
    """

    def __init__(self, per_s: float, per_host_s: float) -> None:
        self._per_s, self._per_host_s = per_s, per_host_s
        self._used = 0.0
        self._used_by: dict[str, float] = {}
        self._at_s = 0.0
        self._rests_until_s = 0.0

    def is_due(self, now_s: float) -> bool:
        """Whether it is time to look for moves again."""
        return now_s >= self._rests_until_s

    def rest(self, now_s: float) -> None:
        """No move was found: none will be for a little while."""
        self._rests_until_s = now_s + REST_S

    def refill(self, now_s: float) -> None:
        """Time has passed."""
        passed_s = max(0.0, now_s - self._at_s)
        self._at_s = now_s
        self._used = max(0.0, self._used - passed_s * self._per_s)
        left = {host: used - passed_s * self._per_host_s for host, used in self._used_by.items()}
        self._used_by = {host: used for host, used in left.items() if used > 0}

    def left(self) -> int:
        """Moves that the fleet may make."""
        return max(0, int(max(1.0, self._per_s * BURST_S) - self._used + 1e-9))

    def left_of(self, host: str) -> int:
        """Moves that a host's queue pairs may make, as far as the host goes."""
        most = max(1.0, self._per_host_s * BURST_S)
        return max(0, int(most - self._used_by.get(host, 0.0) + 1e-9))

    def spend(self, moves: Counter[str]) -> None:
        """So many are made, by host."""
        self._used += moves.total()
        for host, count in moves.items():
            self._used_by[host] = self._used_by.get(host, 0.0) + count


class Moves:
    """Moves queue pairs off links that are too full: few, not those moved of late, within the budget."""

    def __init__(
        self, problem: Problem, inputs: PlannerInputs, budget: Budget, settings: PlannerSettings
    ) -> None:
        self._problem, self._inputs, self._budget, self._settings = problem, inputs, budget, settings
        self._moved_s = problem.entries.moved_s

    def make(self, placed: Indices, lost: Mask, outcome: Outcome) -> Indices:
        """The choice to take in place of `placed`; `lost` are on the move in any case."""
        problem, budget = self._problem, self._budget
        share = utilisation(problem.fabric, problem.demand, placed)
        outcome.fullest_after = float(share.max())
        target = self._target(share)
        if not (budget.is_due(self._inputs.now_s) or lost.any()):
            return placed
        budget.refill(self._inputs.now_s)
        movable = problem.free & (problem.entries.is_rested(self._inputs.now_s) | lost)
        movable &= ~problem.drained | (self._inputs.now_s - self._moved_s >= DRAINED_REST_S)
        if target is None:
            settled = movable & (self._since_s() >= FULL_S)
            target = self._target_of_full(share, placed, settled)
            if target is None:
                return placed if lost.any() else self._retry(placed, movable, outcome)
            movable = settled
        for _ in range(_TRIES):
            chosen = self._improve(placed, movable, target)
            moves = self._by_host(chosen != placed)
            over = {host for host, count in moves.items() if count > budget.left_of(host)}
            if not over:
                break
            outcome.held_back["rate"] += sum(moves[host] - budget.left_of(host) for host in over)
            movable &= ~self._beyond(chosen != placed, over)
        else:
            return placed
        if not moves:
            chosen = self._try(placed, movable)
            moves = self._by_host(chosen != placed)
            budget.rest(self._inputs.now_s)
        budget.spend(moves)
        self._tell(outcome, placed, chosen, lost)
        return chosen

    def _improve(self, placed: Indices, movable: Mask, target: float) -> Indices:
        most = max(LEAST_STEP, math.ceil(STEP_SHARE * len(placed)))
        return self._improved(self._problem.fabric, placed, movable, target, min(self._budget.left(), most))

    def _try(self, placed: Indices, movable: Mask) -> Indices:
        """Nothing helps by what is known, but somebody is starved: one move to where there may be more than is known.

        If there is not, the link is seen full then, and is not tried again. Nothing is tried until what earlier moves
        did can be seen.
        """
        inputs = self._inputs
        if inputs.nic_bps is None or not self._is_settled() or not self._starved().any():
            return placed
        fabric = hopeful(self._problem, inputs.links, inputs.nic_bps)
        return self._improved(
            fabric, placed, movable & self._within_budget(), 1.0, min(self._budget.left(), 1)
        )

    def _retry(self, placed: Indices, movable: Mask, outcome: Outcome) -> Indices:
        """Nothing is wrong: one move to a link that was slow, to see whether it still is."""
        doubted = self._inputs.links.doubted
        if not doubted.any() or not self._is_settled() or not self._budget.left():
            return placed
        chosen = put_one_back(
            self._problem.fabric,
            self._problem.demand,
            placed,
            doubted=doubted,
            movable=movable & self._within_budget(),
        )
        outcome.tried = True
        self._budget.spend(self._by_host(chosen != placed))
        self._tell(outcome, placed, chosen, np.zeros(len(placed), dtype=bool))
        return chosen

    def _is_settled(self) -> bool:
        """Whether it can be seen by now what earlier moves did."""
        since_s = self._inputs.now_s - self._moved_s.max(initial=-math.inf)
        return bool(since_s >= self._settings.hold_s)

    def _within_budget(self) -> Mask:
        """Whose hosts may make a move."""
        hosts = {name.host for name in self._problem.names if self._budget.left_of(name.host) < 1}
        return np.array([name.host not in hosts for name in self._problem.names], dtype=bool)

    def _improved(
        self, fabric: Fabric, placed: Indices, movable: Mask, target: float, most_moves: int
    ) -> Indices:
        return improve(
            fabric,
            self._problem.demand,
            placed,
            target=target,
            movable=movable,
            reluctance=self._reluctance(),
            most_moves=most_moves,
            least_gain=self._settings.least_gain,
        )

    def _tell(self, outcome: Outcome, placed: Indices, chosen: Indices, lost: Mask) -> None:
        problem, changed = self._problem, chosen != placed
        outcome.moved = [problem.names[i] for i in np.flatnonzero(changed & ~lost)]
        outcome.jobs_moved = len(set(self._jobs[0][changed & ~lost].tolist()))
        before, after = (utilisation(problem.fabric, problem.demand, choice) for choice in (placed, chosen))
        outcome.fullest_after = float(after.max())
        for i in np.flatnonzero(changed & ~lost).tolist():
            outcome.gains[problem.names[i]] = self._gain(i, placed, chosen, before=before, after=after)
        if outcome.tried:
            outcome.gains = {
                name: f"{gain}; tried on a link that was slow" for name, gain in outcome.gains.items()
            }
        emptier = np.flatnonzero(after[:-1] < before[:-1])
        if len(emptier):
            hot = int(emptier[before[emptier].argmax()])
            outcome.relieved = self._inputs.candidates.routes.links[hot]
            outcome.top_before, outcome.top_after = float(before[hot]), float(after[hot])

    def _gain(
        self,
        i: int,
        placed: Indices,
        chosen: Indices,
        *,
        before: NDArray[np.float64],
        after: NDArray[np.float64],
    ) -> str:
        """What one move does for the fullest of the links that it leaves."""
        paths, pair = self._problem.fabric.paths, self._problem.demand.pair[i]
        old, new = (set(paths.links[:, pair, choice[i]].tolist()) for choice in (placed, chosen))
        left = old - new - {paths.link_count}
        if not left:
            return "for more room"
        hot = max(left, key=before.item)
        a, b = self._inputs.candidates.routes.links[hot]
        return f"{a} > {b} was wanted for {before[hot]:.0%} of what it carries, now {after[hot]:.0%}"

    def _by_host(self, changed: Mask) -> Counter[str]:
        """How many of these queue pairs each host has."""
        return Counter(self._problem.names[i].host for i in np.flatnonzero(changed))

    def _beyond(self, changed: Mask, over: set[str]) -> Mask:
        """The moves of hosts that have too many, but for as many as each may make."""
        left = {host: self._budget.left_of(host) for host in over}
        beyond = np.zeros(len(changed), dtype=bool)
        for i in np.flatnonzero(changed):
            host = self._problem.names[i].host
            if host in over:
                left[host] -= 1
                beyond[i] = left[host] < 0
        return beyond

    def _target(self, share: NDArray[np.float64]) -> float | None:
        """How full links may stay; None where there is no reason to move anybody.

        More is wanted of a link than it carries, unless it is known to have no queue; or somebody is starved, so that
        some link carries less than it is thought to.
        """
        if self._inputs.nic_bps is None:
            return None
        if ((share[:-1] > FULL) & self._inputs.links.queueing).any():
            return 1.0
        return float(share.max()) / 2 if self._starved().any() else None

    def _target_of_full(self, share: NDArray[np.float64], placed: Indices, movable: Mask) -> float | None:
        """How full links may stay where a queue stands though no more seems to be wanted; None where no move helps.

        Where all that share a link have done so ever since they began, nobody has seen what their NICs' links carry.
        """
        full = self._inputs.links.full
        if self._inputs.nic_bps is None or not full.any():
            return None
        target = float(share[:-1][full].max()) / FULL
        return target if (self._improve(placed, movable, target) != placed).any() else None

    def _starved(self) -> Mask:
        """Who gets less than it could have, and was not moved just now; of those that say what they get."""
        problem, inputs = self._problem, self._inputs
        settled = self._since_s() >= SETTLED_S
        large = ~inputs.flows.small[problem.flow]
        starved: Mask = settled & problem.heard & large
        starved &= problem.entries.rate_bps < STARVED * problem.demand.rate_bps
        return starved

    def _since_s(self) -> NDArray[np.float64]:
        """How long each has been where it is, shape (n,)."""
        since_s: NDArray[np.float64] = np.maximum(self._moved_s, self._problem.entries.first_s)
        return self._inputs.now_s - since_s

    def _reluctance(self) -> NDArray[np.float64]:
        """What a move costs: all NICs of its job may wait for it, and more so where the job was moved of late."""
        group, size = self._jobs
        of_late = np.bincount(group, np.exp((self._moved_s - self._inputs.now_s) / REMEMBERED_S), len(size))
        return (size * (1.0 + of_late))[group]

    @cached_property
    def _jobs(self) -> tuple[Indices, Indices]:
        """See `_connected`."""
        ends = self._inputs.flows.ends
        return _connected(ends.number[:, self._problem.flow], len(ends.nics))


def _connected(ends: Indices, nics: int) -> tuple[Indices, Indices]:
    """The connected groups of NICs.

    Args:
        ends: the numbers of the NICs at both ends of each queue pair, shape (2, n).
        nics: how many there are.

    Returns:
        The group of each queue pair, shape (n,), and how many NICs each group has, shape (groups,).
    """
    graph = coo_array((np.ones(ends.shape[1]), (ends[0], ends[1])), shape=(nics, nics))
    _, group = connected_components(graph, directed=False)
    return group[ends[0]].astype(np.intp), np.bincount(group).astype(np.intp)
