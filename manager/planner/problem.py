"""From the planner's inputs to what is to be placed: the queue pairs whose paths are known, as arrays."""

from collections.abc import Collection, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from manager.fabric.routes import DirectedLink, PathName
from manager.placement import Demand, Fabric
from manager.planner.candidates import Candidates, Choices
from manager.planner.demand import demands
from manager.planner.flows import Flows, QpName
from manager.planner.steering_state import Entry, SteeringState

UNKNOWN_PATH_S = 0.75
"""So long the way of a new queue pair may stay unknown: its port is being traced meanwhile."""

GUESS_BPS = 100e9
"""Of a NIC's link, while nothing is known of any."""

Mask = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Links:
    """What is known of the links of the routes, in their order, each of shape (links,).

    Attributes:
        capacity_bps: what each can carry, NaN where unknown.
        queueing: whether a queue stands there, or nothing is known of it.
        untried: whether it was never seen full itself, so that its capacity is only that of its like.
        doubted: whether it carried less than its like when it was last full, too long ago to say so of it now.
    """

    capacity_bps: NDArray[np.float64]
    queueing: Mask
    untried: Mask
    doubted: Mask


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


@dataclass(frozen=True, eq=False)
class Problem:
    """Queue pairs and where they could be; arrays of shape (n,).

    Attributes:
        names, entries, choices: of each.
        flow: its place in the flows.
        fabric: the links, those that are dead without capacity.
        demand: their rates, and which of the fabric's pairs each is of.
        now: the path that each is on, -1 where that is not known.
        free: whether the planner may say where it goes.
    """

    names: list[QpName]
    entries: list[Entry]
    choices: list[Choices]
    flow: NDArray[np.intp]
    fabric: Fabric
    demand: Demand
    now: NDArray[np.intp]
    free: Mask

    def is_dead(self, choice: NDArray[np.intp]) -> Mask:
        """Whose path crosses a dead link, if they take these."""
        dead = np.append(self.fabric.capacity_bps <= 0, False)
        crosses = np.zeros(len(choice), dtype=bool)
        for links in self.fabric.paths.links:
            crosses |= dead[links[self.demand.pair, choice]]
        return crosses


def pose(inputs: PlannerInputs, steering: SteeringState) -> Problem:
    """What is to be placed now, by what is known."""
    flows, now_s = inputs.flows, inputs.now_s
    entries = [
        steering.know(name, now_s) if name in inputs.silent else steering.see(name, rate, now_s)
        for name, rate in zip(flows.names, flows.rate_bps.tolist(), strict=True)
    ]
    kept, choices, paths, free = _locate(
        inputs.candidates,
        flows,
        entries,
        hands_off=inputs.hands_off | inputs.silent,
        observers=inputs.observers,
        now_s=now_s,
    )
    path_set, pairs = inputs.candidates.path_set(choices)
    nic_bps = inputs.nic_bps or GUESS_BPS
    fabric = Fabric(_capacities(inputs.candidates, inputs.links, inputs.dead, nic_bps), path_set)
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


def _locate(
    candidates: Candidates,
    flows: Flows,
    entries: Sequence[Entry],
    *,
    hands_off: Collection[QpName],
    observers: Collection[str],
    now_s: float,
) -> tuple[list[int], list[Choices], list[int], list[bool]]:
    """The queue pairs that are to be reckoned with.

    Returns:
        Their places in the flows, their choices, the path that each is on (-1 where unknown), and whether the planner
        may say where each goes.
    """
    kept: list[int] = []
    found: list[Choices] = []
    paths: list[int] = []
    free: list[bool] = []
    for i, (name, entry) in enumerate(zip(flows.names, entries, strict=True)):
        choices = candidates.of(name.src, name.dst_addr)
        if choices is None:
            continue
        port = entry.port(int(flows.sport[i]), now_s)
        path = choices.by_port.get(port, -1)
        may = (
            len(choices.paths) > 1
            and name not in hands_off
            and name.host not in observers
            and entry.refused_s <= now_s
        )
        if path < 0 and (not may or now_s - entry.first_s < UNKNOWN_PATH_S):
            continue
        kept.append(i)
        found.append(choices)
        paths.append(path)
        free.append(may)
    return kept, found, paths, free


def _capacities(
    candidates: Candidates, links: Links, dead: Collection[DirectedLink], nic_bps: float
) -> NDArray[np.float64]:
    """The capacity of each link: what is known; else the rate of a NIC, as links are seldom slower; 0 where dead."""
    known = np.where(links.capacity_bps > 0, links.capacity_bps, nic_bps)
    if dead:
        known[[link in dead for link in candidates.routes.links]] = 0.0
    return known


def hopeful(problem: Problem, links: Links, nic_bps: float) -> Fabric:
    """The fabric if untried links without a queue carried as much as a NIC's link does."""
    capacity = problem.fabric.capacity_bps
    better = links.untried & ~links.queueing & (capacity > 0)
    return Fabric(np.where(better, np.maximum(capacity, nic_bps), capacity), problem.fabric.paths)
