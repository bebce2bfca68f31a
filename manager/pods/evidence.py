"""What a pod's probes tell of causes, as sums, and what those of all pods together decide. Pure functions over arrays.

A cause is decided by how many probes met it and how many of those were lost, so pods' sums add up to what one manager
would have found that had all probes. Causes that the same probes meet share a class in one pod; over all pods those share
one that do so in each. So each pod tells of all that its links belong to, also of a link of which it knows one direction
or a host of which it knows one NIC: others may know the rest.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from manager.fabric.routes import DirectedLink
from manager.faults.causes import Class, belonging_of, class_of, meeting, priors
from manager.faults.finding import Subject
from manager.faults.loss_watch import LEAST_OTHERS
from manager.faults.losses import LATE_WINDOWS, SPANS
from manager.faults.probe_history import ProbeHistory
from manager.links.inference import QUIET_NS
from manager.links.matrix import PathMatrix, alike

NO_CLASS = -1
RANK_BINS = 8
MOST_RANKED = 4_000
"""Lost probes' windows of rows that are ranked at most, of those the latest."""

Floats = NDArray[np.float64]
Rows = NDArray[np.bool_]
Ids = NDArray[np.int32]


@dataclass(frozen=True, eq=False)
class Table:
    """What a pod tells of.

    Attributes:
        links: that its probes may cross.
        subjects: what its links belong to, and themselves, in an order that the links give; see `told_subjects`.
        class_of: the class of each of them, `NO_CLASS` where no probe meets it, shape (subjects,).
    """

    links: tuple[DirectedLink, ...]
    subjects: tuple[Subject, ...]
    class_of: Ids

    @property
    def classes(self) -> int:
        """How many there are."""
        return int(self.class_of.max(initial=NO_CLASS)) + 1


def told_subjects(links: tuple[DirectedLink, ...]) -> tuple[tuple[Subject, ...], csr_array]:
    """All but the directions of NICs' links, which every round trip crosses both ways; and which links are of which."""
    every = belonging_of(links)
    return every.only(~every.is_nics_way)


@dataclass(frozen=True, eq=False)
class Sums:
    """Probes of a pod whose losses nothing explains yet, over each of `SPANS` windows that end now; float64 whole numbers.

    Attributes:
        sent, lost: that met each class's cause, shape (spans, classes).
        all_sent, all_lost: of all, shape (spans,).
        late: sent and lost in the last `LATE_WINDOWS` that met each class's cause, shape (2, classes).
        seen: bit i says whether one that met the cause was lost i windows ago, uint64, shape (classes,).
        ranks: lost probes by how long the queues of their paths were then, among the paths' usual ones, in `RANK_BINS`
            equal steps from 0 to 1; shape (bins, classes).
    """

    sent: Floats
    lost: Floats
    all_sent: Floats
    all_lost: Floats
    late: Floats
    seen: NDArray[np.uint64]
    ranks: Floats


@dataclass(frozen=True)
class Snapshot:
    """What became of rows' probes, and changes no more; for a thread.

    Attributes:
        free: rows whose losses nothing explains yet, shape (rows,).
        sent_sums, lost_sums: as in `ProbeHistory`, shape (spans, rows).
        late_sent: in the last `LATE_WINDOWS`, shape (rows,).
        losing: the free rows that lost some.
        lost, queued_ns: of those rows, by window, the latest last, as in `ProbeHistory`, shape (windows, losing rows).
    """

    free: Rows
    sent_sums: Floats
    lost_sums: Floats
    late_sent: NDArray[np.uint32]
    losing: NDArray[np.intp]
    lost: NDArray[np.uint16]
    queued_ns: NDArray[np.float32]

    @classmethod
    def of(cls, history: ProbeHistory, explained: Rows) -> "Snapshot":
        """Of what goes on to change.

        Args:
            history: what became of probes.
            explained: rows whose losses are, shape (rows,).
        """
        free = ~explained
        losing = np.flatnonzero((history.lost_sums[-1] > 0) & free)
        return cls(
            free,
            history.sent_sums,
            history.lost_sums.copy(),
            history.sent_over(LATE_WINDOWS),
            losing,
            history.lost_of(losing, SPANS[-1]),
            history.queued_ns_of(losing),
        )


class Teller:
    """Makes a pod's sums from its rows.

    Args:
        matrix: which links the rows cross.
        before: an earlier one; what depends on the links alone is taken over while they are the same.

    Attributes:
        matrix: the same.
        table: what is told of.
        belongs: which links are of which of its subjects, as of `belonging`.
    """

    def __init__(self, matrix: PathMatrix, before: "Teller | None" = None) -> None:
        self.matrix = matrix
        links = matrix.routes.links
        known = None if before is None or before.table.links is not links else before
        subjects, belongs = told_subjects(links) if known is None else (known.table.subjects, known.belongs)
        self.belongs: csr_array = belongs
        rows = meeting(matrix, self.belongs)
        met = np.bincount(rows.indices, minlength=len(subjects)) > 0
        first = alike(rows)
        firsts, number = np.unique(first[met], return_inverse=True)
        of_class = np.full(len(subjects), NO_CLASS, np.int32)
        of_class[met] = number
        self.table: Table = Table(links, subjects, of_class)
        self._by_class = csr_array(rows[:, firsts].T)

    def sums(self, probes: Snapshot) -> Sums:
        """The sums over all rows but those whose losses are explained."""
        free = probes.free
        row_sent, row_lost = probes.sent_sums * free, probes.lost_sums * free
        late = np.stack([probes.late_sent * free, np.zeros(len(free), np.float64)])
        late[1, probes.losing] = probes.lost[-LATE_WINDOWS:].sum(axis=0)
        meets = csr_array(self._by_class[:, probes.losing])
        return Sums(
            sent=row_sent @ self._by_class.T,
            lost=row_lost @ self._by_class.T,
            all_sent=row_sent.sum(axis=1),
            all_lost=row_lost.sum(axis=1),
            late=late @ self._by_class.T,
            seen=_seen(meets, probes.lost),
            ranks=np.asarray((meets @ _rank_counts(probes.queued_ns, probes.lost).T).T, np.float64),
        )


