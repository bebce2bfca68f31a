"""Array types of the clock module, and the units that it counts in."""

import numpy as np
import numpy.typing as npt

F64 = npt.NDArray[np.float64]
I64 = npt.NDArray[np.int64]
U8 = npt.NDArray[np.uint8]
Bool = npt.NDArray[np.bool_]

NS_PER_S = 1e9
LONG_AGO = -(1 << 60)

WANDER = 2e-9
"""Random walk of a frequency that is reckoned with, per square root of a second."""


def split_ns(base_ns: I64, remainder_ns: F64) -> tuple[I64, F64]:
    """Carry whole nanoseconds over, so that the remainder lies within half a nanosecond of zero.

    Args:
        base_ns: int64, any shape.
        remainder_ns: float64, the same shape.

    Returns:
        The sum as (int64 ns, float64 ns), exact for offsets of years.
    """
    whole = np.rint(remainder_ns)
    return base_ns + whole.astype(np.int64), remainder_ns - whole
