"""Few paths that together cross every link that many cross: who pulses those hears of every link.

Links are the fabric's own, those between switches and those of this host's NICs. A destination's own link is not among
them: only paths to it cross it, and another path to it does not help.
"""

import numpy as np
from numpy.typing import NDArray

NO_LINK = -1


def cover(links: NDArray[np.intp], wanted: NDArray[np.intp]) -> NDArray[np.intp]:
    """Rows that cross every link that the wanted ones cross; greedily, so at most ln(links) times as many as needed.

    Chvatal, "A Greedy Heuristic for the Set-Covering Problem" (Mathematics of Operations Research, 1979).

    Args:
        links: of each path, numbers from 0, NO_LINK behind the last; shape (paths, longest).
        wanted: rows to choose from, shape (wanted,).

    Returns:
        The chosen rows, those first that cross most that no other before them does; shape (chosen,).
    """
    crossed = links[wanted]
    is_open = np.zeros(int(links.max(initial=0)) + 2, dtype=bool)
    is_open[crossed] = True
    is_open[NO_LINK] = False
    chosen: list[int] = []
    while True:
        gain = is_open[crossed].sum(axis=1)
        best = int(gain.argmax()) if len(gain) else 0
        if not len(gain) or not gain[best]:
            return wanted[np.array(chosen, dtype=np.intp)]
        chosen.append(best)
        is_open[crossed[best]] = False


class Crossings:
    """Which paths cross each link.

    Args:
        links: as of `cover`.
    """

    def __init__(self, links: NDArray[np.intp]) -> None:
        path, place = np.nonzero(links != NO_LINK)
        of = links[path, place]
        order = np.argsort(of, kind="stable")
        self._links = links
        self._path = path[order]
        self._crossed, self._starts = np.unique(of[order], return_index=True)
        self._size = int(links.max(initial=0)) + 2

    def latest(self, values: NDArray[np.uint64]) -> NDArray[np.uint64]:
        """The greatest value of the paths that cross each link; shape (links + 1,), 0 for NO_LINK."""
        found = np.zeros(self._size, dtype=values.dtype)
        if len(self._crossed):
            found[self._crossed] = np.maximum.reduceat(values[self._path], self._starts)
        return found

    def of_any(self, links: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Whether each path crosses any of some links; shape (paths,).

        Args:
            links: which, shape (links + 1,).
        """
        crossing: NDArray[np.bool_] = np.logical_or.reduce(links[self._links], axis=1)
        return crossing

    def over(self, paths: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Whether each link is crossed by some of these paths; shape (links + 1,), False for NO_LINK."""
        crossed = np.zeros(self._size, dtype=bool)
        crossed[self._links[paths]] = True
        crossed[NO_LINK] = False
        return crossed
