"""Sparse non-negative least squares by block coordinate descent.

Minimises 1/2 sum_i w_i (y_i - A_i x)^2 + penalty * sum(x) over x >= 0: the LASSO with non-negative coefficients that
SIMON uses (Geng et al., "SIMON: A Simple and Scalable Method for Sensing, Inference and Measurement in Networks",
NSDI 2019). Columns are worked off in groups that share no row (`stages`), so that the exact minimum over each of a
group's coordinates is taken for all of them at once: a sweep is a Gauss-Seidel sweep at the cost of two sparse
products. Successive windows differ little, so the last solution is a good start. A column whose rows' observations
come to no more than the penalty is 0 whatever the others are, as these only make residuals less.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csc_array, csr_array

MOST_SCREENED = 0.3
"""Where a smaller share of the columns can be other than 0, only these are looked at."""

Floats = NDArray[np.float64]


class Solver:
    """For one matrix and many right-hand sides.

    Args:
        matrix: of zeros and ones, shape (rows, columns).
        groups: of columns without a row in common.
    """

    def __init__(self, matrix: csr_array, groups: Sequence[NDArray[np.intp]]) -> None:
        self._matrix = matrix
        self._groups = [(group, csr_array(matrix[:, group])) for group in groups]
        self._transposed = [csr_array(part.T) for _, part in self._groups]

    def solve(
        self, y: Floats, weight: Floats, start: Floats, *, penalty: float, sweeps: int, tolerance: float
    ) -> Floats:
        """The minimum, or what `sweeps` come to.

        Args:
            y: observations, shape (rows,); any value where the weight is 0.
            weight: >= 0, shape (rows,).
            start: where to begin, >= 0, shape (columns,).
            penalty: on the sum of x, >= 0, in units of weight * y.
            sweeps: at most so many.
            tolerance: stop once no coordinate changes by more, in units of y.

        Returns:
            x, shape (columns,); 0 where no row with a weight has the column.
        """
        stops = _Stops(penalty, sweeps, tolerance)
        most = self._transpose @ np.where(weight > 0, weight * y, 0.0)
        active = (start > 0) | (most > penalty)
        if np.count_nonzero(active) < MOST_SCREENED * len(active):
            return self._solve_some(active, y, weight, start, stops)
        return self._descend(y, weight, start, stops)

    @cached_property
    def _by_column(self) -> csc_array:
        return csc_array(self._matrix)

    @cached_property
    def _transpose(self) -> csr_array:
        return csr_array(self._matrix.T)

    def _descend(self, y: Floats, weight: Floats, start: Floats, stops: "_Stops") -> Floats:
        x = start.copy()
        scale = [part @ weight for part in self._transposed]
        residual = np.where(weight > 0, y - self._matrix @ x, 0.0)
        for _ in range(stops.sweeps):
            largest = 0.0
            for (group, part), transposed, norm in zip(self._groups, self._transposed, scale, strict=True):
                seen = norm > 0
                slope = transposed @ (weight * residual) - stops.penalty
                wanted = np.where(seen, x[group] + slope / np.where(seen, norm, 1.0), 0.0)
                step = np.maximum(wanted, 0.0) - x[group]
                x[group] += step
                residual -= part @ step
                largest = max(largest, float(np.abs(step).max(initial=0.0)))
            if largest <= stops.tolerance:
                break
        return x

    def _solve_some(
        self, active: NDArray[np.bool_], y: Floats, weight: Floats, start: Floats, stops: "_Stops"
    ) -> Floats:
        """The minimum where all other columns are surely 0, from their columns and the rows that have one of them."""
        x = np.zeros(len(active))
        columns = np.flatnonzero(active)
        if not len(columns):
            return x
        part = csr_array(self._by_column[:, columns])
        rows = np.flatnonzero(np.diff(part.indptr))
        place = np.full(len(active), -1)
        place[columns] = np.arange(len(columns))
        groups = [place[group[active[group]]] for group, _ in self._groups]
        some = Solver(csr_array(part[rows]), [group for group in groups if len(group)])
        x[columns] = some._descend(y[rows], weight[rows], start[columns], stops)
        return x


@dataclass(frozen=True)
class _Stops:
    """The penalty, and when to stop; as in `Solver.solve`."""

    penalty: float
    sweeps: int
    tolerance: float
