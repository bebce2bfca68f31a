"""What large TCP connections send over each link, beside queue pairs. No I/O.

Only large connections of named services are known, and their ways back; where the planner is off, none are. One whose path is
not known, or has changed of late, leaves the loads of all links in doubt that it may cross.
"""

import numpy as np
from numpy.typing import NDArray

from manager.fabric.routes import PathName, Routes
from manager.links.meter import SURE_SHARE
from manager.placement.flows import Flows, QpName

UNSETTLED_S = 3.0
"""So long after a connection is first seen on a path its rate may be that of another one too: agents tell once a second."""

HOLDS_S = 3.0
"""What was said earlier is no load now."""

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]


class ConnectionLoads:
    """What was said of connections last."""

    def __init__(self) -> None:
        self._flows = Flows.none()
        self._seen_s = -np.inf
        self._since: dict[QpName, tuple[int, float]] = {}

    def see(self, flows: Flows, now_s: float) -> None:
        """These are all large connections that send now; `now_s` is the manager's monotonic clock."""
        since = {}
        for name, sport in zip(flows.names, flows.sport.tolist(), strict=True):
            before = self._since.get(name)
            since[name] = before if before is not None and before[0] == sport else (sport, now_s)
        self._flows, self._seen_s, self._since = flows, now_s, since

    def added(self, routes: Routes, load_bps: Floats, is_sure: Mask, now_s: float) -> tuple[Floats, Mask]:
        """What links carry with connections, and whether that is all.

        Args:
            routes: the known paths.
            load_bps: what queue pairs send over each link, shape (links,).
            is_sure: whether that is all of them, shape (links,).
            now_s: the manager's monotonic clock.

        Returns:
            Both of shape (links,).
        """
        flows = self._flows
        if not flows.names or now_s - self._seen_s > HOLDS_S:
            return load_bps, is_sure
        paths = [
            PathName(name.src, name.dst_addr, sport)
            for name, sport in zip(flows.names, flows.sport.tolist(), strict=True)
        ]
        crossed = routes.crossed(paths)
        rate_bps = np.nan_to_num(flows.rate_bps)
        load_bps, doubt_bps = load_bps.copy(), np.zeros(len(load_bps))
        for links in crossed.T:
            known = links >= 0
            np.add.at(load_bps, links[known], rate_bps[known])
        first = crossed[:, 0] if crossed.shape[1] else np.full(len(paths), -1)
        since_s = np.array([self._since[name][1] for name in flows.names])
        for i in np.flatnonzero((first < 0) | (now_s - since_s < UNSETTLED_S)).tolist():
            doubt_bps[_perhaps(routes, paths[i])] += rate_bps[i]
        return load_bps, is_sure & (doubt_bps <= SURE_SHARE * load_bps)


def _perhaps(routes: Routes, path: PathName) -> list[int]:
    """The links that some known path of a pair crosses."""
    return sorted({link for links in routes.ports(path.src, path.dst_addr).values() for link in links})
