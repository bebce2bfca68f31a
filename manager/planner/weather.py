"""What is known of the links, in the order of the routes that are planned with."""

from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from manager.fabric.routes import Routes
from manager.planner.problem import Links

Floats = NDArray[np.float64]

QUEUE_BYTES = 20_000
LEAST_QUEUE_NS = 2_000.0
_BITS_NS = 8e9


class LinkLoads(Protocol):
    """What is measured of the links of some routes; arrays of shape (links,)."""

    @property
    def routes(self) -> Routes:
        """Whose links they are."""

    @property
    def likely_capacity_bps(self) -> Floats:
        """What each can carry, NaN where nothing is known."""

    @property
    def queue_p99_ns(self) -> Floats:
        """The longest queueing delay of the last seconds, NaN where nothing is known."""


@dataclass(frozen=True)
class Unmeasured:
    """Links of which nothing is known."""

    routes: Routes = field(default_factory=Routes)
    likely_capacity_bps: Floats = field(default_factory=lambda: np.zeros(0))
    queue_p99_ns: Floats = field(default_factory=lambda: np.zeros(0))


def read_links(routes: Routes, loads: LinkLoads) -> Links:
    """Capacities, and where a queue may be: links of which nothing is known may have one."""
    count = len(routes.links)
    capacity, queue_ns = np.full(count, np.nan), np.full(count, np.nan)
    if loads.routes is routes:
        capacity[:], queue_ns[:] = loads.likely_capacity_bps, loads.queue_p99_ns
    else:
        known = {link: i for i, link in enumerate(loads.routes.links)}
        places = np.array([known.get(link, -1) for link in routes.links], dtype=np.intp)
        found = places >= 0
        capacity[found] = loads.likely_capacity_bps[places[found]]
        queue_ns[found] = loads.queue_p99_ns[places[found]]
    enough_ns = np.fmax(LEAST_QUEUE_NS, QUEUE_BYTES * _BITS_NS / np.where(capacity > 0, capacity, np.inf))
    return Links(capacity_bps=capacity, queueing=~(queue_ns < enough_ns))
