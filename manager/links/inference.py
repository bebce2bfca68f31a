"""The queueing delay of every link, window by window. No I/O.

A path's delay above its least is the sum of its links' queues. Links that the same paths cross cannot be told apart
(in a fabric of two leaves, a spine's two); what is found is put down to the first of them in the direction of travel,
where a queue forms before it can at the next.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from manager.fabric.routes import DirectedLink
from manager.links.matrix import PathMatrix, alike, stages
from manager.links.solver import Solver
from manager.paths.windows import Window

HISTORY = 50
SWEEPS = 25
PENALTY_NS = 500.0
"""Per probed path over a link: less queue than about this is put down to noise."""

TOLERANCE_NS = 100.0
"""A path that is delayed less than this above its least is not delayed."""

SETTLED_NS = 300.0
"""No link's queue is worked out further once a sweep changes none by more: that is some 70 ns from the solution."""

QUIET_NS = 20_000.0
"""Below this no queue is taken for one that could overflow, whatever the rate."""

STANDS_SHARE = 0.4
STANDS_WINDOWS = 5
LEAST_LOOKS = 2

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class LinkQueues:
    """One window's queues.

    Attributes:
        window: its number.
        queue_ns: mean queueing delay, NaN where no probe told of the link; shape (links,).
        floor_ns: the least that any path over the link was delayed above its own least; a link that was idle for a
            moment has hardly any. NaN as above, and where the queue is no longer than `QUIET_NS`.
    """

    window: int
    queue_ns: Floats
    floor_ns: Floats


class QueueInference:
    """Queues of the links of one matrix.

    Args:
        matrix: rows and links.

    Attributes:
        number: the column of each link.
        queue_ns, floor_ns: the last `HISTORY` windows, the oldest first, shape (windows, links), NaN for none.
        windows: their numbers, -1 for none, shape (windows,).
    """

    def __init__(self, matrix: PathMatrix) -> None:
        self.matrix = matrix
        delays = matrix.delays
        first = alike(delays)
        self._upstream = _upstream(first, matrix.place)
        self._chosen = np.flatnonzero(first == np.arange(len(first)))
        told_apart = csr_array(delays[:, self._chosen])
        self._solver = Solver(told_apart, stages(told_apart))
        self._group = np.searchsorted(self._chosen, first)
        self.number = {link: i for i, link in enumerate(matrix.routes.links)}
        self._last = np.zeros(len(self._chosen))
        self._at_once = 1
        self._tells = np.zeros(delays.shape[0], bool)
        links = delays.shape[1]
        self.queue_ns = np.full((HISTORY, links), np.nan)
        self.floor_ns = np.full((HISTORY, links), np.nan)
        self.windows = np.full(HISTORY, -1, np.int64)

    def step(self, *windows: Window) -> LinkQueues:
        """Take in the next windows, all at once: each of them is taken to have had the queues that they had on average."""
        self._at_once = len(windows)
        window = _together(windows)
        excess = np.maximum(window.mean_ns.reshape(-1).astype(np.float64), 0.0)
        answered = np.tile(window.sent - window.lost, 2)
        weight = np.where(np.isfinite(excess), answered, 0.0)
        self._tells = weight > 0
        excess = np.where(self._tells & (excess > TOLERANCE_NS), excess, 0.0)
        self._last = self._solver.solve(
            excess, weight, self._last, penalty=PENALTY_NS, sweeps=SWEEPS, tolerance=SETTLED_NS
        )
        queue = np.where(self._solver.seen[self._group], 0.0, np.nan)
        queue[self._upstream] = np.where(self._solver.seen, self._last, np.nan)
        found = LinkQueues(window.number, queue, self._floor(window))
        self._remember(found, min(len(windows), HISTORY))
        return found

    def prepare(self) -> None:
        """Work out at once what the first queue would take long to work out; any thread may."""
        self._solver.prepare()

    def carry_on(self, before: "QueueInference") -> None:
        """Take over what is remembered of links that were there before."""
        mine, theirs = shared_links(self.matrix.routes.links, before.number)
        self.queue_ns[:, mine] = before.queue_ns[:, theirs]
        self.floor_ns[:, mine] = before.floor_ns[:, theirs]
        self.windows[:] = before.windows

    def stand(self, links: Iterable[DirectedLink]) -> bool:
        """Whether one of some links has not been idle of late."""
        columns = [i for link in links if (i := self.number.get(link)) is not None]
        return bool(self.stands(STANDS_WINDOWS)[columns].any())

    def shows_apart(self, link: DirectedLink, windows: int) -> bool:
        """Whether some path shows a link's queue that has no longer one elsewhere, on average over the last windows.

        Of a long queue probes see different lengths, and what does not fit looks like short ones at other links; of one
        window these may be the longer ones. Nor does a queue show apart where all paths over the link cross another one, whose
        other paths are delayed as much: they all may wait for that one.
        """
        column, queue_ns = self.number[link], _means(self.queue_ns[-max(windows, self._at_once) :])
        for way, tells in zip((self.matrix.fwd, self.matrix.rev), np.split(self._tells, 2), strict=True):
            paths = way[np.flatnonzero(tells)]
            over = paths[paths[:, [column]].nonzero()[0]]
            if (over @ queue_ns <= 2 * queue_ns[column]).any() and not _is_shared(paths, queue_ns, column):
                return True
        return False

    def stands(self, windows: int) -> NDArray[np.bool_]:
        """Links that were never idle in the last windows: as much came as they can carry, or more.

        One look at several windows at once may be wrong about all of them, so that two at least must say so.
        """
        windows = max(windows, LEAST_LOOKS * self._at_once)
        queue, floor = self.queue_ns[-windows:], self.floor_ns[-windows:]
        full = np.isfinite(queue) & (queue > QUIET_NS) & (floor > STANDS_SHARE * queue)
        return np.asarray(full.all(axis=0), bool)

    def busy(self) -> NDArray[np.bool_]:
        """Links that no probe of the last window found idle, however short the queue was for a moment."""
        queue, floor = self.queue_ns[-1], self.floor_ns[-1]
        return np.asarray(np.isfinite(queue) & (queue > QUIET_NS) & (floor > QUIET_NS), bool)

    def _floor(self, window: Window) -> Floats:
        """The least delay above the base of the paths over each link that has a queue to speak of."""
        floor = np.full(self.queue_ns.shape[1], np.nan)
        queued = np.flatnonzero(self._solver.seen & (self._last > QUIET_NS))
        if len(queued):
            least = window.least_ns.reshape(-1).astype(np.float64)
            least = np.where(np.isfinite(least), np.maximum(least, 0.0), np.inf)
            floor[self._upstream[queued]] = self._solver.least(least, queued)
        return np.where(np.isinf(floor), np.nan, floor)

    def _remember(self, found: LinkQueues, windows: int) -> None:
        for history, latest in ((self.queue_ns, found.queue_ns), (self.floor_ns, found.floor_ns)):
            history[:-windows] = history[windows:]
            history[-windows:] = latest
        self.windows = np.roll(self.windows, -windows)
        self.windows[-windows:] = np.arange(found.window - windows + 1, found.window + 1)


