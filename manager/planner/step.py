"""One step of the planner: where every queue pair is to go from now on."""

import numpy as np
from numpy.typing import NDArray

from manager.config import PlannerSettings
from manager.placement import place
from manager.planner.candidates import Watched, backup_for, watched_ports
from manager.planner.events import Outcome
from manager.planner.moves import Budget, Moves
from manager.planner.problem import PlannerInputs, Problem, pose
from manager.planner.steering_state import SteeringState

Mask = NDArray[np.bool_]
Indices = NDArray[np.intp]


def step(
    inputs: PlannerInputs, steering: SteeringState, budget: Budget, settings: PlannerSettings
) -> Outcome:
    """Decide, and write what was decided into the steering state."""
    outcome = Outcome()
    problem = pose(inputs, steering)
    if not len(problem.names):
        return outcome
    unknown = problem.now < 0
    lost = problem.free & (unknown | problem.is_dead(problem.now))
    placed = place(problem.fabric, problem.demand, np.where(lost, -1, problem.now))
    hopeless = lost & ~unknown & problem.is_dead(placed)
    placed[hopeless] = problem.now[hopeless]
    outcome.held_back["no_way_round"] = int(np.count_nonzero(hopeless))
    moves = Moves(problem, inputs, budget, settings)
    chosen = moves.make(placed, lost & ~hopeless, outcome)
    hold_s = settings.hold_s
    _enter(problem, chosen, lost & ~hopeless, hold_s, inputs=inputs, steering=steering, outcome=outcome)
    return outcome


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
