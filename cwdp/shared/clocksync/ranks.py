"""Values of groups by their rank."""

from typing import TypeVar

import numpy as np
import numpy.typing as npt

from cwdp.shared.clocksync._types import I64

_Number = TypeVar("_Number", np.int64, np.float64)


def value_at_rank(
    group: npt.NDArray[np.integer], values: npt.NDArray[_Number], count: I64, rank: I64
) -> npt.NDArray[_Number]:
    """The value of each group that so many are smaller than, for the groups that have values, in order.

    Args:
        group: integers [values], 0 to groups - 1.
        values: [values].
        count: int64 [groups], how many values each group has.
        rank: int64 [groups], below the count.
    """
    order = np.lexsort((values, group))
    chosen: npt.NDArray[_Number] = values[order][(np.cumsum(count) - count + rank)[count > 0]]
    return chosen