def _is_shared(paths: csr_array, queue_ns: Floats, column: int) -> bool:
    """Whether all other paths over some link that all paths over this one cross are delayed hardly less than these.

    By half of the queue at least some should be: else they all may wait in the queue of the link that they share.

    Args:
        paths: those that tell, shape (paths, links).
        queue_ns: of each link.
        column: this link's.
    """
    is_over = np.zeros(paths.shape[0], bool)
    is_over[paths[:, [column]].nonzero()[0]] = True
    met = np.asarray(paths[is_over].sum(axis=0)).ravel()
    delay_ns = paths @ queue_ns
    less_ns = delay_ns[is_over].mean() - queue_ns[column] / 2
    for other in np.flatnonzero(met == is_over.sum()).tolist():
        rows = paths[:, [other]].nonzero()[0]
        beside_ns = delay_ns[rows[~is_over[rows]]]
        if len(beside_ns) and (beside_ns > less_ns).all():
            return True
    return False


def _means(queue_ns: Floats) -> Floats:
    """Of the windows that tell of a link, 0 where none does; shape (windows, links) before, (links,) then."""
    known = np.isfinite(queue_ns)
    return np.asarray(np.where(known, queue_ns, 0.0).sum(axis=0) / np.maximum(1, known.sum(axis=0)))


def _together(windows: Sequence[Window]) -> Window:
    """Several windows as one, the last: all probes, their mean delays, the least of the least."""
    last = windows[-1]
    if len(windows) == 1:
        return last
    answered, delays_ns = np.zeros_like(last.mean_ns), np.zeros_like(last.mean_ns)
    least_ns = last.least_ns
    for window in windows:
        known = np.isfinite(window.mean_ns)
        count = (window.sent - window.lost).astype(np.float32)
        answered += known * count
        delays_ns += np.where(known, count * window.mean_ns, np.float32(0))
        least_ns = np.fmin(least_ns, window.least_ns)
    with np.errstate(invalid="ignore"):
        mean_ns = delays_ns / answered
    sent, lost = (np.add.reduce([getattr(window, of) for window in windows]) for of in ("sent", "lost"))
    return Window(last.number, sent, lost, mean_ns, least_ns)


def shared_links(
    links: Sequence[DirectedLink], before: Mapping[DirectedLink, int]
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """The columns of links that had one before, now and then."""
    kept = [(i, before[link]) for i, link in enumerate(links) if link in before]
    mine, theirs = np.array(kept, np.intp).reshape(-1, 2).T
    return mine, theirs


def _upstream(first: NDArray[np.intp], place: NDArray[np.int64]) -> NDArray[np.intp]:
    """The most upstream link of each group of links that are alike, in the order of the groups' numbers."""
    order = np.lexsort((place, first))
    new = np.ones(len(order), bool)
    new[1:] = first[order][1:] != first[order][:-1]
    return np.asarray(order[new], np.intp)
