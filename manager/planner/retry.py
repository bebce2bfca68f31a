"""Back to links that were slow when they were last full: nobody knows whether they still are while nothing crosses them."""

import numpy as np
from numpy.typing import NDArray

from manager.placement import Demand, Fabric, utilisation

MOST_TRIED = 256
"""Queue pairs that are looked at, the fastest first."""

HARDLY_FULLER = 1.1
"""What a trial may make of the fullest link on a queue pair's way: loads are known to some hundredths."""

Indices = NDArray[np.intp]
Mask = NDArray[np.bool_]


def put_one_back(fabric: Fabric, demand: Demand, placed: Indices, *, doubted: Mask, movable: Mask) -> Indices:
    """Move one queue pair to a path over a doubted link, where its way is hardly fuller by that if the link is well.

    Args:
        fabric: links and paths.
        demand: the queue pairs.
        placed: where they are, shape (n,).
        doubted: the links to be tried, shape (links,).
        movable: which queue pairs may be moved, shape (n,).

    Returns:
        The new choice, shape (n,); `placed` where no move does that.
    """
    share, paths = utilisation(fabric, demand, placed), fabric.paths.links
    crosses: Mask = np.asarray(np.append(doubted, False)[paths].any(axis=0), bool)
    leads: Mask = np.asarray(crosses.any(axis=1), bool)
    may = movable & leads[demand.pair] & ~crosses[demand.pair, placed]
    for i in demand.by_rate[may[demand.by_rate]][:MOST_TRIED].tolist():
        pair = demand.pair[i]
        choices = np.flatnonzero(crosses[pair])
        new, old = paths[:, pair, choices], paths[:, pair, placed[i], np.newaxis]
        differs = new != old
        after = np.where(differs, share[new] + demand.rate_bps[i] * fabric.seconds_per_bit[new], 0.0)
        before = np.where(differs, share[old], 0.0)
        left = after.max(axis=0) - HARDLY_FULLER * before.max(axis=0)
        if left.min() <= 0:
            chosen = placed.copy()
            chosen[i] = choices[left.argmin()]
            return chosen
    return placed
