"""What could have lost a probe: every link, one way or both, every switch and every host with more than one NIC.

Causes that the same probes meet explain the same losses, whatever is measured; they share a class. Of a NIC's link,
for instance, no round trip tells the direction. No I/O.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from manager.fabric.routes import DirectedLink
from manager.faults.dead_links import hiding
from manager.faults.finding import Subject, cable
from manager.faults.subjects import belonging_of
from manager.links.matrix import PathMatrix, alike

RANKS = {"link": 0, "direction": 1, "host": 2, "switch": 3}
"""Which of the causes in a class is named: the simplest."""

PRIOR = {"link": 0.0, "direction": 0.0, "host": -2.0, "switch": -2.0}
"""Log of how likely a cause is beforehand, relative to a link."""


@dataclass(frozen=True)
class Class:
    """Causes that cannot be told apart: the one to name, and those that are as simple."""

    subject: Subject
    also: tuple[Subject, ...]


@dataclass(frozen=True)
class Causes:
    """All classes of a matrix.

    Attributes:
        classes: shape (classes,).
        prior: log prior, shape (classes,).
        rows: 1 where a class's cause lies on a row's round trip, int8, shape (rows, classes).
    """

    classes: tuple[Class, ...]
    prior: NDArray[np.float64]
    rows: csr_array

    @cached_property
    def by_class(self) -> csr_array:
        """The transpose of `rows`."""
        return csr_array(self.rows.T)

    def rows_of(self, number: int) -> NDArray[np.integer]:
        """The rows whose round trip meets a class's cause."""
        first, end = self.by_class.indptr[number : number + 2]
        return np.asarray(self.by_class.indices[first:end])


def find_causes(matrix: PathMatrix) -> Causes:
    """The causes that known paths of a matrix could have met."""
    subjects, belongs = _subjects(matrix.routes.links)
    rows = meeting(matrix, belongs)
    first = alike(rows)
    met = np.bincount(rows.indices, minlength=len(subjects)) > 0
    groups: dict[int, list[Subject]] = {}
    for j in np.flatnonzero(met).tolist():
        groups.setdefault(int(first[j]), []).append(subjects[j])
    classes = tuple(class_of(group) for group in groups.values())
    return Causes(classes, priors(classes), csr_array(rows[:, list(groups)].astype(np.int8)))


@lru_cache(maxsize=2)
def _subjects(links: tuple[DirectedLink, ...]) -> tuple[Sequence[Subject], csr_array]:
    """What can be a cause, and which links are of it; paths change more often than links, and there are many."""
    every = belonging_of(links)
    return every.only(every.is_whole)


def priors(classes: Iterable[Class]) -> NDArray[np.float64]:
    """The log prior of each, shape (classes,)."""
    return np.array([PRIOR[each.subject.kind] for each in classes])


def belonging(links: Sequence[DirectedLink], subjects: Sequence[Subject]) -> csr_array:
    """1 where a link is of a subject, shape (links, subjects)."""
    number = {link: i for i, link in enumerate(links)}
    pairs = [
        (number[link], j) for j, subject in enumerate(subjects) for link in subject.links if link in number
    ]
    where = np.array(pairs, np.int64).reshape(-1, 2)
    return csr_array((np.ones(len(where)), (where[:, 0], where[:, 1])), shape=(len(number), len(subjects)))


def meeting(matrix: PathMatrix, belongs: csr_array) -> csr_array:
    """1 where a row's round trip meets a subject, shape (rows, subjects); `belongs` as of `belonging`."""
    rows = csr_array(matrix.round_trip @ belongs)
    rows.data[:] = 1.0
    return rows


def class_of(group: Iterable[Subject]) -> Class:
    """Causes that the same probes meet. One way of a link stands behind the link itself, which stands behind nothing of another link."""
    group = list(group)
    if len(group) == 1:
        return Class(group[0], ())
    group = sorted(group, key=lambda subject: (RANKS[subject.kind], subject.name))
    named = group[0]
    cables = {subject.links[0] for subject in group if subject.kind == "link"}
    also = [
        subject
        for subject in group[1:]
        if subject.kind in ("link", "direction")
        and not (subject.kind == "direction" and _is_of(subject, cables))
    ]
    return Class(named, tuple(also))


def _is_of(subject: Subject, cables: set[DirectedLink]) -> bool:
    return cable(subject.links[0]).links[0] in cables


def crossing(matrix: PathMatrix, subject: Subject) -> NDArray[np.bool_]:
    """Which rows' round trips cross a subject; shape (rows,)."""
    return _over(matrix, subject.links)


def perhaps_crossing(matrix: PathMatrix, links: Iterable[DirectedLink]) -> NDArray[np.bool_]:
    """Which rows' round trips may cross links at fault, as nobody knows where they lead between two places; shape (rows,).

    A path that is traced while a link is silent is not known behind that, nor what answers come back over it.
    """
    return _over(matrix, hiding(matrix.routes, links))


def _over(matrix: PathMatrix, links: Iterable[DirectedLink]) -> NDArray[np.bool_]:
    chosen = set(links)
    if not chosen:
        return np.zeros(len(matrix.known), bool)
    on = np.fromiter((link in chosen for link in matrix.routes.links), np.float64)
    return np.asarray(matrix.round_trip @ on > 0, bool)
