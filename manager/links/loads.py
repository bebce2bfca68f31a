"""What each link carries, and what it can carry. No I/O.

The capacity is the load that a link had while its queue never emptied. What all links of a kind can carry has three
answers, as three are asked. `median_bps` is the best guess for one that was never seen full, which people are shown.
`lower_median_bps` is what half of them really carried, which a link is held against before it is called slow.
`upper_bps` is what the planner counts on: what is measured is seldom too much and often too little.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from manager.fabric.places import link_tiers
from manager.fabric.routes import DirectedLink, Routes

CAPACITY_FALLS = 0.1
"""How much of the way down a capacity goes with each look at a link that is full with less; up it goes at once."""

UNLIKE = 1.1
"""By so much more than another rate: a link of another rate, and not a rate that was measured badly."""

CARRIES_LOOKS = 3
"""So often in a row a link must carry more than it can, as was thought, without a queue: at first a queue does not show."""

LEAST_SHARE = 0.05
"""A queue stands for other reasons where less than this share of the most loaded link's load flows."""

UPPER_PERCENT = 80.0

INSIDE_TIER = 2
"""From here on up no NIC hangs from a switch."""

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class LinkLoads:
    """What is known of each link of a `Routes`; arrays of shape (links,), in the order of `routes.links`.

    Attributes:
        routes: whose links they are.
        time_s: when, by the manager's monotonic clock.
        queue_ns: mean queueing delay of the latest window, NaN where nothing is known.
        queue_p50_ns, queue_p99_ns: over the windows of the last seconds.
        load_bps: what the queue pairs over the link send.
        is_sure: whether that is all: no other queue pair is known of that may take the link as well.
        capacity_bps: what it can carry; NaN where it was never seen full.
        likely_capacity_bps: the same, or where it is NaN that of its tier; NaN where the tier's is not known either.
        stands: whether the queue has not emptied of late.
        loss: share of the probes over the link that were lost in the last seconds, on any link; NaN for no probes.
    """

    routes: Routes = field(default_factory=Routes)
    time_s: float = 0.0
    queue_ns: Floats = field(default_factory=lambda: np.zeros(0))
    queue_p50_ns: Floats = field(default_factory=lambda: np.zeros(0))
    queue_p99_ns: Floats = field(default_factory=lambda: np.zeros(0))
    load_bps: Floats = field(default_factory=lambda: np.zeros(0))
    is_sure: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, bool))
    capacity_bps: Floats = field(default_factory=lambda: np.zeros(0))
    likely_capacity_bps: Floats = field(default_factory=lambda: np.zeros(0))
    stands: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, bool))
    loss: Floats = field(default_factory=lambda: np.zeros(0))


def tiers(links: Iterable[DirectedLink]) -> NDArray[np.intp]:
    """The kind of each link, by the tiers of its ends: three times that of the first plus that of the second.

    A NIC's tier is 0, a leaf's 1, and so on up; neighbours' differ by one at most, so no two kinds have one number.
    Whatever one path crosses counts as one tier up. Shape (links,).
    """
    src, dst = link_tiers(tuple(links))
    src = np.where(src < 0, INSIDE_TIER, src)
    return 3 * src + np.where(dst < 0, src + 1, dst)


class Capacities:
    """What links carried while their queues stood, or more where they then carried more without a queue.

    Attributes:
        seen_bps: by link, which outlive a `Routes`.
    """

    def __init__(self) -> None:
        self.seen_bps: dict[DirectedLink, float] = {}
        self._more: dict[DirectedLink, list[float]] = {}

    def learn(
        self,
        links: tuple[DirectedLink, ...],
        load_bps: Floats,
        *,
        stands: NDArray[np.bool_],
        is_sure: NDArray[np.bool_],
    ) -> None:
        """Take in what links carry now.

        Args:
            links: the links.
            load_bps: what they carry, shape (links,).
            stands: whose queues stand, shape (links,).
            is_sure: whose loads are sure, shape (links,).
        """
        enough = stands & is_sure & (load_bps > LEAST_SHARE * load_bps.max(initial=0.0))
        for i in np.flatnonzero(enough).tolist():
            load, seen = float(load_bps[i]), self.seen_bps.get(links[i], 0.0)
            self.seen_bps[links[i]] = max(load, seen + CAPACITY_FALLS * (load - seen))
        self._raise(links, load_bps, ~stands & is_sure)
        for link in self.seen_bps.keys() - set(links):
            del self.seen_bps[link]

    def _raise(self, links: tuple[DirectedLink, ...], load_bps: Floats, is_idle: NDArray[np.bool_]) -> None:
        """Take in what links carry without a queue, where that is more than they were seen full with."""
        more = is_idle & (load_bps > UNLIKE * self.known_bps(links))
        carried = {links[i]: float(load_bps[i]) for i in np.flatnonzero(more).tolist()}
        self._more = {link: [*self._more.get(link, []), load] for link, load in carried.items()}
        for link, loads in self._more.items():
            if len(loads) >= CARRIES_LOOKS:
                self.seen_bps[link] = min(loads[-CARRIES_LOOKS:])

    def known_bps(self, links: tuple[DirectedLink, ...]) -> Floats:
        """Each link's capacity, NaN for those never seen full; shape (links,)."""
        return np.array([self.seen_bps.get(link, np.nan) for link in links])


def median_bps(seen_bps: Floats) -> float:
    """The middle one of capacities that were seen, or the mean of the two in the middle; shape (links,), not empty."""
    return float(np.median(seen_bps))


def lower_median_bps(seen_bps: Floats) -> float:
    """What half of the links or more were seen to carry; shape (links,), not empty."""
    return float(np.percentile(seen_bps, 50.0, method="lower"))


def upper_bps(seen_bps: Floats) -> float:
    """What the best were seen to carry, but for a fifth that may be measured too high; shape (links,), not empty."""
    return float(np.percentile(seen_bps, UPPER_PERCENT, method="nearest"))


def likely_bps(known_bps: Floats, load_bps: Floats, tier: NDArray[np.intp]) -> Floats:
    """Capacities with the median of their tier's in place of the unknown; never less than what is carried."""
    likely = known_bps.copy()
    for each in np.unique(tier):
        mine = tier == each
        seen = known_bps[mine & np.isfinite(known_bps)]
        if len(seen):
            likely[mine & np.isnan(known_bps)] = median_bps(seen)
    return np.fmax(likely, np.where(np.isfinite(likely), load_bps, np.nan))
