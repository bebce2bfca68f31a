"""How good a placement can be at all."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog
from scipy.sparse import coo_array, csr_array

from manager.placement.model import Demand, Fabric, Floats, Indices


def lower_bound(fabric: Fabric, demand: Demand) -> float:
    """What the fullest link's utilisation cannot be below, whichever placement.

    Queue pairs that cross one of the same m links, at whichever hop, share those links: their sum over the links'
    capacity is one bound. Of the m + 1 largest two meet on one link, of 2 m + 1 three, and so on: that is another.
    """
    capacity = np.append(fabric.capacity_bps, np.inf)
    sets, group_of_pair = fabric.paths.groups
    order, starts = _by_group(demand, group_of_pair, len(sets))
    rates = demand.rate_bps[order]
    bound = 0.0
    for number, row in enumerate(sets):
        mine = rates[starts[number] : starts[number + 1]]
        if len(mine):
            bound = max(bound, _group_bound(mine, capacity[np.unique(row)]))
    return bound


def _by_group(demand: Demand, group_of_pair: Indices, groups: int) -> tuple[Indices, Indices]:
    """Queue pairs in the order of their groups, of which each has one a hop, the largest rate first; where each starts."""
    hops = len(group_of_pair)
    group = group_of_pair[:, demand.pair[demand.by_rate]].T.ravel()
    narrow = group.astype(np.uint16) if groups <= 2**16 else group
    order = np.repeat(demand.by_rate, hops)[np.argsort(narrow, kind="stable")]
    starts = np.concatenate([[0], np.cumsum(np.bincount(group, minlength=groups))])
    return order, starts


def _group_bound(rates: Floats, capacity: Floats) -> float:
    """The bound of some queue pairs, largest first, that each cross one of some links; 0 where all are dead."""
    alive = capacity[capacity > 0]
    if not len(alive):
        return 0.0
    meeting = rates[:: len(alive)]
    meeting = meeting * np.arange(1, len(meeting) + 1)
    return max(float(rates.sum() / alive.sum()), float(meeting.max() / alive.max()))


def optimum(fabric: Fabric, demand: Demand) -> float:
    """The least possible utilisation of the fullest link if queue pairs could be split: a linear program (HiGHS)."""
    total = np.bincount(demand.pair, demand.rate_bps, fabric.paths.links.shape[1])
    used = np.flatnonzero(total)
    shares, crossed, whole = _split_program(fabric, used)
    loads = csr_array(crossed.multiply(np.repeat(total[used], fabric.paths.candidates)[None, :]))
    scaled = csr_array(loads.multiply(fabric.seconds_per_bit[:-1, None]))
    ones = coo_array(np.ones((fabric.paths.link_count, 1)))
    found = linprog(
        np.append(np.zeros(shares), 1.0),
        A_ub=_beside(scaled, -ones),
        b_ub=np.zeros(fabric.paths.link_count),
        A_eq=_beside(whole, coo_array((len(used), 1))),
        b_eq=np.ones(len(used)),
        method="highs",
    )
    assert found.fun is not None
    return float(found.fun)


def _split_program(fabric: Fabric, used: NDArray[np.intp]) -> tuple[int, csr_array, csr_array]:
    """The matrices of splitting pairs over candidates.

    Returns:
        How many shares there are; which links each crosses, shape (links, shares); which pair each is of, shape
        (pairs in use, shares).
    """
    hops, _, candidates = fabric.paths.links.shape
    count = len(used) * candidates
    row = fabric.paths.links[:, used].reshape(hops, -1).ravel()
    column = np.tile(np.arange(count), hops)
    real = row < fabric.paths.link_count
    ones = np.ones(np.count_nonzero(real))
    crossed = coo_array((ones, (row[real], column[real])), shape=(fabric.paths.link_count, count)).tocsr()
    of_pair = np.repeat(np.arange(len(used)), candidates)
    whole = coo_array((np.ones(count), (of_pair, np.arange(count))), shape=(len(used), count)).tocsr()
    return count, crossed, whole


def _beside(left: csr_array, right: coo_array) -> Any:
    """Two matrices side by side."""
    a, b = left.tocoo(), right.tocoo()
    return coo_array(
        (
            np.concatenate([a.data, b.data]),
            (np.concatenate([a.row, b.row]), np.concatenate([a.col, b.col + left.shape[1]])),
        ),
        shape=(left.shape[0], left.shape[1] + right.shape[1]),
    ).tocsr()
