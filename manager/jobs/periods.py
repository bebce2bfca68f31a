"""When the iterations of a job became longer or shorter. Pure."""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from cwdp.shared.clocksync.graph.robust import MEDIAN_ERROR, centre

LEAST_SIDE = 8
"""Iterations on each side of a change."""

LEAST_SHARE = 0.03
SURE = 5.0
"""Standard errors of the difference of two medians."""


@dataclass(frozen=True)
class Change:
    """From `at_ns` on the timeline on iterations took `after_ns`, and `before_ns` until then; medians."""

    at_ns: int
    before_ns: int
    after_ns: int


def changes(starts_ns: NDArray[np.int64]) -> list[Change]:
    """The changes of the period, in order; `starts_ns` are when iterations began, shape (iterations,).

    The sharpest one first, and then those on either side of it (binary segmentation, Scott and Knott 1974).
    """
    lasted = np.diff(starts_ns).astype(np.float64)
    places = _split(lasted, 0)
    while places:
        lengths = [float(np.median(part)) for part in np.split(lasted, places)]
        found = [
            Change(int(starts_ns[place]), round(before), round(after))
            for place, (before, after) in zip(places, pairwise(lengths), strict=True)
        ]
        apart = [_apart(each.before_ns, each.after_ns) for each in found]
        if min(apart) >= LEAST_SHARE:
            return found
        del places[int(np.argmin(apart))]
    return []


def _apart(before: float, after: float) -> float:
    """By what share of the longer two times are apart."""
    return abs(after - before) / max(before, after)


def _split(lasted: NDArray[np.float64], offset: int) -> list[int]:
    """Where it changes, counted from `offset`."""
    n = len(lasted)
    if n < 2 * LEAST_SIDE:
        return []
    places = np.arange(LEAST_SIDE, n - LEAST_SIDE + 1)
    scores = np.array([_sharpness(lasted, place) for place in places.tolist()])
    best = int(places[np.argmax(scores)])
    if scores.max() < SURE:
        return []
    best = int(places[np.argmin(_distances(lasted, best)[places])])
    return [*_split(lasted[:best], offset), offset + best, *_split(lasted[best:], offset + best)]


def _distances(lasted: NDArray[np.float64], place: int) -> NDArray[np.float64]:
    """How far all are from the medians on both sides of a place, if it changed at each place instead, shape (n + 1,).

    A few more or fewer on a side hardly move its median, so the sharpest place is but near the change.
    """
    before, after = (np.abs(lasted - np.median(side)) for side in (lasted[:place], lasted[place:]))
    found: NDArray[np.float64] = np.concatenate([[0.0], np.cumsum(before - after)])
    return found


def _sharpness(lasted: NDArray[np.float64], place: int) -> float:
    """How many standard errors apart the medians on both sides of a place are; 0 where that is too little to matter."""
    sides = lasted[:place], lasted[place:]
    before, after = (float(np.median(side)) for side in sides)
    if _apart(before, after) < LEAST_SHARE:
        return 0.0
    spread = max(centre(side)[1] for side in sides)
    error = MEDIAN_ERROR * spread * sum(1 / len(side) for side in sides) ** 0.5
    return float(abs(after - before) / max(error, 1.0))
