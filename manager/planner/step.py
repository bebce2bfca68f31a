"""One step of the planner: where every queue pair is to go from now on, and why."""

import math
from collections import Counter
from collections.abc import Collection
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from manager.config import PlannerSettings
from manager.fabric.routes import DirectedLink, PathName
from manager.placement import Demand, Fabric, improve, place, utilisation
from manager.planner.backups import Watched, backup_for, watched_ports
from manager.planner.budget import Budget
from manager.planner.candidates import Candidates
from manager.planner.demand import STARVED, demands
from manager.planner.flows import Flows, QpName
from manager.planner.jobs import jobs
from manager.planner.problem import Links, Problem, capacities, hopeful, locate
from manager.planner.steering_state import Entry, SteeringState

FULL = 1.05
"""From this utilisation on more is wanted of a link than it carries: neither of the two is known to a few hundredths."""

SETTLED_S = 1.0
"""So long after a move a queue pair's rate is not yet what it will be."""

LEAST_STEP, STEP_SHARE = 4, 0.25
"""Moves in one step at most: so many, or this share of the queue pairs, whichever is more."""

REMEMBERED_S = 10.0
"""For so long a job that was moved is rather left alone."""

GUESS_BPS = 100e9

_TRIES = 4

Mask = NDArray[np.bool_]
Indices = NDArray[np.intp]


@dataclass(frozen=True, kw_only=True)
class PlannerInputs:
    """What the planner goes by in one step.

    Attributes:
        now_s: the manager's monotonic clock.
        flows: the queue pairs that send.
        candidates: the known paths.
        links: what is known of the links.
        dead: links not to use.
        nic_bps: the rate of a NIC's link, None while nothing is known of any.
        hands_off: queue pairs that others steer.
        silent: those of NICs that have said nothing of late: they keep what they have, and the room that they took.
        observers: hosts that only observe.
    """

    now_s: float
    flows: Flows
    candidates: Candidates
    links: Links
    dead: Collection[DirectedLink] = ()
    nic_bps: float | None
    hands_off: AbstractSet[QpName] = frozenset()
    silent: AbstractSet[QpName] = frozenset()
    observers: Collection[str] = ()


@dataclass(kw_only=True)
class Outcome:
    """What a step did.

    Attributes:
        hosts: those that are to be told something new.
        moved: queue pairs moved to where there is more room.
        rerouted: queue pairs moved off dead links, or put on a known path.
        backed_up: queue pairs with a new backup, that were not moved.
        held_back: moves that were due and must wait, by why.
        relieved: the fullest link that moves for more room have emptied.
        top_before, top_after: how full it was and is now, as a share of its capacity.
        fullest_after: how full the fullest link of all is.
        jobs_moved: how many jobs the moved ones belong to.
    """

    hosts: set[str] = field(default_factory=set)
    moved: list[QpName] = field(default_factory=list)
    rerouted: list[QpName] = field(default_factory=list)
    backed_up: list[QpName] = field(default_factory=list)
    held_back: Counter[str] = field(default_factory=Counter)
    top_before: float = 0.0
    top_after: float = 0.0
    fullest_after: float = 0.0
    relieved: DirectedLink | None = None
    jobs_moved: int = 0


def step(
    inputs: PlannerInputs, steering: SteeringState, budget: Budget, settings: PlannerSettings
) -> Outcome:
    """Decide, and write what was decided into the steering state."""
    outcome = Outcome()
    problem = _pose(inputs, steering)
    if not len(problem.names):
        return outcome
    unknown = problem.now < 0
    lost = problem.free & (unknown | problem.is_dead(problem.now))
    placed = place(problem.fabric, problem.demand, np.where(lost, -1, problem.now))
    hopeless = lost & ~unknown & problem.is_dead(placed)
    placed[hopeless] = problem.now[hopeless]
    outcome.held_back["no_way_round"] = int(np.count_nonzero(hopeless))
    room = _Room(problem, inputs, budget, settings)
    chosen = room.make(placed, lost & ~hopeless, outcome)
    hold_s = settings.hold_s
    _enter(problem, chosen, lost & ~hopeless, hold_s, inputs=inputs, steering=steering, outcome=outcome)
    return outcome


def _pose(inputs: PlannerInputs, steering: SteeringState) -> Problem:
    flows, now_s = inputs.flows, inputs.now_s
    entries = [
        steering.know(name, now_s) if name in inputs.silent else steering.see(name, rate, now_s)
        for name, rate in zip(flows.names, flows.rate_bps.tolist(), strict=True)
    ]
    kept, choices, paths, free = locate(
        inputs.candidates,
        flows,
        entries,
        hands_off=inputs.hands_off | inputs.silent,
        observers=inputs.observers,
        now_s=now_s,
    )
    path_set, pairs = inputs.candidates.path_set(choices)
    nic_bps = inputs.nic_bps or GUESS_BPS
    fabric = Fabric(capacities(inputs.candidates, inputs.links, inputs.dead, nic_bps), path_set)
    flow, pair, now = (np.array(column, dtype=np.intp) for column in (kept, pairs, paths))
    rates = np.array([entry.rate_bps for entry in entries])
    wanted = demands(flows, nic_bps, rates, _queueing(inputs, entries))
    return Problem(
        names=[flows.names[i] for i in kept],
        entries=[entries[i] for i in kept],
        choices=choices,
        flow=flow,
        fabric=fabric,
        demand=Demand(pair, wanted[flow]),
        now=now,
        free=np.array(free, dtype=bool),
    )


