"""How much of a link each slice may use: its guarantee, and a part of what others leave unused. No I/O."""

import numpy as np
from numpy.typing import NDArray

Rates = NDArray[np.float64]


def allocate(
    link_bps: float, guaranteed_bps: Rates, ceiling_bps: Rates, priority: NDArray[np.int64], demand_bps: Rates
) -> Rates:
    """What each slice may use while the demands are such.

    Nobody gets less than the smaller of its guarantee and its demand. What that leaves of the link goes to those that
    want more, up to their ceilings: to the lower priorities first, to equal ones in equal parts. A slice that wants
    less than its guarantee may use all of it at any time, so it is named that.

    Args:
        link_bps: of the link.
        guaranteed_bps: of each slice, shape (n,); together no more than the link.
        ceiling_bps: of each slice, shape (n,), at least its guarantee.
        priority: of each slice, shape (n,).
        demand_bps: what each would send if it could, shape (n,).

    Returns:
        Shape (n,), at least the guarantees, at most the ceilings.
    """
    wanted = np.minimum(demand_bps, ceiling_bps)
    used = np.minimum(wanted, guaranteed_bps)
    left = link_bps - float(used.sum())
    for rank in np.unique(priority):
        here = priority == rank
        more = fill(left, (wanted - used)[here])
        used[here] += more
        left -= float(more.sum())
    return np.maximum(used, guaranteed_bps)


def fill(available: float, wanted: Rates) -> Rates:
    """Divide equally, but give nobody more than it wants (max-min fairness); shape as `wanted`."""
    given = np.zeros_like(wanted)
    remaining = max(available, 0.0)
    order = np.argsort(wanted)
    for position, index in enumerate(order):
        given[index] = min(wanted[index], remaining / (len(order) - position))
        remaining -= given[index]
    return given
