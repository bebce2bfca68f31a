"""What is known of the links, in the order of the routes that are planned with."""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from manager.fabric.routes import DirectedLink, Routes
from manager.links.loads import UNLIKE, LinkLoads, tiers, upper_bps
from manager.planner.problem import Links

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]

QUEUE_BYTES = 20_000
LEAST_QUEUE_NS = 2_000.0
SLOW_SHARE = 0.8
CARRIED_S = 0.5
"""So long a link must carry something to be taken for one that can: what has just begun to queue shows no queue yet."""

SURE_S = 0.3
DOUBTED_AFTER_S, MOST_DOUBTED_AFTER_S = 30.0, 600.0
"""So long a link is taken for slow without being seen so again; twice as long each time that it then turns out so."""

_BITS_NS = 8e9


@dataclass
class _Slow:
    """A link that carries less than its like; times are seconds of the manager's monotonic clock."""

    since_s: float
    seen_s: float
    seen_bps: float
    doubted_after_s: float = DOUBTED_AFTER_S

    def see(self, carries_bps: float, now_s: float) -> None:
        """It is seen so once more."""
        self.seen_bps = carries_bps
        if self.is_doubted(now_s):
            self.doubted_after_s = min(2 * self.doubted_after_s, MOST_DOUBTED_AFTER_S)
        self.seen_s = now_s

    def is_doubted(self, now_s: float) -> bool:
        """Whether that may be over: nothing has been put on it for so long that nobody knows."""
        return now_s - self.seen_s > self.doubted_after_s

    def is_sure(self, now_s: float) -> bool:
        """Whether it has been so for a while and is not doubted."""
        return now_s - self.since_s >= SURE_S and not self.is_doubted(now_s)


class _Carried:
    """What links have carried for a while without a queue.

    Attributes:
        surely_bps: the most; less once a link was seen full with less.
    """

    def __init__(self, links: Sequence[DirectedLink], known_bps: Mapping[DirectedLink, float]) -> None:
        self._links = links
        self.surely_bps = np.array([known_bps.get(link, 0.0) for link in links])
        self._lately: deque[tuple[float, Floats]] = deque()

    def by_link(self) -> dict[DirectedLink, float]:
        """The same, by link."""
        return dict(zip(self._links, self.surely_bps.tolist(), strict=True))

    def learn(self, carried_bps: Floats, seen_bps: Floats, now_s: float) -> None:
        """Take in what they carry now, and the capacities that were seen, NaN for those that were not."""
        self._lately.append((now_s, carried_bps))
        if now_s - self._lately[0][0] >= CARRIED_S:
            least_bps = np.min([carried for _, carried in self._lately], axis=0)
            np.fmax(self.surely_bps, least_bps, out=self.surely_bps)
            self._lately.popleft()
        np.fmin(self.surely_bps, seen_bps, out=self.surely_bps)


