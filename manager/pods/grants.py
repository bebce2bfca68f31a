"""How the capacity of links that several pods load is divided among them. Pure functions over arrays.

Max-min fair by demand (Bertsekas and Gallager, Data Networks, 6.5.2), link by link. What nobody wants of a link goes to
one pod that gets less than it wants elsewhere, so that only one moves its queue pairs there; to all alike where none does.
"""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from manager.fabric.routes import DirectedLink

FLOOR = 0.1
"""Of an even share: so much every pod may use of each link, that one which is silent or new can start."""

LAST_S = 10.0
"""For so long a pod goes on with what it was granted last."""

SHORT = 1.02
"""A pod that wants so many times what it gets of a link is in need; demands are not known better."""

Floats = NDArray[np.float64]


def grants(capacity_bps: Floats, demand_bps: Floats, turn: int = 0) -> Floats:
    """What each pod may put on each link; the sum over pods is the link's capacity.

    Args:
        capacity_bps: of each link, shape (links,), positive and finite.
        demand_bps: what each pod puts on each link, or would, shape (pods, links), not negative.
        turn: which of the pods in need gets what nobody wants; another one as this goes on.

    Returns:
        Shape (pods, links); each at least `FLOOR` of an even share.

    Raises:
        ValueError: there is no pod, or a number that cannot be.
    """
    pods = len(demand_bps)
    is_possible = np.isfinite(demand_bps).all() and (demand_bps >= 0).all()
    if not pods or not is_possible or not (np.isfinite(capacity_bps) & (capacity_bps > 0)).all():
        raise ValueError("no pod, or a capacity or demand that cannot be")
    wanted = np.maximum(demand_bps, FLOOR * capacity_bps / pods)
    granted = np.minimum(wanted, _level(capacity_bps, wanted))
    spare = np.maximum(capacity_bps - granted.sum(axis=0), 0.0)
    short = np.flatnonzero((demand_bps > SHORT * granted).any(axis=1))
    if not len(short):
        return np.asarray(granted + spare / pods)
    granted[short[turn % len(short)]] += spare
    return granted


def _level(capacity_bps: Floats, wanted_bps: Floats) -> Floats:
    """What each pod gets at most of each link, infinite where all get what they want; shape (links,)."""
    pods = len(wanted_bps)
    rising = np.sort(wanted_bps, axis=0)
    below = np.concatenate([np.zeros((1, len(capacity_bps))), np.cumsum(rising[:-1], axis=0)])
    level = (capacity_bps - below) / np.arange(pods, 0, -1)[:, None]
    cut = rising > level
    first = np.take_along_axis(level, cut.argmax(axis=0)[None], axis=0)[0]
    return np.where(cut.any(axis=0), first, np.inf)


def shares(capacity_bps: Mapping[DirectedLink, float], pods: int) -> dict[DirectedLink, float]:
    """What a pod may put on links that so many pods load, when nobody has granted it anything of late: an even share.

    Args:
        capacity_bps: of each link by what the pod knows, 0 where it knows nothing, which is not told of then.
        pods: how many there are, itself among them.
    """
    return {link: bps / max(pods, 1) for link, bps in capacity_bps.items() if bps > 0}
