"""Greedy placement: the largest rate first, each where the fullest link of its path stays emptiest.

Graham's rule for parallel machines (longest processing time first, SIAM J. Appl. Math. 1969), with paths for machines.
"""

import numpy as np
from numpy.typing import NDArray

from manager.placement.model import Demand, Fabric, Floats, Indices, utilisation


def place(fabric: Fabric, demand: Demand, choice: Indices | None = None) -> Indices:
    """A candidate for every queue pair; those that `choice` has one for (>= 0) keep it.

    Returns:
        Shape (n,).
    """
    out = np.full(len(demand.pair), -1, dtype=np.intp) if choice is None else choice.copy()
    share = utilisation(fabric, demand, out)
    homeless = demand.by_rate[out[demand.by_rate] < 0]
    hops, cost = list(fabric.paths.links), fabric.seconds_per_bit
    even = _evenly_fast(fabric, demand.pair[homeless]).tolist()
    worst, other = np.empty(fabric.paths.candidates), np.empty(fabric.paths.candidates)
    pairs, rates = demand.pair[homeless].tolist(), demand.rate_bps[homeless].tolist()
    for q, pair, rate, alike in zip(homeless.tolist(), pairs, rates, even, strict=True):
        rows = [links[pair] for links in hops]
        _share_with(share, cost, rows[0], 0.0 if alike else rate, worst)
        for row in rows[1:]:
            _share_with(share, cost, row, 0.0 if alike else rate, other)
            np.maximum(worst, other, out=worst)
        k = int(worst.argmin())
        out[q] = k
        for row in rows:
            link = row[k]
            share[link] += rate * cost[link]
    return out


def _evenly_fast(fabric: Fabric, pair: Indices) -> NDArray[np.bool_]:
    """Queue pairs whose pair crosses links of one capacity only, so that a rate adds the same anywhere, shape (n,)."""
    used, which = np.unique(pair, return_inverse=True)
    links = fabric.paths.links[:, used]
    cost = fabric.seconds_per_bit[links]
    some = links != fabric.paths.link_count
    most, least = cost.max(axis=(0, 2)), np.where(some, cost, np.inf).min(axis=(0, 2))
    even: NDArray[np.bool_] = ((most == least) & some.all(axis=(0, 2)))[which]
    return even


def replace_lost(fabric: Fabric, demand: Demand, choice: Indices) -> Indices:
    """The placement after links have died: whoever crosses one is placed anew, all others stay.

    Returns:
        Shape (n,).
    """
    dead = np.append(fabric.capacity_bps <= 0, False)
    crosses = np.zeros(len(choice), dtype=bool)
    for links in fabric.paths.taken(demand.pair, choice):
        crosses |= dead.take(links)
    return place(fabric, demand, np.where(crosses, -1, choice))


def _share_with(share: Floats, cost: Floats, links: Indices, rate_bps: float, out: Floats) -> None:
    """The utilisation of some links with another rate on each."""
    if rate_bps == 0.0:
        share.take(links, out=out)
        return
    cost.take(links, out=out)
    out *= rate_bps
    out += share.take(links)