class CapacityEstimator:
    """Reads the links of one step after another, and takes a link for slow only when it has been for a while.

    A link is seen to carry at least what flows while its queue stands: what is measured is seldom too much and often
    too little. So all links of a kind are taken for alike, as capable as most of them were seen to be, and one that keeps
    to less than that while its queue stands for what it was seen to carry. Little is put on such a link, so that what is
    better now would never show: after a while it is taken for one like the others again. Where one carries more without
    a queue than the few that were seen full, only slow ones were seen so, and of the others nothing is known yet. A link
    of which nothing is known is as capable as its other direction: Ethernet's have one rate.
    """

    def __init__(self) -> None:
        self._routes = Routes()
        self._kinds = tiers(())
        self._back = np.zeros(0, np.intp)
        self._carried = _Carried((), {})
        self._slow: dict[DirectedLink, _Slow] = {}

    def read(self, routes: Routes, loads: LinkLoads, now_s: float) -> Links:
        """Capacities, and where a queue may be: links of which nothing is known may have one."""
        if routes is not self._routes:
            self._reorder(routes)
        seen_bps, queue_ns, carried_bps, stands = _in_order(routes, loads)
        full = stands.copy()
        self._carried.learn(carried_bps, seen_bps, now_s)
        unseen = ~np.isfinite(seen_bps)
        seen_bps[unseen], stands[unseen] = seen_bps[self._back[unseen]], stands[self._back[unseen]]
        capacity, least = self._common(seen_bps)
        slow = np.flatnonzero(seen_bps < least)
        self._follow([(routes.links[i], bool(stands[i]), float(seen_bps[i])) for i in slow.tolist()], now_s)
        surely = slow[[self._slow[routes.links[i]].is_sure(now_s) for i in slow.tolist()]]
        capacity[surely] = seen_bps[surely]
        doubted = slow[[self._slow[routes.links[i]].is_doubted(now_s) for i in slow.tolist()]]
        alone = np.isnan(capacity)
        alone[doubted] = False
        capacity[alone] = seen_bps[alone]
        enough_ns = np.fmax(LEAST_QUEUE_NS, QUEUE_BYTES * _BITS_NS / np.where(capacity > 0, capacity, np.inf))
        return Links(
            capacity_bps=capacity,
            queueing=~(queue_ns < enough_ns),
            full=full,
            untried=~np.isfinite(seen_bps),
            doubted=self._to_be_tried(doubted, seen_bps),
        )

    def _reorder(self, routes: Routes) -> None:
        """Go by the links of other routes from now on."""
        self._carried = _Carried(routes.links, self._carried.by_link())
        self._routes, self._kinds = routes, tiers(routes.links)
        self._back = _other_directions(routes.links)

    def _follow(self, slow: list[tuple[DirectedLink, bool, float]], now_s: float) -> None:
        """Take in which links are slow, of which of them that shows now, and what they carry."""
        self._slow = {
            link: self._slow.get(link) or _Slow(now_s, now_s, carries_bps) for link, _, carries_bps in slow
        }
        for link, shows, carries_bps in slow:
            if shows:
                self._slow[link].see(carries_bps, now_s)

    def _to_be_tried(self, doubted: NDArray[np.intp], seen_bps: Floats) -> Mask:
        """Those of the doubted links that have not carried more since than when they were slow, shape (links,)."""
        tried = np.zeros(len(seen_bps), bool)
        for i in doubted.tolist():
            tried[i] = seen_bps[i] <= UNLIKE * self._slow[self._routes.links[i]].seen_bps
        return tried

    def _common(self, seen_bps: Floats) -> tuple[Floats, Floats]:
        """What most links of each link's kind can carry, NaN where none of them was seen full; and what is slow."""
        common, least = np.full((2, len(seen_bps)), np.nan)
        for kind in np.unique(self._kinds):
            mine = self._kinds == kind
            seen = seen_bps[mine & (seen_bps > 0)]
            if not len(seen):
                continue
            most = upper_bps(seen)
            carried = self._carried.surely_bps[mine].max() / UNLIKE
            if carried > most and 2 * len(seen) < np.count_nonzero(mine):
                least[mine] = carried
            else:
                common[mine], least[mine] = most, SLOW_SHARE * most
        return common, least


def within(links: Links, routes: Routes, granted_bps: Mapping[DirectedLink, float]) -> Links:
    """The links as they count for one pod of several: no more than it was granted of those that others load too.

    Args:
        links: what is known of those of the routes.
        routes: the known paths.
        granted_bps: by link; what is not positive is no grant.
    """
    if not granted_bps:
        return links
    granted = np.array([granted_bps.get(link, np.nan) for link in routes.links])
    granted[~(granted > 0)] = np.nan
    return replace(
        links,
        capacity_bps=np.fmin(links.capacity_bps, granted),
        untried=links.untried & np.isnan(granted),
        doubted=links.doubted & np.isnan(granted),
    )


def _other_directions(links: Sequence[DirectedLink]) -> NDArray[np.intp]:
    """The place of each link's other direction, its own where that is not known; shape (links,)."""
    places = {link: i for i, link in enumerate(links)}
    return np.array([places.get(DirectedLink(b, a), i) for i, (a, b) in enumerate(links)], dtype=np.intp)


def _in_order(routes: Routes, loads: LinkLoads) -> tuple[Floats, Floats, Floats, Mask]:
    """Capacities that were seen, queues, what is carried without one, and whose queues stand and tell of a capacity.

    In the order of some routes; of links of which nothing is known these are NaN, NaN, 0 and no. The first and the last
    are the caller's to change.
    """
    carried_bps = np.where(loads.is_sure & ~loads.stands, loads.load_bps, 0.0)
    tells = loads.stands & loads.is_sure
    if loads.routes is routes:
        return loads.capacity_bps.copy(), loads.queue_p99_ns, carried_bps, tells
    count = len(routes.links)
    capacity, queue_ns = np.full((2, count), np.nan)
    carried, stands = np.zeros(count), np.zeros(count, bool)
    known = {link: i for i, link in enumerate(loads.routes.links)}
    places = np.array([known.get(link, -1) for link in routes.links], dtype=np.intp)
    found = places >= 0
    for column, what in (
        (capacity, loads.capacity_bps),
        (queue_ns, loads.queue_p99_ns),
        (carried, carried_bps),
        (stands, tells),
    ):
        column[found] = what[places[found]]
    return capacity, queue_ns, carried, stands
