"""Which links the probed paths cross, as sparse matrices. No I/O."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, vstack

from manager.fabric.routes import DirectedLink, Routes
from manager.links.row_places import Nics, Places, find_places
from manager.paths.windows import RowName

_HASH_END = 1 << 40

Indices = NDArray[np.intp]


@dataclass(frozen=True)
class PathMatrix:
    """Rows of probes against the links of a `Routes`.

    Attributes:
        routes: whose links the columns are.
        fwd, rev: 1 where the way there, or back, crosses a link; shape (rows, links), int8.
        known: rows of which both ways are known, shape (rows,).
        place: the first place that each link has in a path, from 0 on; shape (links,).
        places: where the rows' ways are among the known paths.
    """

    routes: Routes
    fwd: csr_array
    rev: csr_array
    known: NDArray[np.bool_]
    place: NDArray[np.int64]
    places: Places

    def same_as(self, other: "PathMatrix") -> bool:
        """Whether another one says the same of the same rows; its routes may know of more paths."""
        return (
            self.routes.links == other.routes.links
            and _same(self.fwd, other.fwd)
            and _same(self.rev, other.rev)
        )

    def moved_since(self, before: "PathMatrix") -> NDArray[np.bool_]:
        """Rows that lead over other links than in an earlier matrix, or were not in it, shape (rows,)."""
        rows = len(self.known)
        moved = np.ones(rows, bool)
        both = min(rows, len(before.known))
        mine, theirs = _link_draws(self.routes.links, before.routes.links)
        moved[:both] = False
        for now, then in ((self.fwd, before.fwd), (self.rev, before.rev)):
            moved[:both] |= (now @ mine)[:both] != (then @ theirs)[:both]
        return moved

    @property
    def delays(self) -> csr_array:
        """Both ways' rows, those there first; shape (2 * rows, links), int8."""
        return csr_array(vstack([self.fwd, self.rev]))

    @cached_property
    def round_trip(self) -> csr_array:
        """1 where a probe of the row crosses a link on either way, where both are known; shape (rows, links), int8."""
        both = csr_array(self.fwd + self.rev)
        both.data[:] = np.repeat(self.known, np.diff(both.indptr))
        both.eliminate_zeros()
        return both


def build_matrix(
    names: Sequence[RowName | None], routes: Routes, nics: Nics, before: PathMatrix | None = None
) -> PathMatrix:
    """The matrices of all rows; a way that is not known is empty.

    Args:
        names: what each row is.
        routes: the known paths.
        nics: who has which address.
        before: an earlier one; what it knows of rows whose names and ports are the same is taken over.
    """
    paths = routes.packed
    places = find_places(names, paths, nics, None if before is None else before.places)
    place = np.full(len(routes.links), np.iinfo(np.int64).max)
    fwd, rev = (_rows_of(paths.crossed_in(rows), place) for rows in places.path)
    known = (np.diff(fwd.indptr) > 0) & (np.diff(rev.indptr) > 0)
    return PathMatrix(routes, fwd, rev, known, place, places)


def _rows_of(crossed: NDArray[np.int32], place: NDArray[np.int64]) -> csr_array:
    """The rows of some paths, shape (rows, most links); `place` is lowered to where each link is in them."""
    used = crossed >= 0
    for at in range(crossed.shape[1] - 1, -1, -1):
        links = crossed[used[:, at], at]
        place[links] = np.minimum(place[links], at)
    indptr = np.concatenate([[0], np.cumsum(used.sum(axis=1))]).astype(np.int32)
    indices = crossed[used]
    matrix = csr_array((np.ones(len(indices), np.int8), indices, indptr), shape=(len(crossed), len(place)))
    matrix.sum_duplicates()
    matrix.data[:] = 1
    return matrix


def _link_draws(
    links: tuple[DirectedLink, ...], others: tuple[DirectedLink, ...]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """A random number for each link, the same for the same link in both; sums of a few are exact and tell rows apart."""
    draw = np.random.default_rng(2).integers(1, _HASH_END, len(links) + len(others)).astype(np.float64)
    number = {link: i for i, link in enumerate(links)}
    places = [number.get(link, len(links) + i) for i, link in enumerate(others)]
    return draw[: len(links)], draw[np.array(places, np.intp)]


def _same(a: csr_array, b: csr_array) -> bool:
    return a.shape == b.shape and np.array_equal(a.indptr, b.indptr) and np.array_equal(a.indices, b.indices)


def alike(matrix: csr_array) -> Indices:
    """Which columns are the same: the number of the first such column, for each; shape (columns,).

    Columns are compared by a random sum over their rows, 2^-40 being the chance to take two for one.
    """
    draw = np.random.default_rng(1).integers(0, _HASH_END, matrix.shape[0])
    sums: NDArray[np.int64] = np.asarray(matrix.astype(np.int64).T @ draw)
    _, first, inverse = np.unique(sums, return_index=True, return_inverse=True)
    return np.asarray(first[inverse], np.intp)


def stages(matrix: csr_array) -> list[Indices]:
    """Columns in groups of which no row has two, so that those of a group can be changed at once.

    Greedy colouring; links in the same place of their paths mostly share a group, so there are about as many as a
    path has links.
    """
    wide = matrix.astype(np.int32)
    conflicts = csr_array(wide.T @ wide)
    stage = np.full(matrix.shape[1], -1, np.intp)
    for link in range(matrix.shape[1]):
        near = conflicts.indices[conflicts.indptr[link] : conflicts.indptr[link + 1]]
        taken = set(stage[near].tolist())
        stage[link] = next(i for i in range(len(near) + 1) if i not in taken)
    return [np.flatnonzero(stage == i) for i in range(int(stage.max(initial=-1)) + 1)]
