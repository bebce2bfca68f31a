"""What windows are worked off by: rows against links, and what follows from that alone. No I/O.

To make a model takes long in a large fabric. It touches nothing but what it is made of, so a thread may do it while
windows are worked off by the model of before.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from manager.fabric.routes import Routes
from manager.faults.causes import Causes, find_causes
from manager.faults.reroutes import left_links
from manager.links.inference import QueueInference
from manager.links.matrix import PathMatrix, build_matrix
from manager.links.meter import LoadMeter
from manager.links.row_places import Nics
from manager.paths.windows import RowName

Version = tuple[int, int, int]
"""Of the routes, of the rows' names, of the hosts."""


@dataclass(frozen=True)
class LinkModel:
    """What is known of the ways of rows.

    Attributes:
        version: of what it is made.
        matrix: rows and links.
        meter: of the links' loads.
        queues: with what is remembered of the links.
        causes: of losses.
        moved: rows that lead over other links than in the model before, shape (rows,).
        rebased: rows whose way there, or back, leads over other links than before, though it is known still.
    """

    version: Version
    matrix: PathMatrix
    meter: LoadMeter
    queues: QueueInference
    causes: Causes
    moved: NDArray[np.bool_]
    rebased: tuple[NDArray[np.intp], NDArray[np.intp]]

    @property
    def names_version(self) -> int:
        """The version of the rows' names that it knows."""
        return self.version[1]


@dataclass(frozen=True)
class ModelInputs:
    """All that a model is made of; nothing of it changes any more."""

    version: Version
    names: Sequence[RowName | None]
    routes: Routes
    nics: Nics
    before: LinkModel | None

    def make(self) -> LinkModel:
        """The model; what of the one before holds still is taken over."""
        before = self.before
        known = None if before is None else before.matrix
        matrix = build_matrix(self.names, self.routes, self.nics, known)
        meter = LoadMeter(self.routes, self.nics.owner, None if before is None else before.meter)
        rows = len(matrix.known)
        none = np.zeros(0, np.intp)
        if before is None:
            return LinkModel(
                version=self.version,
                matrix=matrix,
                meter=meter,
                queues=_queues(matrix),
                causes=find_causes(matrix),
                moved=np.ones(rows, bool),
                rebased=(none, none),
            )
        same = before.matrix.same_as(matrix)
        is_rerouted = not same and before.matrix.routes.version != matrix.routes.version
        ways = ((before.matrix.fwd, matrix.fwd), (before.matrix.rev, matrix.rev))
        queues = before.queues if same else _queues(matrix)
        there, back = (np.unique(left_links(*way)[0]) if is_rerouted else none for way in ways)
        return LinkModel(
            version=self.version,
            matrix=matrix,
            meter=meter,
            queues=queues,
            causes=before.causes if same else find_causes(matrix),
            moved=np.zeros(rows, bool) if same else matrix.moved_since(before.matrix),
            rebased=(there, back),
        )


def _queues(matrix: PathMatrix) -> QueueInference:
    queues = QueueInference(matrix)
    queues.prepare()
    return queues
