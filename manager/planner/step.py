"""One step of the planner: where every queue pair is to go from now on."""

import numpy as np
from numpy.typing import NDArray

from manager.config import PlannerSettings
from manager.hosts.happening import Move
from manager.placement import link_loads, place
from manager.planner.candidates import Watched, backup_for, watched_ports
from manager.planner.entries import NO_PORT
from manager.planner.events import Outcome, Reasons
from manager.planner.located import Located
from manager.planner.moves import Budget, Moves
from manager.planner.problem import PlannerInputs, Problem, pose
from manager.planner.steering_state import SteeringState

Mask = NDArray[np.bool_]
Indices = NDArray[np.intp]


def step(
    inputs: PlannerInputs,
    steering: SteeringState,
    located: Located,
    budget: Budget,
    settings: PlannerSettings,
) -> Outcome:
    """Decide, and write what was decided into the steering state."""
    outcome = Outcome()
    problem = pose(inputs, steering, located)
    if not len(problem.names):
        return outcome
    unknown = problem.now < 0
    lost = problem.free & ~problem.drained & (unknown | problem.is_dead(problem.now))
    placed = place(problem.fabric, problem.demand, np.where(lost, -1, problem.now))
    hopeless = lost & ~unknown & problem.is_dead(placed)
    placed[hopeless] = problem.now[hopeless]
    outcome.held_back["no_way_round"] = int(np.count_nonzero(hopeless))
    moves = Moves(problem, inputs, budget, settings)
    chosen = moves.make(placed, lost & ~hopeless, outcome)
    outcome.put_bps = link_loads(problem.fabric, problem.demand, chosen)[:-1]
    hold_s = settings.hold_s
    _enter(
        problem,
        chosen,
        lost & ~hopeless,
        hold_s,
        inputs=inputs,
        steering=steering,
        located=located,
        outcome=outcome,
    )
    return outcome


def _enter(
    problem: Problem,
    chosen: Indices,
    lost: Mask,
    hold_s: float,
    *,
    inputs: PlannerInputs,
    steering: SteeringState,
    located: Located,
    outcome: Outcome,
) -> None:
    """Write the new ports and backups down, and who must be told."""
    dead = np.append(problem.fabric.capacity_bps <= 0, False)
    reasons = Reasons(inputs.candidates.routes.links, inputs.dead, inputs.faults)
    watched: dict[int, Watched] = {}
    has_backup = problem.entries.backup_sport != NO_PORT
    settled = (chosen == problem.now) & has_backup & (problem.entries.chosen_of == problem.choices)
    dead_number = located.number_dead(dead)
    if dead.any():
        settled &= problem.entries.chosen_without == dead_number
    for i in _to_look_at(problem, ~settled, inputs.flows.small[problem.flow]):
        name = problem.names[i]
        entry, choices = steering.of(name), inputs.candidates.of(name.src, name.dst_addr)
        assert choices is not None, name
        ports = watched.setdefault(int(problem.way[i]), Watched())
        k, now, present = int(chosen[i]), int(problem.now[i]), int(entry.backup_sport) or None
        before = int(entry.sport) or int(inputs.flows.sport[problem.flow[i]])
        sport = before if k == now else watched_ports(ports, choices, k)
        ports.add(k, sport)
        if settled[i] and present is not None:
            ports.add(choices.by_port[present], present)
            continue
        backup = backup_for(choices, k, sport, present=present, watched=ports, dead=dead)
        entry.chosen_of, entry.chosen_without = choices.number, dead_number
        if not steering.ask(name, sport, backup, inputs.now_s):
            continue
        outcome.hosts.add(name.host)
        if name in outcome.gains:
            entry.move(inputs.now_s, hold_s)
            what, why = "moved", outcome.gains[name]
        elif lost[i]:
            outcome.rerouted.append(name)
            what, why = "rerouted", reasons.lost(choices, now)
        else:
            outcome.backed_up.append(name)
            what, why = "backed_up", reasons.no_backup(choices, present)
        outcome.moves.append(
            Move(
                **name._asdict(),
                what=what,
                why=why,
                sport=sport,
                backup_sport=backup,
                switches=reasons.switches(choices, k),
                before_sport=before or None,
                before_backup_sport=present,
                before_switches=reasons.switches(choices, now),
            )
        )


def _to_look_at(problem: Problem, unsettled: Mask, small: Mask) -> list[int]:
    """Those that may be told something, and all others that share ports with one of these; large ones come first."""
    looks = np.zeros(int(problem.way.max(initial=-1)) + 1, dtype=bool)
    looks[problem.way[problem.free & unsettled]] = True
    chosen = np.flatnonzero(problem.free & looks[problem.way])
    return list(chosen[np.argsort(small[chosen], kind="stable")].tolist())
