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
    backward = src > dst
    a, b = np.where(backward, dst, src), np.where(backward, src, dst)
    key = ((path * n_nodes + a) if path.any() else a) * n_nodes + b
    key, order = _sorted(key)
    starts = np.concatenate(([True], key[1:] != key[:-1]))
    pair = np.cumsum(starts) - 1
    first = order[starts]
    of_fit = np.empty(len(key), np.int64)
    of_fit[order] = pair
    # Sums run over the sorted fits: at random, a million of them would miss the cache every time.
    side, size = 2 * pair + backward[order], 2 * len(first)
    count = np.bincount(side, minlength=size)
    divisor = np.maximum(count, 1)
    variance = np.square(sigma_ns[order])
    (y_ab, y_ba) = (np.bincount(side, y_ns[order], size) / divisor).reshape(-1, 2).T
    (var_ab, var_ba) = (np.bincount(side, variance, size) / divisor).reshape(-1, 2).T
    (has_ab, has_ba) = (count > 0).reshape(-1, 2).T
    mutual = has_ab & has_ba
    sigma_mutual = np.sqrt(var_ab + var_ba) / 2
    bias = np.where(mutual, (y_ab + y_ba) / 2, np.nan)
    fleet, scatter = _centre(bias[mutual])
    y = np.where(mutual, (y_ab - y_ba) / 2, np.where(has_ab, y_ab - fleet, fleet - y_ba))
    sigma = np.where(mutual, sigma_mutual, np.sqrt(var_ab + var_ba + scatter**2))
    sigma_bias = np.where(mutual, np.hypot(sigma_mutual, scatter), np.inf)
    return PairEdges(a[first], b[first], y, sigma, mutual, bias - fleet, sigma_bias, of_fit)


def _sorted(key: I64) -> tuple[I64, I64]:
    """Keys (>= 0) in ascending order, and where each was; packed into one word where they fit."""
    bits = len(key).bit_length()
    if int(key.max(initial=0)).bit_length() + bits > 63:
        order = np.argsort(key)
        return key[order], order
    packed = np.sort((key << bits) | np.arange(len(key)))
    return packed >> bits, packed & ((1 << bits) - 1)


def _centre(values: F64) -> tuple[float, float]:
    """Median and robust standard deviation, 0 and 0 without values."""
    if values.size == 0:
        return 0.0, 0.0
    median = float(np.median(values))
    return median, _MAD_TO_SIGMA * float(np.median(np.abs(values - median)))
