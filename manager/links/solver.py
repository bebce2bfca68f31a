"""Sparse non-negative least squares by block coordinate descent.

Minimises 1/2 sum_i w_i (y_i - A_i x)^2 + penalty * sum(x) over x >= 0: the LASSO with non-negative coefficients that
SIMON uses (Geng et al., "SIMON: A Simple and Scalable Method for Sensing, Inference and Measurement in Networks",
NSDI 2019). Columns are worked off in groups that share no row (`stages`), so that the exact minimum over each of a
group's coordinates is taken for all of them at once: a sweep is a Gauss-Seidel sweep at the cost of two sparse
products. Successive windows differ little, so the last solution is a good start.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

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
        x = start.copy()
        scale = [part @ weight for part in self._transposed]
        residual = np.where(weight > 0, y - self._matrix @ x, 0.0)
        for _ in range(sweeps):
            largest = 0.0
            for (group, part), transposed, norm in zip(self._groups, self._transposed, scale, strict=True):
                seen = norm > 0
                slope = transposed @ (weight * residual) - penalty
                wanted = np.where(seen, x[group] + slope / np.where(seen, norm, 1.0), 0.0)
                step = np.maximum(wanted, 0.0) - x[group]
                x[group] += step
                residual -= part @ step
                largest = max(largest, float(np.abs(step).max(initial=0.0)))
            if largest <= tolerance:
                break
        return x
