"""Sparse non-negative least squares by block coordinate descent.

Minimises 1/2 sum_i w_i (y_i - A_i x)^2 + penalty * sum(x) over x >= 0: the LASSO with non-negative coefficients that
SIMON uses (Geng et al., "SIMON: A Simple and Scalable Method for Sensing, Inference and Measurement in Networks",
NSDI 2019). Columns are worked off in groups that share no row (`stages`), so that the exact minimum over each of a
group's coordinates is taken for all of them at once, a Gauss-Seidel sweep. It goes by the normal equations, A^T W A and
A^T W y: there are far fewer columns than rows. Successive windows differ little, so the last solution is a good start.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

Floats = NDArray[np.float64]
Indices = NDArray[np.intp]


class Solver:
    """For one matrix and many right-hand sides.

    Args:
        matrix: of zeros and ones, shape (rows, columns).
        groups: of columns without a row in common; together all columns.
    """

    def __init__(self, matrix: csr_array, groups: Sequence[Indices]) -> None:
        self._groups = groups
        self._in_order = np.concatenate([np.zeros(0, np.intp), *groups])
        self._matrix = csr_array(matrix[:, self._in_order])
        self._transpose = csr_array(self._matrix.T)

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
        observed = self._transpose @ np.where(weight > 0, weight * y, 0.0)
        x = np.zeros(len(start))
        is_surely_zero = not start.any() and not (observed > penalty).any()
        if not is_surely_zero:
            x[self._in_order] = self._descend(
                observed - penalty, weight, start[self._in_order], sweeps, tolerance
            )
        return x

    def _descend(self, gain: Floats, weight: Floats, x: Floats, sweeps: int, tolerance: float) -> Floats:
        """From x on; columns in the order of groups."""
        norm = self._transpose @ weight
        seen = norm > 0
        divisor = np.where(seen, norm, 1.0)
        products = self._products.of(weight)
        for _ in range(sweeps):
            largest = 0.0
            for group, rows in products:
                slope = gain[group] - rows @ x
                wanted = np.where(seen[group], x[group] + slope / divisor[group], 0.0)
                step = np.maximum(wanted, 0.0) - x[group]
                x[group] += step
                largest = max(largest, float(np.abs(step).max(initial=0.0)))
            if largest <= tolerance:
                break
        return x

    @property
    def is_prepared(self) -> bool:
        """Whether some right-hand side has had to be solved for, or `prepare` was called."""
        return "_products" in self.__dict__

    def prepare(self) -> None:
        """Work out what every solution rests on, which takes long for a large matrix; else the first one does."""
        _ = self._products

    @cached_property
    def _products(self) -> "_Products":
        return _Products(self._matrix, [len(group) for group in self._groups])


@dataclass(frozen=True)
class _Part:
    """Where the rows of a group are in a sparse matrix: its columns, and its values."""

    columns: slice
    values: slice
    rows: csr_array


class _Products:
    """A^T W A for one matrix A and many weights: where it is not 0 does not change.

    Args:
        matrix: A, of zeros and ones.
        sizes: of the groups of its columns, which come one after another.
    """

    def __init__(self, matrix: csr_array, sizes: Sequence[int]) -> None:
        columns = matrix.shape[1]
        pair, row = _pairs(matrix)
        upper, number = np.unique(pair, return_inverse=True)
        self._sums = csr_array((np.ones(len(pair)), (number, row)), shape=(len(upper), matrix.shape[0]))
        first, second = np.divmod(upper, columns)
        mirrored = np.flatnonzero(first != second)
        whole = np.concatenate([upper, second[mirrored] * columns + first[mirrored]])
        order = np.argsort(whole)
        self._from_upper = np.concatenate([np.arange(len(upper)), mirrored])[order]
        row_of, column_of = np.divmod(whole[order], columns)
        self._parts = [
            _part(slice(end - size, end), row_of, column_of, columns)
            for size, end in zip(sizes, np.cumsum(sizes).tolist(), strict=True)
        ]

    def of(self, weight: Floats) -> list[tuple[slice, csr_array]]:
        """The rows of each group, with the group's place among the columns; they hold until this is asked again."""
        values = np.asarray(self._sums @ weight)[self._from_upper]
        for part in self._parts:
            part.rows.data[:] = values[part.values]
        return [(part.columns, part.rows) for part in self._parts]


def _part(group: slice, row_of: Indices, column_of: Indices, columns: int) -> _Part:
    starts = np.searchsorted(row_of, np.arange(group.start, group.stop + 1))
    values = slice(int(starts[0]), int(starts[-1]))
    shape = group.stop - group.start, columns
    data = np.zeros(values.stop - values.start)
    return _Part(group, values, csr_array((data, column_of[values], starts - starts[0]), shape=shape))


def _pairs(matrix: csr_array) -> tuple[Indices, Indices]:
    """All pairs of columns that a row has, as `first * columns + second`, first <= second, with that row."""
    matrix.sort_indices()
    columns = matrix.shape[1]
    count = np.diff(matrix.indptr)
    row, end = np.repeat(np.arange(len(count)), count), np.repeat(matrix.indptr[1:], count)
    place = np.arange(matrix.nnz)
    pairs, rows = [np.zeros(0, np.intp)], [np.zeros(0, np.intp)]
    for apart in range(int(count.max(initial=0))):
        first = place[place + apart < end]
        pairs.append(matrix.indices[first].astype(np.intp) * columns + matrix.indices[first + apart])
        rows.append(row[first])
    return np.concatenate(pairs), np.concatenate(rows)