def _queueing(inputs: PlannerInputs, entries: list[Entry]) -> Mask:
    """Whether a queue on its way may be why a flow sends no more: not where every link has been without for a while."""
    may = np.ones(len(entries), dtype=bool)
    for i, (name, entry) in enumerate(zip(inputs.flows.names, entries, strict=True)):
        port = entry.port(int(inputs.flows.sport[i]), inputs.now_s)
        links = inputs.candidates.routes.paths.get(PathName(name.src, name.dst_addr, port))
        queueing = not links or bool(inputs.links.queueing[list(links)].any())
        may[i] = entry.may_queue(queueing, inputs.now_s)
    return may


class _Room:
    """Moves queue pairs off links that are too full: few, not those moved of late, within the budget."""

    def __init__(
        self, problem: Problem, inputs: PlannerInputs, budget: Budget, settings: PlannerSettings
    ) -> None:
        self._problem, self._inputs, self._budget, self._settings = problem, inputs, budget, settings
        self._group, self._size = jobs(
            [name.src for name in problem.names], [inputs.flows.dst[i] for i in problem.flow]
        )
        self._moved_s = np.array([entry.moved_s for entry in problem.entries])

    def make(self, placed: Indices, lost: Mask, outcome: Outcome) -> Indices:
        """The choice to take in place of `placed`; `lost` are on the move in any case."""
        problem, budget = self._problem, self._budget
        share = utilisation(problem.fabric, problem.demand, placed)
        outcome.fullest_after = float(share.max())
        target = self._target(share)
        if target is None or not (budget.is_due(self._inputs.now_s) or lost.any()):
            return placed
        budget.refill(self._inputs.now_s)
        rested = np.array([entry.is_rested(self._inputs.now_s) for entry in problem.entries])
        movable = problem.free & (rested | lost)
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
        settled = inputs.now_s - self._moved_s.max(initial=-math.inf) >= self._settings.hold_s
        if inputs.nic_bps is None or not settled or not self._starved().any():
            return placed
        hosts = {name.host for name in self._problem.names if self._budget.left_of(name.host) < 1}
        free = np.array([name.host not in hosts for name in self._problem.names], dtype=bool)
        fabric = hopeful(self._problem, inputs.links, inputs.nic_bps)
        return self._improved(fabric, placed, movable & free, 1.0, min(self._budget.left(), 1))

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
        outcome.jobs_moved = len(set(self._group[changed & ~lost].tolist()))
        before, after = (utilisation(problem.fabric, problem.demand, choice) for choice in (placed, chosen))
        outcome.fullest_after = float(after.max())
        emptier = np.flatnonzero(after[:-1] < before[:-1])
        if len(emptier):
            hot = int(emptier[before[emptier].argmax()])
            outcome.relieved = self._inputs.candidates.routes.links[hot]
            outcome.top_before, outcome.top_after = float(before[hot]), float(after[hot])

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

    def _starved(self) -> Mask:
        """Who gets less than it could have, and was not moved just now; of those that say what they get."""
        problem, inputs = self._problem, self._inputs
        heard = np.array([name not in inputs.silent for name in problem.names], dtype=bool)
        rate = np.array([entry.rate_bps for entry in problem.entries])
        since_s = np.maximum(self._moved_s, [entry.first_s for entry in problem.entries])
        settled = self._inputs.now_s - since_s >= SETTLED_S
        large = ~inputs.flows.small[problem.flow]
        starved: Mask = settled & heard & large & (rate < STARVED * problem.demand.rate_bps)
        return starved

    def _reluctance(self) -> NDArray[np.float64]:
        """What a move costs: all NICs of its job may wait for it, and more so where the job was moved of late."""
        of_late = np.bincount(
            self._group, np.exp((self._moved_s - self._inputs.now_s) / REMEMBERED_S), len(self._size)
        )
        return (self._size * (1.0 + of_late))[self._group]


def _enter(
    problem: Problem,
    chosen: Indices,
    lost: Mask,
    hold_s: float,
    *,
    inputs: PlannerInputs,
    steering: SteeringState,
    outcome: Outcome,
) -> None:
    """Write the new ports and backups down, and who must be told."""
    dead = np.append(problem.fabric.capacity_bps <= 0, False)
    any_dead = bool(dead.any())
    moved = set(outcome.moved)
    watched: dict[tuple[str, str], Watched] = {}
    order = np.argsort(inputs.flows.small[problem.flow], kind="stable")
    for i in order[problem.free[order]].tolist():
        name, entry, choices = problem.names[i], problem.entries[i], problem.choices[i]
        ports = watched.setdefault((name.src, name.dst_addr), Watched())
        k = int(chosen[i])
        stays = k == int(problem.now[i])
        seen = int(inputs.flows.sport[problem.flow[i]])
        sport = (entry.sport or seen) if stays else watched_ports(ports, choices, k)
        ports.add(k, sport)
        if stays and not any_dead and entry.choices is choices and entry.backup_sport is not None:
            ports.add(choices.by_port[entry.backup_sport], entry.backup_sport)
            continue
        backup = backup_for(choices, k, sport, present=entry.backup_sport, watched=ports, dead=dead)
        entry.choices = choices
        if not steering.ask(name, sport, backup, inputs.now_s):
            continue
        outcome.hosts.add(name.host)
        if name in moved:
            entry.move(inputs.now_s, hold_s)
        elif lost[i]:
            outcome.rerouted.append(name)
        else:
            outcome.backed_up.append(name)
