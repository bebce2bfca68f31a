"""From the planner's inputs to what is to be placed: the queue pairs whose paths are known, as arrays."""

from collections.abc import Collection, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from manager.fabric.routes import DirectedLink
from manager.placement import Demand, Fabric
from manager.placement.flows import Flows, QpName
from manager.planner.candidates import Candidates
from manager.planner.demand import demands
from manager.planner.entries import Entries
from manager.planner.located import Located, Places
from manager.planner.steering_state import SteeringState

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
        full: whether one is known to stand there that does not empty.
        untried: whether it was never seen full itself, so that its capacity is only that of its like.
        doubted: whether it carried less than its like when it was last full, too long ago to say so of it now.
    """

    capacity_bps: NDArray[np.float64]
    queueing: Mask
    full: Mask
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
        faults: what is wrong with links, for people.
        nic_bps: the rate of a NIC's link, None while nothing is known of any.
        hands_off: queue pairs that others steer.
        silent: those of NICs that have said nothing of late: they keep what they have, and the room that they took.
        observers: hosts that only observe.
        fixed: queue pairs that nothing can move.
        drained: those that are drained to be moved, so that they are moved seldom, and never off a dead link.
    """

    now_s: float
    flows: Flows
    candidates: Candidates
    links: Links
    dead: Collection[DirectedLink] = ()
    faults: Mapping[DirectedLink, str] = field(default_factory=dict)
    nic_bps: float | None
    hands_off: AbstractSet[QpName] = frozenset()
    silent: AbstractSet[QpName] = frozenset()
    observers: Collection[str] = ()
    fixed: AbstractSet[QpName] = frozenset()
    drained: AbstractSet[QpName] = frozenset()


@dataclass(frozen=True, eq=False)
class Problem:
    """Queue pairs and where they could be; arrays of shape (n,).

    Attributes:
        names: of each.
        entries: what is remembered of them.
        flow: their places in the flows.
        way: alike for those from one NIC to one address, and for no others.
        fabric: the links, those that are dead without capacity.
        demand: their rates, and which of the fabric's pairs each is of.
        choices: the number of the choices that each has.
        now: the path that each is on, -1 where that is not known.
        free: whether the planner may say where it goes.
        heard: whether its NIC has said something of late.
        drained: whether it is drained to be moved.
    """

    names: list[QpName]
    entries: Entries
    flow: NDArray[np.intp]
    way: NDArray[np.intp]
    fabric: Fabric
    demand: Demand
    choices: NDArray[np.intp]
    now: NDArray[np.intp]
    free: Mask
    heard: Mask
    drained: Mask

    def is_dead(self, choice: NDArray[np.intp]) -> Mask:
        """Whose path crosses a dead link, if they take these."""
        dead = np.append(self.fabric.capacity_bps <= 0, False)
        crosses = np.zeros(len(choice), dtype=bool)
        if dead.any():
            for links in self.fabric.paths.links:
                crosses |= dead[links[self.demand.pair, choice]]
        return crosses


def pose(inputs: PlannerInputs, steering: SteeringState, located: Located) -> Problem:
    """What is to be placed now, by what is known."""
    flows, now_s = inputs.flows, inputs.now_s
    rows = steering.know(flows.names, now_s)
    heard = ~steering.mask(inputs.silent)[rows]
    steering.at(rows[heard]).see(flows.rate_bps[heard], now_s)
    entries = steering.at(rows)
    places = located.find(inputs.candidates, steering, flows.names, rows, entries.port(flows.sport, now_s))
    free = places.has_choice & heard & ~steering.mask(inputs.hands_off | inputs.fixed)[rows]
    free &= ~_of_hosts(flows, inputs.observers) & (entries.refused_s <= now_s)
    unclear = (places.path < 0) & (~free | (now_s - entries.first_s < UNKNOWN_PATH_S))
    kept = np.flatnonzero((places.pair >= 0) & ~unclear)
    nic_bps = inputs.nic_bps or GUESS_BPS
    path_set = inputs.candidates.path_set
    fabric = Fabric(_capacities(inputs.candidates, inputs.links, inputs.dead, nic_bps), path_set)
    queueing = entries.may_queue(_queueing(places, inputs.links), now_s)
    wanted = demands(flows, nic_bps, entries.rate_bps, queueing)
    everything = len(kept) == len(rows)
    return Problem(
        names=flows.names if everything else [flows.names[i] for i in kept.tolist()],
        entries=steering.at(rows[kept]),
        flow=kept,
        way=places.way[kept],
        fabric=fabric,
        demand=Demand(places.pair[kept], wanted[kept]),
        choices=places.choices[kept],
        now=places.path[kept],
        free=free[kept],
        heard=heard[kept],
        drained=steering.mask(inputs.drained)[rows[kept]],
    )


def _queueing(places: Places, links: Links) -> Mask:
    """Whether a queue on its way may be why a flow sends no more: not where all links are known to be without."""
    queueing = np.append(links.queueing, False)
    return np.asarray(queueing[places.crossed].any(axis=1) | (places.crossed[:, 0] < 0))


def _of_hosts(flows: Flows, hosts: Collection[str]) -> Mask:
    """Which flows leave from some hosts, shape (n,)."""
    if not hosts:
        return np.zeros(len(flows.names), dtype=bool)
    return np.array([name.host in hosts for name in flows.names], dtype=bool)


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
