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

from manager.fabric.routes import DirectedLink, is_nic
from manager.faults.dead_links import hiding
from manager.faults.finding import Subject, cable, direction
from manager.links.matrix import PathMatrix, alike

RANKS = {"link": 0, "direction": 1, "host": 2, "switch": 3}
"""Which of the causes in a class is named: the simplest."""

PRIOR = {"link": 0.0, "direction": 0.0, "host": -2.0, "switch": -2.0}
"""Log of how likely a cause is beforehand, relative to a link."""


_NONE = -1

Mask = NDArray[np.bool_]


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


@dataclass(frozen=True)
class Belonging:
    """Subjects, and which links are of which.

    Attributes:
        subjects: links both ways, then each way, then hosts and switches; each in the order in which the links come.
        of_link: not 0 where a link is of a subject, shape (links, subjects).
        is_whole: those that can be causes by what is known: links with both directions, hosts with more than one NIC, all
            others; shape (subjects,).
        is_nics_way: one direction of a NIC's link, which every round trip crosses both ways; shape (subjects,).
    """

    subjects: tuple[Subject, ...]
    of_link: csr_array
    is_whole: Mask
    is_nics_way: Mask

    def only(self, chosen: Mask) -> tuple[tuple[Subject, ...], csr_array]:
        """Some subjects, and which links are of which of them, as in `of_link`."""
        places = np.flatnonzero(chosen)
        return tuple(self.subjects[i] for i in places.tolist()), csr_array(self.of_link[:, places])


@lru_cache(maxsize=2)
def belonging_of(links: tuple[DirectedLink, ...]) -> Belonging:
    """All that different links belong to; paths change more often than links, and there are many."""
    back, every = _back(links), np.arange(len(links))
    first = every[(back == _NONE) | (every <= back)]
    both = np.flatnonzero(back[first] > first)
    at_places = _places(links)
    ways, places = len(first), len(first) + len(links)
    subjects = (
        *(cable(links[i]) for i in first.tolist()),
        *map(direction, links),
        *(_place(place, links, at) for place, at in at_places.items()),
    )
    sizes = [len(at) for at in at_places.values()]
    link = np.concatenate([first, back[first[both]], every, *(np.array(at) for at in at_places.values())])
    subject = np.concatenate(
        [np.arange(ways), both, ways + every, places + np.repeat(np.arange(len(sizes)), sizes)]
    )
    shape = len(links), len(subjects)
    is_whole, is_nics_way = np.ones(len(subjects), bool), np.zeros(len(subjects), bool)
    is_whole[:ways] = back[first] != _NONE
    is_whole[places:] = [_is_whole(each) for each in subjects[places:]]
    is_nics_way[ways:places] = [is_nic(a) or is_nic(b) for a, b in links]
    return Belonging(subjects, csr_array((np.ones(len(link)), (link, subject)), shape), is_whole, is_nics_way)


def _back(links: Sequence[DirectedLink]) -> NDArray[np.intp]:
    """The number of each link's opposite direction, shape (links,)."""
    number = {link: i for i, link in enumerate(links)}
    return np.array([number.get(DirectedLink(b, a), _NONE) for a, b in links], np.intp)


def _places(links: Sequence[DirectedLink]) -> dict[tuple[str, bool], list[int]]:
    """The numbers of the links at each host and switch, by its name and whether it is a host."""
    found: dict[tuple[str, bool], list[int]] = {}
    known: dict[str, list[int]] = {}
    for i, link in enumerate(links):
        for node in link:
            mine = known.get(node)
            if mine is None:
                is_host = is_nic(node)
                mine = known[node] = found.setdefault(
                    (node.partition("/")[0] if is_host else node, is_host), []
                )
            mine.append(i)
    return found


def _place(place: tuple[str, bool], links: Sequence[DirectedLink], at: Sequence[int]) -> Subject:
    name, is_host = place
    return Subject("host" if is_host else "switch", name, tuple(links[i] for i in at))


def _is_whole(place: Subject) -> bool:
    if place.kind != "host":
        return True
    return len({node for link in place.links for node in link if is_nic(node)}) > 1
