"""What a pod's probes tell of causes, as sums, and what those of all pods together decide. Pure functions over arrays.

A cause is decided by how many probes met it and how many of those were lost, so pods' sums add up to what one manager
would have found that had all probes. Causes that the same probes meet share a class in one pod; over all pods those share
one that do so in each. So each pod tells of all that its links belong to, also of a link of which it knows one direction
or a host of which it knows one NIC: others may know the rest.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from manager.fabric.routes import DirectedLink, is_nic
from manager.faults.causes import Class, class_of, every_subject, meeting, priors, whole
from manager.faults.finding import Subject
from manager.faults.losses import LATE_WINDOWS, SPANS
from manager.faults.probe_history import ProbeHistory
from manager.links.matrix import PathMatrix, alike

NO_CLASS = -1

Floats = NDArray[np.float64]
Rows = NDArray[np.bool_]
Ids = NDArray[np.int32]


@dataclass(frozen=True, eq=False)
class Table:
    """What a pod tells of.

    Attributes:
        links: that its probes may cross.
        class_of: the class of each of `subjects`, `NO_CLASS` where no probe meets it, shape (subjects,).
    """

    links: tuple[DirectedLink, ...]
    class_of: Ids

    @cached_property
    def subjects(self) -> tuple[Subject, ...]:
        """What its links belong to, and themselves, in an order that the links give."""
        return told_subjects(self.links)

    @property
    def classes(self) -> int:
        """How many there are."""
        return int(self.class_of.max(initial=NO_CLASS)) + 1


def told_subjects(links: Sequence[DirectedLink]) -> tuple[Subject, ...]:
    """All but the directions of NICs' links, which every round trip crosses both ways."""
    return tuple(
        subject
        for subject in every_subject(links)
        if subject.kind != "direction" or not any(map(is_nic, subject.links[0]))
    )


@dataclass(frozen=True, eq=False)
class Sums:
    """Probes of a pod whose losses nothing explains yet, over each of `SPANS` windows that end now; float64 whole numbers.

    Attributes:
        sent, lost: that met each class's cause, shape (spans, classes).
        all_sent, all_lost: of all, shape (spans,).
        late: sent and lost in the last `LATE_WINDOWS` that met each class's cause, shape (2, classes).
        seen: bit i says whether one that met the cause was lost i windows ago, uint64, shape (classes,).
    """

    sent: Floats
    lost: Floats
    all_sent: Floats
    all_lost: Floats
    late: Floats
    seen: NDArray[np.uint64]


class Teller:
    """Makes a pod's sums from its rows.

    Args:
        matrix: which links the rows cross.

    Attributes:
        matrix: the same.
        table: what is told of.
    """

    def __init__(self, matrix: PathMatrix) -> None:
        self.matrix = matrix
        links = matrix.routes.links
        subjects = told_subjects(links)
        rows = meeting(matrix, subjects)
        met = np.bincount(rows.indices, minlength=len(subjects)) > 0
        first = alike(rows)
        firsts, number = np.unique(first[met], return_inverse=True)
        of_class = np.full(len(subjects), NO_CLASS, np.int32)
        of_class[met] = number
        self.table = Table(links, of_class)
        self._by_class = csr_array(rows[:, firsts].T)

    def sums(self, history: ProbeHistory, explained: Rows) -> Sums:
        """The sums over all rows but those whose losses are explained.

        Args:
            history: what became of their probes.
            explained: shape (rows,).
        """
        free = ~explained
        row_sent, row_lost = history.sent_sums * free, history.lost_sums * free
        lost = history.lost
        late = np.stack([history.sent_over(LATE_WINDOWS) * free, lost[-LATE_WINDOWS:].sum(axis=0) * free])
        return Sums(
            sent=row_sent @ self._by_class.T,
            lost=row_lost @ self._by_class.T,
            all_sent=row_sent.sum(axis=1),
            all_lost=row_lost.sum(axis=1),
            late=late.astype(np.float64) @ self._by_class.T,
            seen=self._seen(lost, np.flatnonzero(row_lost[-1])),
        )

    def _seen(self, lost: NDArray[np.uint16], losing: NDArray[np.intp]) -> NDArray[np.uint64]:
        """In which windows each class lost a probe, of the rows that lost some."""
        seen = np.zeros(self._by_class.shape[0], np.uint64)
        meets = csr_array(self._by_class[:, losing])
        for age, window in enumerate(lost[::-1]):
            any_lost = meets @ (window[losing] > 0).astype(np.float64) > 0
            seen |= any_lost.astype(np.uint64) << np.uint64(age)
        return seen


