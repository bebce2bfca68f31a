"""Whether the members of a group have the same value, and who has another. Pure.

Of at least `LEAST_MEMBERS` members the value that at least `LEAST_SHARE` have is the majority's; who has another is an outlier.
Where no value is had by so many the group is divided, and so is one of fewer members that differ: nobody is accused.

Numbers with a tolerance are held against the group's median instead. Who is further from it than the tolerance, and further than
`WIDTHS` standard deviations, is an outlier, unless more than a tenth are: then the group is divided. The deviation is
1.4826 times the median of absolute deviations from the median, which outliers do not widen (Hampel, The influence curve and its
role in robust estimation, 1974; Iglewicz and Hoaglin, How to detect and handle outliers, 1993, who take 3.5 widths). Six widths
are taken here: a fleet has 100,000 members, and 3.5 would accuse 50 of them of being normally distributed.
"""

from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
from msgspec import Struct

from manager.audit.judging.values import Key

LEAST_MEMBERS = 5
LEAST_SHARE = 0.9
WIDTHS = 6.0
DEVIATION_OF_MAD = 1.4826


class Agreement(Struct, frozen=True):
    """How far a group agrees, and on what; None where it is divided."""

    state: Literal["same", "majority", "divided"]
    value: Key | None = None
    count: int = 0
    members: int = 0


def agreement(counts: Mapping[Key, int]) -> Agreement:
    """Of how many members have each value; at least one has one."""
    members = sum(counts.values())
    value = max(counts, key=counts.__getitem__)
    count = counts[value]
    if len(counts) == 1:
        return Agreement("same", value, count, members)
    if members >= LEAST_MEMBERS and count >= LEAST_SHARE * members:
        return Agreement("majority", value, count, members)
    return Agreement("divided", None, 0, members)


class Spread(Struct, frozen=True):
    """Numbers of a group.

    Attributes:
        state: as of `Agreement`; `same` where none is too far from the median.
        median: of all.
        bound: how far from it a member may be.
        apart: for each member, whether it is further.
    """

    state: Literal["same", "majority", "divided"]
    median: float
    bound: float
    apart: list[bool]


def spread(numbers: Sequence[float], tolerance: float, *, is_share: bool) -> Spread:
    """Of at least one number, all finite; `tolerance` is absolute, or a share of the median."""
    values = np.array(numbers, np.float64)
    median = float(np.median(values))
    distances = np.abs(values - median)
    floor = tolerance * abs(median) if is_share else tolerance
    bound = max(floor, WIDTHS * DEVIATION_OF_MAD * float(np.median(distances)))
    if len(values) < LEAST_MEMBERS:
        bound = floor
    apart = distances > bound
    if not apart.any():
        return Spread("same", median, bound, apart.tolist())
    is_majority = len(values) >= LEAST_MEMBERS and apart.sum() <= (1 - LEAST_SHARE) * len(values)
    return Spread("majority" if is_majority else "divided", median, bound, apart.tolist())
