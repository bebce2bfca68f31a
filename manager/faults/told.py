"""What other managers found: losses over that are explained here too, and counted for who found it. No I/O."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csc_array

from manager.faults.causes import belonging, meeting, perhaps_crossing
from manager.faults.finding import Subject
from manager.links.matrix import PathMatrix

Rows = NDArray[np.bool_]


@dataclass(kw_only=True)
class Counts:
    """Probes that meet a cause, and no other that is known, since it was told.

    Attributes:
        windows: how many have been worked off since.
        sent, lost: probes in these.
    """

    windows: int = 0
    sent: int = 0
    lost: int = 0


class Told:
    """Causes by the keys that who found them gives them.

    Attributes:
        rows: which meet one; shape (rows,), or (0,) where nothing is told.
        near: which may meet one as well, as nobody knows where they lead; as `rows`.
        counts: of each.
    """

    def __init__(self) -> None:
        self.rows: Rows = np.zeros(0, bool)
        self.near: Rows = np.zeros(0, bool)
        self.counts: dict[str, Counts] = {}
        self._subjects: dict[str, Subject] = {}
        self._matrix: PathMatrix | None = None
        self._meets = csc_array((0, 0))

    def use(self, matrix: PathMatrix) -> None:
        """Rows or routes are others than before."""
        self._matrix = matrix
        self._find()

    def take(self, subjects: Mapping[str, Subject]) -> Rows:
        """These hold, and no others; returns rows that met, or may have met, one which holds no more.

        Args:
            subjects: by the keys that who found them gives them.

        Returns:
            Shape (rows,) or (0,).
        """
        if subjects == self._subjects:
            return np.zeros(0, bool)
        over = [i for i, (key, subject) in enumerate(self._subjects.items()) if subjects.get(key) != subject]
        rows = self._any(over) | self._near(over) if over and self._matrix is not None else np.zeros(0, bool)
        self._subjects = dict(subjects)
        self.counts = {key: self.counts.get(key, Counts()) for key in subjects}
        self._find()
        return rows

    def count(self, sent: NDArray[np.float64], lost: NDArray[np.float64], others: Sequence[Rows]) -> None:
        """Take in a window, shape (rows,) each; rows that meet one of this manager's own findings count for none."""
        if not self._subjects or self._matrix is None:
            return
        alone = np.asarray(self._meets.sum(axis=1) == 1.0, bool)
        for rows in others:
            alone &= ~rows
        both = self._meets.T @ np.stack([sent * alone, lost * alone], axis=1)
        for counts, (more_sent, more_lost) in zip(self.counts.values(), both.tolist(), strict=True):
            counts.windows += 1
            counts.sent += round(more_sent)
            counts.lost += round(more_lost)

    def _find(self) -> None:
        if self._matrix is None or not self._subjects:
            self.rows = self.near = np.zeros(0, bool)
            return
        belongs = belonging(self._matrix.routes.links, list(self._subjects.values()))
        self._meets = csc_array(meeting(self._matrix, belongs))
        every = range(len(self._subjects))
        self.rows, self.near = self._any(every), self._near(every)

    def _any(self, columns: Sequence[int]) -> Rows:
        """Rows that meet one of some causes."""
        return np.asarray(self._meets[:, list(columns)].sum(axis=1) > 0, bool)

    def _near(self, columns: Sequence[int]) -> Rows:
        """Rows that may meet one of some causes."""
        assert self._matrix is not None
        subjects = list(self._subjects.values())
        return perhaps_crossing(self._matrix, (link for i in columns for link in subjects[i].links))
