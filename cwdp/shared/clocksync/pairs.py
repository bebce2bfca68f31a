"""The two directed fits of a probed pair, merged into one undirected edge.

Requests are stamped at tc egress, replies in XDP. Let c be the constant between the two stamping
points of a host: the fit of A to B is off by (c_A' + c_B'') / 2 with some such constants, and so is
that of B to A, with the same sign, because either initiator is late by its own tc point. Half the
difference of the two fits is free of what is common; half their sum is what they disagree by, which
also shows a host that tells its peers one time and itself another.
"""

from dataclasses import dataclass

import numpy as np

from cwdp.shared.clocksync._types import F64, I64, Bool

_MAD_TO_SIGMA = 1.4826


@dataclass(frozen=True, slots=True)
class PairEdges:
    """Undirected edges, a < b.

    Attributes:
        a, b: int64 [pairs], nodes.
        y_ns, sigma_ns: float64 [pairs], g_a - g_b and its standard error.
        mutual: bool [pairs], both ends initiated.
        bias_ns, sigma_bias_ns: float64 [pairs], half the sum of the two directed fits, which is alike
            for all pairs of a fleet with one stamping; NaN and inf where not mutual.
        of_fit: int64 [fits], the pair of each directed fit.
    """

    a: I64
    b: I64
    y_ns: F64
    sigma_ns: F64
    mutual: Bool
    bias_ns: F64
    sigma_bias_ns: F64
    of_fit: I64


def merge_directed(src: I64, dst: I64, path: I64, *, y_ns: F64, sigma_ns: F64, n_nodes: int) -> PairEdges:
    """Merge directed fits by pair and path, the two directions with equal weight.

    A pair seen from one end only is corrected by the fleet's median bias, whose scatter it inherits.

    Args:
        src: int64 [fits], initiators, nodes 0 to n_nodes - 1.
        dst: int64 [fits], responders.
        path: int64 [fits], which of several paths of a pair; 0 where there is one.
        y_ns: float64 [fits], g_src - g_dst as measured.
        sigma_ns: float64 [fits].
        n_nodes: how many nodes there are.
    """
    a, b = np.minimum(src, dst), np.maximum(src, dst)
    key = (path * n_nodes + a) * n_nodes + b
    _, first, of_fit = np.unique(key, return_index=True, return_inverse=True)
    n = len(first)
    sides = []
    for forward in (src == a, src != a):
        rows = np.flatnonzero(forward)
        count = np.bincount(of_fit[rows], minlength=n)
        divisor = np.maximum(count, 1)
        mean = np.bincount(of_fit[rows], y_ns[rows], n) / divisor
        variance = np.bincount(of_fit[rows], sigma_ns[rows] ** 2, n) / divisor
        sides.append((count > 0, mean, variance))
    (has_ab, y_ab, var_ab), (has_ba, y_ba, var_ba) = sides
    mutual = has_ab & has_ba
    sigma_mutual = np.sqrt(var_ab + var_ba) / 2
    bias = np.where(mutual, (y_ab + y_ba) / 2, np.nan)
    fleet, scatter = _centre(bias[mutual])
    y = np.where(mutual, (y_ab - y_ba) / 2, np.where(has_ab, y_ab - fleet, fleet - y_ba))
    sigma = np.where(mutual, sigma_mutual, np.sqrt(var_ab + var_ba + scatter**2))
    sigma_bias = np.where(mutual, np.hypot(sigma_mutual, scatter), np.inf)
    return PairEdges(a[first], b[first], y, sigma, mutual, bias - fleet, sigma_bias, of_fit)


def _centre(values: F64) -> tuple[float, float]:
    """Median and robust standard deviation, 0 and 0 without values."""
    if values.size == 0:
        return 0.0, 0.0
    median = float(np.median(values))
    return median, _MAD_TO_SIGMA * float(np.median(np.abs(values - median)))
