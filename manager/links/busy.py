"""How much of the time links are busy, and what they can carry at most by that. No I/O."""

import numpy as np
from numpy.typing import NDArray

from manager.fabric.routes import Routes
from manager.links.inference import QueueInference, shared_links
from manager.links.loads import LinkLoads

WINDOWS = 50
"""About so many windows the means go back; before as many have told of a link, nothing is said of it."""

LEAST_BUSY = 0.3
"""Of the windows; a link that is busy for less tells little of what it can carry."""

LATE_WINDOWS = 20
"""So many windows, or fewer, loads are told later than queues: what came a moment ago is no part of them yet."""

Floats = NDArray[np.float64]


class Busy:
    """The links of one `Routes`, by the windows in which their loads were sure.

    A link that sends whenever something waits for it is busy for load / capacity of the time (the utilization law:
    Denning and Buzen, ACM Computing Surveys 1978). Windows in which all probes found it busy are no larger a share, so
    load / their share is what it can carry, or more. As loads are told late, the share is the least of late.

    Args:
        routes: whose links they are.

    Attributes:
        routes: the same.
        shares: of the windows, those in which no probe found the link idle, as of each of the last `LATE_WINDOWS`, the
            oldest first; shape (LATE_WINDOWS, links).
        load_bps: what it carried on average, shape (links,).
        windows: how many have told of it, shape (links,).
    """

    def __init__(self, routes: Routes) -> None:
        self.routes = routes
        links = len(routes.links)
        self.shares, self.load_bps = np.zeros((LATE_WINDOWS, links)), np.zeros(links)
        self.windows = np.zeros(links)

    @property
    def share(self) -> Floats:
        """As of now, shape (links,)."""
        now: Floats = self.shares[-1]
        return now

    def carry_on(self, before: "Busy") -> None:
        """Take over what is remembered of links that were there before."""
        mine, theirs = shared_links(
            self.routes.links, {link: i for i, link in enumerate(before.routes.links)}
        )
        self.shares[:, mine], self.load_bps[mine] = before.shares[:, theirs], before.load_bps[theirs]
        self.windows[mine] = before.windows[theirs]

    def step(self, queues: QueueInference, loads: LinkLoads) -> None:
        """Take in the latest window."""
        told = loads.is_sure & np.isfinite(queues.queue_ns[-1])
        weight = told / WINDOWS
        self.shares[:-1] = self.shares[1:]
        self.share[:] += weight * (queues.busy() - self.share)
        self.load_bps += weight * (loads.load_bps - self.load_bps)
        self.windows += told

    def most_bps(self) -> Floats:
        """What each link can carry at most; infinite where that is not known; shape (links,)."""
        share = self.shares.min(axis=0)
        most = np.full(len(share), np.inf)
        known = (self.windows >= WINDOWS) & (share >= LEAST_BUSY)
        most[known] = self.load_bps[known] / share[known]
        return most
