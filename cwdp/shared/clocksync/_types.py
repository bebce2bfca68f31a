"""Array types of the clock module, and the units that it counts in."""

import numpy as np
import numpy.typing as npt

F64 = npt.NDArray[np.float64]
I64 = npt.NDArray[np.int64]
U8 = npt.NDArray[np.uint8]
Bool = npt.NDArray[np.bool_]

NS_PER_S = 1e9
LONG_AGO = -(1 << 60)
NOTICED_WITHIN_NS = 500_000_000
"""All that notice a change of a clock do so within that time of one another."""


WANDER = 1e-9
"""Random walk of a frequency that is reckoned with at least, per square root of a second."""

MOST_WANDER = 1e-6
_LARGEST_SURPRISE = 9.0


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


def learnt_wander(wander: F64, surprise: F64, learn: Bool, step: float) -> F64:
    """What clocks are reckoned to wander after one more look at them: more while innovations exceed what is claimed.

    Args:
        wander: float64 [clocks], per square root of a second.
        surprise: float64 [clocks], squares of innovations in standard errors; 1 is what is expected.
        learn: bool [clocks], where there was a look.
        step: by how much of the surprise the logarithm of the variance is changed.
    """
    excess = np.minimum(surprise, _LARGEST_SURPRISE) - 1.0
    grown = wander * np.exp(step / 2 * np.where(excess > 0, excess, excess / 5))
    return np.where(learn, np.clip(grown, WANDER, MOST_WANDER), wander)
