"""What is known of the links, in the order of the routes that are planned with."""

import numpy as np
from numpy.typing import NDArray

from manager.fabric.routes import DirectedLink, Routes
from manager.planner.problem import Links
from manager.queues.loads import LinkLoads, tiers

Floats = NDArray[np.float64]

QUEUE_BYTES = 20_000
LEAST_QUEUE_NS = 2_000.0
SLOW_SHARE = 0.8
SURE_S = 0.75
MOST_PERCENT = 80.0

_BITS_NS = 8e9


class LinkWeather:
    """Reads the links of one step after another, and takes a link for slow only when it has been for a while.

    A link is seen to carry at least what flows while its queue stands: what is measured is seldom too much and often
    too little. So all links of a kind are taken for alike, as capable as most of them were seen to be, and one that
    keeps to less than that while its queue stands for what it was seen to carry.
    """

    def __init__(self) -> None:
        self._routes = Routes()
        self._kinds = tiers(())
        self._slow_since_s: dict[DirectedLink, float] = {}

    def read(self, routes: Routes, loads: LinkLoads, now_s: float) -> Links:
        """Capacities, and where a queue may be: links of which nothing is known may have one."""
        if routes is not self._routes:
            self._routes, self._kinds = routes, tiers(routes.links)
        seen_bps, queue_ns = _in_order(routes, loads)
        common = self._common(seen_bps)
        slow = seen_bps < SLOW_SHARE * common
        slow_links = [routes.links[i] for i in np.flatnonzero(slow).tolist()]
        self._slow_since_s = {link: self._slow_since_s.get(link, now_s) for link in slow_links}
        surely = {link for link, since_s in self._slow_since_s.items() if now_s - since_s >= SURE_S}
        capacity = common.copy()
        for i in np.flatnonzero(slow).tolist():
            if routes.links[i] in surely:
                capacity[i] = seen_bps[i]
        enough_ns = np.fmax(LEAST_QUEUE_NS, QUEUE_BYTES * _BITS_NS / np.where(capacity > 0, capacity, np.inf))
        return Links(capacity_bps=capacity, queueing=~(queue_ns < enough_ns))

    def _common(self, seen_bps: Floats) -> Floats:
        """What most links of each link's kind can carry, NaN where none of them was seen full."""
        common = np.full(len(seen_bps), np.nan)
        for kind in np.unique(self._kinds):
            mine = self._kinds == kind
            seen = seen_bps[mine & (seen_bps > 0)]
            if len(seen):
                common[mine] = np.percentile(seen, MOST_PERCENT)
        return common


def _in_order(routes: Routes, loads: LinkLoads) -> tuple[Floats, Floats]:
    """Capacities that were seen and queues, in the order of some routes, NaN where nothing is known."""
    count = len(routes.links)
    capacity, queue_ns = np.full(count, np.nan), np.full(count, np.nan)
    if loads.routes is routes:
        capacity[:], queue_ns[:] = loads.capacity_bps, loads.queue_p99_ns
        return capacity, queue_ns
    known = {link: i for i, link in enumerate(loads.routes.links)}
    places = np.array([known.get(link, -1) for link in routes.links], dtype=np.intp)
    found = places >= 0
    capacity[found] = loads.capacity_bps[places[found]]
    queue_ns[found] = loads.queue_p99_ns[places[found]]
    return capacity, queue_ns
