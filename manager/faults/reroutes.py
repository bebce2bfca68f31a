"""Finds links that the switches themselves route round: no probe is lost over them, as none takes them any more. No I/O.

A link that was cut with its carrier shows like this: paths that led over it lead over others at once, and none leads
over it. A path that is no longer probed says nothing.
"""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from manager.fabric.routes import DirectedLink, is_between_switches
from manager.faults.finding import Subject, cable
from manager.links.matrix import PathMatrix

LEAST_ROWS = 3
LEFT_S = 10.0
"""In which so many paths leave a link that is routed round: paths are traced anew about so often."""

SETTLE_S = 1.0
"""Paths are traced one after the other; for so long it is seen whether a whole switch is gone."""


class Reroutes:
    """Follows which links lost their paths to others.

    Attributes:
        gone: links that are routed round, since when; by the name of their subject.
    """

    def __init__(self) -> None:
        self.gone: dict[DirectedLink, float] = {}
        self._left_s: dict[DirectedLink, list[float]] = {}
        self._links: tuple[DirectedLink, ...] = ()

    def step(self, before: PathMatrix, now: PathMatrix, now_s: float) -> None:
        """Take in a change of routes."""
        self._links = now.routes.links
        for old, new in ((before.fwd, now.fwd), (before.rev, now.rev)):
            for i in left_links(old, new)[1].tolist():
                self._left_s.setdefault(before.routes.links[i], []).append(now_s)
        crossed = np.diff((now.fwd + now.rev).tocsc().indptr) > 0
        used = {link for link, is_used in zip(self._links, crossed.tolist(), strict=True) if is_used}
        for link in used & self.gone.keys():
            del self.gone[link]
            self._left_s.pop(link, None)
        for link, left_s in list(self._left_s.items()):
            left_s[:] = [each_s for each_s in left_s if now_s - each_s <= LEFT_S]
            if not left_s:
                del self._left_s[link]
            if (
                is_between_switches(link)  # paths leave a place without a name when it gets one
                and len(left_s) >= LEAST_ROWS
                and not {link, DirectedLink(link.b, link.a)} & used
            ):
                self.gone.setdefault(link, now_s)

    def subjects(self, now_s: float) -> list[Subject]:
        """What is routed round, once that has settled: links, or a switch all of whose links are."""
        if any(now_s - since_s < SETTLE_S for since_s in self.gone.values()):
            return []
        cables = {cable(link).name: cable(link) for link in self.gone}
        dead = []
        for switch in sorted({node for subject in cables.values() for node in subject.links[0]}):
            mine = _cables_of(switch, self._links)
            if len(mine) > 1 and mine.keys() <= cables.keys():
                dead.append(
                    Subject("switch", switch, tuple(link for each in mine.values() for link in each.links))
                )
        covered = {link for subject in dead for link in subject.links}
        return dead + [subject for subject in cables.values() if not set(subject.links) <= covered]

    def is_back(self, subject: Subject) -> bool:
        """Whether some path leads over a subject's links again."""
        return not any(link in self.gone for link in subject.links)


def _cables_of(switch: str, links: Iterable[DirectedLink]) -> dict[str, Subject]:
    return {cable(link).name: cable(link) for link in links if switch in link}


def left_links(old: csr_array, new: csr_array) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Rows, and the links that they crossed and cross no more, though their way is known still."""
    rows = min(old.shape[0], new.shape[0])
    old, new = old[:rows], csr_array(new[:rows])
    still = np.diff(new.indptr) > 0
    wide = csr_array((new.data, new.indices, new.indptr), shape=(rows, max(old.shape[1], new.shape[1])))
    gone = csr_array((old.data, old.indices, old.indptr), shape=wide.shape) - wide
    gone = csr_array(gone.multiply(still[:, None])).tocoo()
    row, link = gone.coords
    return np.asarray(row[gone.data > 0], np.intp), np.asarray(link[gone.data > 0], np.intp)
