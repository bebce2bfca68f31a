"""What some links belong to: every link, one way or both, every switch and every host. Pure, over arrays."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from manager.fabric.routes import DirectedLink, is_nic
from manager.faults.finding import Subject, cable, direction

_NONE = -1

Mask = NDArray[np.bool_]


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
