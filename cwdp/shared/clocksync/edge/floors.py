"""One-way floors: the least margins that were measured, each with its standard error.

A margin counts by what it is at most, so that a poor fit sets no floor that no good one reaches, and what a floor's own
error can explain is no queue: one that was learnt from a bent window may lie far too low.
"""

import numpy as np

from cwdp.shared.clocksync._types import F64

SURE_SIGMAS = 3.0
QUEUED_SIGMAS = float(np.sqrt(3))
"""A queue moves an offset by so many of `queued_sigma` at most."""


def at_most(margin_ns: F64, sigma_ns: F64) -> F64:
    """What margins surely do not exceed; float64 of any shape."""
    return margin_ns + SURE_SIGMAS * sigma_ns


def queued_sigma(margin_ns: F64, floor_ns: F64, sigma_floor_ns: F64) -> F64:
    """Standard error of an offset for what queues did to it, by how far its margin stands above its floor: of any shape.

    The one-way excesses e1, e2 of the two directions move the offset by (e1 - e2) / 2 and the margin by (e1 + e2) / 2;
    given the sum, the difference is about uniform. Nothing or below where the margin may be the floor.
    """
    return np.asarray((margin_ns - at_most(floor_ns, sigma_floor_ns)) / QUEUED_SIGMAS)
