"""What is worth remembering of probes that have left the window: those that came closest to the floor.

Under heavy load most windows hold no probe that met no queue. One from some seconds ago, carried on with
the well-known relative frequency, then says more than any in the window (the bounds are aged in `samples`).
"""

import numpy as np
import numpy.typing as npt

from cwdp.shared.clocksync._types import F64, I64

KEPT = 2


def nearest_to_floor(edge: npt.NDArray[np.integer], slope: F64, stamps_ns: I64) -> npt.NDArray[np.intp]:
    """Choose, for each edge and direction, the few probes of a short stretch that waited least.

    Args:
        edge: integers [probes], the edge of each probe.
        slope: float64 [edges], relative frequency of each edge.
        stamps_ns: int64 [4, probes], t1 to t4 as in `samples.Exchanges`.

    Returns:
        Indices of the probes to keep, ascending.
    """
    if not len(edge):
        return np.zeros(0, np.intp)
    t1, t2, t3, t4 = stamps_ns
    start, drift = t1.min(), slope[edge]
    out = (t2 - t1) - drift * (t1 - start)
    back = (t4 - t3) + drift * (t4 - start)
    return np.union1d(_lowest(edge, out), _lowest(edge, back))


def _lowest(edge: npt.NDArray[np.integer], delay: F64) -> npt.NDArray[np.intp]:
    order = np.lexsort((delay, edge))
    ordered = edge[order]
    begins = np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1])))
    rank = np.arange(len(order)) - np.repeat(begins, np.diff(np.append(begins, len(order))))
    return order[rank < KEPT]
