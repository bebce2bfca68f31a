"""Least squares over a graph some of whose edges lie.

Iteratively reweighted: Huber weights first where there is no prediction to judge edges by, since
that problem is convex; then edges beyond six standard errors are out.
"""

from dataclasses import dataclass

import numpy as np

from cwdp.shared.clocksync._types import F64, Bool
from cwdp.shared.clocksync.graph.laplacian import Laplacian

DOUBT_SIGMAS = 3.0
REJECT_SIGMAS = 6.0
MEDIAN_ERROR = 1.2533
"""The standard error of a median, in standard deviations over the root of how many values there are, where these are normal."""

MAD_TO_SIGMA = 1.4826
_HALF_OF_NORMAL = 0.6745
_MOSTLY_GOOD = 0.05
_HUBER_ROUNDS = 12
_REJECT_ROUNDS = 6
_SETTLED_NS = 0.1


@dataclass(frozen=True, slots=True)
class RobustSolution:
    """Node values and what the residuals say of the edges.

    Attributes:
        x_ns: float64 [nodes], up to a constant per component.
        weight: float64 [edges], final weights; 0 where rejected.
        residual_ns: float64 [edges], y - (x_a - x_b).
        rejected: bool [edges].
        inflation: how many times larger than claimed the errors are, >= 1.
    """

    x_ns: F64
    weight: F64
    residual_ns: F64
    rejected: Bool
    inflation: float


def robust_solve(lap: Laplacian, y: F64, sigma: F64, usable: Bool) -> RobustSolution:
    """Solve for node values, edges that disagree with the rest set aside.

    Args:
        lap: structure over the edges.
        y: float64 [edges], measured differences less the predicted ones, ns.
        sigma: float64 [edges], their standard errors, ns.
        usable: bool [edges], False takes an edge out beforehand.
    """
    precision = usable / np.square(sigma)
    x = np.zeros(lap.n_nodes)
    score, inflation = _score(y, sigma, usable)
    if np.mean(score[usable] > REJECT_SIGMAS) > _MOSTLY_GOOD if usable.any() else False:
        x = _huber(lap, y, sigma, usable)
        score, inflation = _score(y - lap.differences(x), sigma, usable)
    # A host that is not where it was predicted must get there before its edges are judged.
    rejected = ~usable
    for _ in range(_REJECT_ROUNDS):
        weight = precision / np.maximum(1.0, score / DOUBT_SIGMAS)
        weight[rejected] = 0.0
        x = lap.solve(y, weight, start=x)
        residual = y - lap.differences(x)
        score, inflation = _score(residual, sigma, usable)
        before, rejected = rejected, ~usable | (score > REJECT_SIGMAS)
        if np.array_equal(before, rejected):
            break
    return RobustSolution(x, weight, residual, rejected & usable, inflation)


def _score(residual: F64, sigma: F64, usable: Bool) -> tuple[F64, float]:
    """Residuals in standard errors, and by how much those had to be widened."""
    score = np.abs(residual)
    score /= sigma
    judged = score[usable]
    typical = float(np.median(judged, overwrite_input=True)) / _HALF_OF_NORMAL if judged.size else 1.0
    inflation = max(1.0, typical)
    score /= inflation
    return score, inflation


def _huber(lap: Laplacian, y: F64, sigma: F64, usable: Bool) -> F64:
    x = np.zeros(lap.n_nodes)
    precision = usable / np.square(sigma)
    weight = precision
    for _ in range(_HUBER_ROUNDS):
        previous, x = x, lap.solve(y, weight, start=x)
        score, _ = _score(y - lap.differences(x), sigma, usable)
        weight = precision / np.maximum(1.0, score)
        if np.max(np.abs(x - previous), initial=0.0) < _SETTLED_NS:
            break
    return x


def centre(values: F64) -> tuple[float, float]:
    """Median and robust standard deviation (by the median absolute deviation), 0 and 0 without values."""
    if values.size == 0:
        return 0.0, 0.0
    median = float(np.median(values))
    return median, MAD_TO_SIGMA * float(np.median(np.abs(values - median)))
