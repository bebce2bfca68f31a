"""What is to be placed now: the queue pairs whose paths are known, as arrays."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from manager.fabric.routes import DirectedLink
from manager.placement import Demand, Fabric
from manager.planner.candidates import Candidates, Choices
from manager.planner.flows import Flows, QpName
from manager.planner.steering_state import Entry

UNKNOWN_PATH_S = 0.75
"""So long the way of a new queue pair may stay unknown: its port is being traced meanwhile."""

Mask = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Links:
    """What is known of the links of the routes, in their order, each of shape (links,).

    Attributes:
        capacity_bps: what each can carry, NaN where unknown.
        queueing: whether a queue stands there, or nothing is known of it.
        untried: whether it was never seen full itself, so that its capacity is only that of its like.
    """

    capacity_bps: NDArray[np.float64]
    queueing: Mask
    untried: Mask


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


def locate(
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


def capacities(
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