def _seen(meets: csr_array, lost: NDArray[np.uint16]) -> NDArray[np.uint64]:
    """In which windows each class lost a probe, of the rows that lost some: `meets` is (classes, those rows)."""
    seen = np.zeros(meets.shape[0], np.uint64)
    for age, window in enumerate(lost[::-1]):
        any_lost = meets @ (window > 0).astype(np.float64) > 0
        seen |= any_lost.astype(np.uint64) << np.uint64(age)
    return seen


def _rank_counts(queued_ns: NDArray[np.float32], lost: NDArray[np.uint16]) -> Floats:
    """Lost probes of each row by rank.

    Args:
        queued_ns: there and back, NaN where nothing was answered, shape (windows, rows).
        lost: of the same windows.

    Returns:
        Shape (bins, rows); probes whose delay is not known are left out, as are those of rows of which too little is.
    """
    counts = np.zeros((RANK_BINS, lost.shape[1]))
    known = np.isfinite(queued_ns)
    enough = known.sum(axis=0) >= LEAST_OTHERS
    window, row = (each[-MOST_RANKED:] for each in np.nonzero((lost > 0) & known & enough))
    here = queued_ns[window, row]
    shorter = ((queued_ns[:, row] < here).sum(axis=0) + 0.5) / known.sum(axis=0)[row]
    rank = np.where(here < QUIET_NS, 0.0, shorter)
    bins = np.minimum(rank * RANK_BINS, RANK_BINS - 1).astype(np.intp)
    np.add.at(counts, (bins, row), lost[window, row])
    return counts


@dataclass(frozen=True, eq=False)
class Joined:
    """The classes of several pods.

    Attributes:
        classes: shape (classes,).
        prior: log prior, shape (classes,).
        place: the class of each pod that is part of each, `NO_CLASS` where that pod's probes do not meet it; shape
            (pods, classes).
    """

    classes: tuple[Class, ...]
    prior: Floats
    place: NDArray[np.intp]

    @property
    def pods(self) -> NDArray[np.intp]:
        """How many pods' probes meet each class's causes, shape (classes,)."""
        return np.asarray(np.count_nonzero(self.place != NO_CLASS, axis=0), np.intp)


class Union:
    """What the links of several tables together belong to, as far as it can be a cause.

    Args:
        tables: whose links.

    Attributes:
        subjects: what can be a cause.
        where: of each table the place of each of its subjects among these, `NO_CLASS` for none; shape (subjects,) each.
    """

    def __init__(self, tables: Sequence[Table]) -> None:
        self._of = tuple(table.links for table in tables)
        every = belonging_of(tuple(dict.fromkeys(link for links in self._of for link in links)))
        self.subjects, _ = every.only(every.is_whole)
        number = {(each.kind, each.name): i for i, each in enumerate(self.subjects)}
        self.where = [
            np.array([number.get((each.kind, each.name), NO_CLASS) for each in table.subjects], np.intp)
            for table in tables
        ]

    def is_of(self, tables: Sequence[Table]) -> bool:
        """Whether these tables have the same links, as objects."""
        return len(tables) == len(self._of) and all(
            table.links is links for table, links in zip(tables, self._of, strict=True)
        )


def joined(tables: Sequence[Table], union: Union | None = None) -> Joined:
    """The classes of what several pods tell of: causes share one that share one in every pod.

    Args:
        tables: of each pod.
        union: of them, or of others with the same links.
    """
    union = Union(tables) if union is None else union
    subjects = union.subjects
    place = np.full((len(tables), len(subjects)), NO_CLASS, np.intp)
    for pod, (table, where) in enumerate(zip(tables, union.where, strict=True)):
        known = where != NO_CLASS
        place[pod, where[known]] = table.class_of[known]
    met = np.flatnonzero((place != NO_CLASS).any(axis=0))
    if not len(met):
        return Joined((), np.zeros(0), place[:, met])
    together, first, of_class = np.unique(place[:, met], axis=1, return_index=True, return_inverse=True)
    groups: list[list[Subject]] = [[] for _ in first]
    for i, which in zip(met.tolist(), of_class.ravel().tolist(), strict=True):
        groups[which].append(subjects[i])
    classes = tuple(map(class_of, groups))
    return Joined(classes, priors(classes), np.asarray(together, np.intp))


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
        self._ranks = np.zeros((RANK_BINS, count))
        for place, part in zip(joined.place, parts, strict=True):
            mine = np.flatnonzero(place != NO_CLASS)
            theirs = place[mine]
            self._sent[:, mine] += part.sent[:, theirs]
            self._lost[:, mine] += part.lost[:, theirs]
            self._late[:, mine] += part.late[:, theirs]
            self._seen[mine] |= part.seen[theirs]
            self._ranks[:, mine] += part.ranks[:, theirs]

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

    def ranks(self, number: int) -> Floats:
        """How long queues were, by rank, when probes that met a class's cause were lost; one for each, in no order."""
        counts = self._ranks[:, number].astype(np.intp)
        return np.asarray(np.repeat((np.arange(RANK_BINS) + 0.5) / RANK_BINS, counts))
