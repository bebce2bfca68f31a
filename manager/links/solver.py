"""Sparse non-negative least squares by block coordinate descent.

Minimises 1/2 sum_i w_i (y_i - A_i x)^2 + penalty * sum(x) over x >= 0: the LASSO with non-negative coefficients that
SIMON uses (Geng et al., "SIMON: A Simple and Scalable Method for Sensing, Inference and Measurement in Networks",
NSDI 2019). Columns are worked off in groups that share no row (`stages`), so that the exact minimum over each of a
group's coordinates is taken for all of them at once, a Gauss-Seidel sweep. It goes by the normal equations, A^T W A and
A^T W y: there are far fewer columns than rows. Successive windows differ little, so the last solution is a good start.
What is left after the first sweep shrinks slowly, so later ones go further than the minimum (projected over-relaxation:
Cryer, "The solution of a quadratic programming problem using systematic overrelaxation", SIAM J. Control 1971).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

RELAXATION = 1.5
"""By so much of the way to each minimum, below 2; with 1 it takes half as many sweeps more to come half as near."""

Floats = NDArray[np.float64]
Indices = NDArray[np.intp]


class Solver:
    """For one matrix and many right-hand sides.

    Args:
        matrix: of zeros and ones, shape (rows, columns).
        groups: of columns without a row in common; together all columns.

    Attributes:
        seen: columns that some row with a weight had, of the latest right-hand side, shape (columns,).
    """

    def __init__(self, matrix: csr_array, groups: Sequence[Indices]) -> None:
        self._sizes = [len(group) for group in groups]
        self._in_order = np.concatenate([np.zeros(0, np.intp), *groups])
        self._transpose = csr_array(matrix.astype(np.float64)[:, self._in_order].T)
        self.seen = np.zeros(matrix.shape[1], bool)

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
        norm = self._transpose @ weight
        self.seen[self._in_order] = norm > 0
        x = np.zeros(len(start))
        is_surely_zero = not start.any() and not (observed > penalty).any()
        if not is_surely_zero:
            x[self._in_order] = self._descend(
                observed - penalty, norm, weight, start[self._in_order], sweeps=sweeps, tolerance=tolerance
            )
        return x

    def least(self, values: Floats, columns: Indices) -> Floats:
        """The least of the rows that have each of some columns, of which some row has every one; shape (columns,).

        Args:
            values: of the rows, shape (rows,).
            columns: numbers.
        """
        place = np.empty(len(self._in_order), np.intp)
        place[self._in_order] = np.arange(len(place))
        rows = csr_array(self._transpose[place[columns]])
        return np.minimum.reduceat(values[rows.indices], rows.indptr[:-1]) if len(columns) else np.zeros(0)

    def _descend(
        self, gain: Floats, norm: Floats, weight: Floats, x: Floats, *, sweeps: int, tolerance: float
    ) -> Floats:
        """From x on; columns in the order of groups."""
        seen = norm > 0
        x[~seen] = 0.0
        per_norm = np.divide(1.0, norm, out=np.zeros(len(norm)), where=seen)
        products, relaxation = self._products.of(weight, norm), 1.0
        for _ in range(sweeps):
            largest = 0.0
            for group, rows in products:
                now = x[group]
                wanted = now + relaxation * per_norm[group] * (gain[group] - rows @ x)
                step = np.maximum(wanted, 0.0, out=wanted) - now
                now += step
                largest = max(largest, float(np.abs(step, out=step).max(initial=0.0)))
            if largest <= tolerance:
                break
            relaxation = RELAXATION
        return x

    def prepare(self) -> None:
        """Work out what every solution rests on, which takes long for a large matrix; else the first one does."""
        _ = self._products

    @cached_property
    def _products(self) -> "_Products":
        return _Products(csr_array(self._transpose.T), self._sizes)


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
        upper, self._sums = _pairs(matrix)
        first, second = np.divmod(upper, columns)
        starts = np.searchsorted(first, np.arange(columns + 1))
        numbers = np.arange(1, len(upper) + columns + 1, dtype=np.int32)
        above = csr_array((numbers[: len(upper)], second, starts), shape=(columns, columns))
        diagonal = csr_array((numbers[len(upper) :], np.arange(columns), np.arange(columns + 1)), above.shape)
        whole = csr_array(above + above.T + diagonal)
        whole.sort_indices()
        self._source = whole.data - 1
        ends = np.cumsum(sizes).tolist()
        self._parts = [_part(slice(end - size, end), whole) for size, end in zip(sizes, ends, strict=True)]

    def of(self, weight: Floats, norm: Floats) -> list[tuple[slice, csr_array]]:
        """The rows of each group, with the group's place among the columns; they hold until this is asked again.

        Args:
            weight: shape (rows,).
            norm: A^T w, the diagonal, shape (columns,).
        """
        values = np.concatenate([self._sums @ weight, norm])[self._source]
        for part in self._parts:
            part.rows.data[:] = values[part.values]
        return [(part.columns, part.rows) for part in self._parts]


def _part(group: slice, whole: csr_array) -> _Part:
    rows = csr_array(whole[group].astype(np.float64))
    return _Part(group, slice(int(whole.indptr[group.start]), int(whole.indptr[group.stop])), rows)


def _pairs(matrix: csr_array) -> tuple[NDArray[np.integer], csr_array]:
    """All pairs of two columns that some row has, and 1 where a row has them.

    Returns:
        `first * columns + second` of each pair, first < second, rising, shape (pairs,).
        Which rows have which, shape (pairs, rows).
    """
    matrix.sort_indices()
    rows, columns = matrix.shape
    count = np.diff(matrix.indptr)
    row = np.repeat(np.arange(rows, dtype=np.int32), count)
    end = np.repeat(matrix.indptr[1:], count)
    kind = np.int32 if columns**2 <= np.iinfo(np.int32).max else np.int64
    pairs, having = [np.zeros(0, kind)], [np.zeros(0, np.int32)]
    for apart in range(1, int(count.max(initial=0))):
        first = np.flatnonzero(np.arange(apart, matrix.nnz + apart) < end)
        pairs.append(np.multiply(matrix.indices[first], columns, dtype=kind) + matrix.indices[first + apart])
        having.append(row[first])
    pair = np.concatenate(pairs)
    order = np.argsort(pair)
    pair = pair[order]
    starts = np.flatnonzero(np.diff(pair, prepend=kind(-1))).astype(np.int32)
    indptr = np.append(starts, np.int32(len(pair)))
    which = csr_array((np.ones(len(pair)), np.concatenate(having)[order], indptr), shape=(len(starts), rows))
    return pair[starts], which