@dataclass(frozen=True, eq=False)
class Joined:
    """The classes of several pods.

    Attributes:
        classes: shape (classes,).
        prior: log prior, shape (classes,).
        place: the class of each pod that is part of each, `NO_CLASS` where that pod's probes do not meet it; shape
            (pods, classes).
        number: the class of each that is told of, by its kind and name.
    """

    classes: tuple[Class, ...]
    prior: Floats
    place: NDArray[np.intp]
    number: dict[tuple[str, str], int]

    @property
    def pods(self) -> NDArray[np.intp]:
        """How many pods' probes meet each class's causes, shape (classes,)."""
        return np.asarray(np.count_nonzero(self.place != NO_CLASS, axis=0), np.intp)


def joined(tables: Sequence[Table]) -> Joined:
    """The classes of what several pods tell of: causes share one that share one in every pod."""
    subjects = _union(tables)
    number = {(each.kind, each.name): i for i, each in enumerate(subjects)}
    place = np.full((len(tables), len(subjects)), NO_CLASS, np.intp)
    for pod, table in enumerate(tables):
        told = [number.get((each.kind, each.name), NO_CLASS) for each in table.subjects]
        where = np.array(told, np.intp)
        known = where != NO_CLASS
        place[pod, where[known]] = table.class_of[known]
    met = np.flatnonzero((place != NO_CLASS).any(axis=0))
    if not len(met):
        return Joined((), np.zeros(0), place[:, met], {})
    together, first, of_class = np.unique(place[:, met], axis=1, return_index=True, return_inverse=True)
    groups: list[list[Subject]] = [[] for _ in first]
    for i, which in zip(met.tolist(), of_class.ravel().tolist(), strict=True):
        groups[which].append(subjects[i])
    classes = tuple(map(class_of, groups))
    numbers: dict[tuple[str, str], int] = {
        (each.kind, each.name): which for which, group in enumerate(groups) for each in group
    }
    return Joined(classes, priors(classes), np.asarray(together, np.intp), numbers)


def _union(tables: Sequence[Table]) -> list[Subject]:
    """What all links together belong to, as far as it can be a cause."""
    links = dict.fromkeys(link for table in tables for link in table.links)
    return whole(every_subject(links))


class JointSums:
    """The sums of several pods; see `manager.faults.losses.Sums`.

    Args:
        joined: the classes of their tables.
        parts: of each pod, in the order of the tables.
    """

    def __init__(self, joined: Joined, parts: Sequence[Sums]) -> None:
        self._joined, self._parts = joined, parts
        count = len(joined.classes)
        self._sent, self._lost = np.zeros((2, len(SPANS), count))
        self._late, self._seen = np.zeros((2, count)), np.zeros(count, np.uint64)
        for place, part in zip(joined.place, parts, strict=True):
            mine = np.flatnonzero(place != NO_CLASS)
            theirs = place[mine]
            self._sent[:, mine] += part.sent[:, theirs]
            self._lost[:, mine] += part.lost[:, theirs]
            self._late[:, mine] += part.late[:, theirs]
            self._seen[mine] |= part.seen[theirs]

    def totals(self, place: int) -> tuple[float, float]:
        """Of a span, sent and lost."""
        sent, lost = (
            sum(float(each[place]) for each in column)
            for column in ([part.all_sent for part in self._parts], [part.all_lost for part in self._parts])
        )
        return sent, lost

    def lost_by_class(self, place: int) -> Floats:
        """Of a span, those lost that met each class's cause, shape (classes,)."""
        return np.asarray(self._lost[place], np.float64)

    def sent_by_class(self, place: int, classes: NDArray[np.intp] | None = None) -> Floats:
        """Of a span, those sent that met the cause of each, or of some classes, shape (those classes,)."""
        sent = self._sent[place]
        return np.asarray(sent if classes is None else sent[classes], np.float64)

    def windows_with_loss(self, number: int, span: int) -> int:
        """In how many of the last windows some of those were lost."""
        return (int(self._seen[number]) & ((1 << span) - 1)).bit_count()

    def of_late(self, number: int) -> tuple[float, float]:
        """How many of those were sent in the last windows, and lost."""
        sent, lost = self._late[:, number].tolist()
        return sent, lost
