"""Making a placement better by moves: few, and only such as empty the fullest link.

A single move comes first. Where none helps, chains are tried that alternate between two candidates, as in Kőnig's
proof that a bipartite graph can be edge-coloured with as many colours as its largest degree: a queue pair takes the
place of another, which takes that of a third on the first one's spine, until somebody fits.
"""

import numpy as np

from manager.placement.model import Demand, Fabric, Floats, Indices, Mask, utilisation

LEAST_GAIN = 1e-3

CHAIN_LENGTH = 512
CHAIN_CANDIDATES = 8
STUCK_LINKS = 32
"""After so many links that nothing could be done about, it is left at that."""

WORTH = 0.5
"""Of what begins a chain, the share that has to be gone in the end from where it was."""

SIMILAR = 0.02
"""Moves whose outcomes differ by less than this share are as good as each other."""


def improve(
    fabric: Fabric,
    demand: Demand,
    choice: Indices,
    *,
    target: float = 0.0,
    movable: Mask | None = None,
    reluctance: Floats | None = None,
    most_moves: int | None = None,
    least_gain: float = LEAST_GAIN,
) -> Indices:
    """Move queue pairs off the fullest links until all are as empty as `target`, or nothing helps any more.

    Args:
        fabric: links and paths.
        demand: the queue pairs.
        choice: where they are now, shape (n,), all placed.
        target: a utilisation that is good enough; every move is one that a running job feels.
        movable: which may be moved, shape (n,); all where it is not given.
        reluctance: of moves that help alike, one of the least is taken, shape (n,).
        most_moves: so many queue pairs at most end up elsewhere.
        least_gain: a move must leave what it fills emptier than the fullest link was, by this share at least.

    Returns:
        The new choice, shape (n,).
    """
    board = _Board(fabric, demand, choice, movable=movable, reluctance=reluctance, kept=1 - least_gain)
    left = len(choice) if most_moves is None else most_moves
    stuck: list[int] = []
    while left > 0 and len(stuck) <= STUCK_LINKS:
        hot, top = board.fullest(stuck)
        if top <= target * (1 + LEAST_GAIN) or top <= 0:
            break
        moved = board.move_one(hot, top) or board.move_chain(hot, top, left)
        left -= moved
        if not moved:
            stuck.append(hot)
    return board.choice


class _Board:
    """A placement in the middle of being improved."""

    def __init__(
        self,
        fabric: Fabric,
        demand: Demand,
        choice: Indices,
        *,
        movable: Mask | None,
        reluctance: Floats | None,
        kept: float,
    ) -> None:
        self._links, self._repeats = fabric.paths.links, fabric.paths.repeats
        self._none = fabric.paths.link_count
        self._pair, self._rate = demand.pair, demand.rate_bps
        self._cost = fabric.seconds_per_bit
        self._movable, self._reluctance = movable, reluctance
        self._kept = kept
        self.choice = choice.copy()
        self._share = utilisation(fabric, demand, choice)
        self._first = [_Index(links, self._none + 1) for links in fabric.paths.taken(demand.pair, choice)]
        self._known: dict[int, set[int]] = {}

    def fullest(self, but: list[int]) -> tuple[int, float]:
        """The fullest link but for some, and its utilisation."""
        kept = self._share[but]
        self._share[but] = -1.0
        hot = int(self._share.argmax())
        top = float(self._share[hot])
        self._share[but] = kept
        return hot, top

    def move_one(self, hot: int, top: float) -> int:
        """The one move off a link that leaves the least behind, if there is one; how many were made."""
        on = np.array(sorted(self._on(hot)), dtype=np.intp)
        if not len(on):
            return 0
        worst = self._worst_if_moved(on)
        to = worst.argmin(axis=1)
        left = worst[np.arange(len(on)), to]
        best = float(left.min())
        if best >= top * self._kept:
            return 0
        alike = np.flatnonzero(left <= min(best * (1 + SIMILAR), top * self._kept))
        if self._reluctance is not None:
            who = alike[np.lexsort((left[alike], self._reluctance[on[alike]]))[0]]
        else:
            who = alike[left[alike].argmin()]
        self._move(int(on[who]), int(to[who]))
        return 1

    def move_chain(self, hot: int, top: float, most: int) -> int:
        """Moves that alternate between two candidates until nobody is worse off than the limit; how many."""
        for q in sorted(self._on(hot), key=lambda q: float(self._rate[q])):
            here = int(self.choice[q])
            room = self._share[self._links[:, self._pair[q]]].min(axis=0)
            for there in np.argsort(room, kind="stable")[:CHAIN_CANDIDATES].tolist():
                if there != here and not self._repeats[self._pair[q], there]:
                    moved = self._try_chain(q, there, top * self._kept, most)
                    if moved:
                        return moved
        return 0

    def _try_chain(self, q: int, to: int, limit: float, most: int) -> int:
        here, there = int(self.choice[q]), to
        done: dict[int, int] = {}
        before: dict[int, float] = {}
        mover: int | None = q
        turn: int | None = to
        while mover is not None and turn is not None and len(done) < min(CHAIN_LENGTH, most):
            to = turn
            done[mover] = int(self.choice[mover])
            for link in (*self._of(mover, done[mover]), *self._of(mover, to)):
                before.setdefault(link, float(self._share[link]))
            self._move(mover, to)
            full = [link for link in self._of(mover, to) if self._share[link] > max(limit, before[link])]
            if not full:
                if self._is_better(before, limit, WORTH * float(self._rate[q])):
                    return len(done)
                break
            mover = self._ejected(full[0], limit, done) if len(full) == 1 else None
            turn = None if mover is None else self._away(mover, full[0], here if to == there else there)
        for who, back in done.items():
            self._move(who, back)
        return 0

    def _is_better(self, before: dict[int, float], limit: float, worth_bps: float) -> bool:
        """Whether a chain has taken as much off some link that was too full, and filled none that far."""
        links = np.fromiter(before, np.intp, len(before))
        was = np.fromiter(before.values(), np.float64, len(before))
        now = self._share[links]
        grown = (now > limit) & (now > was * (1 + LEAST_GAIN / 2))
        emptied = (was > limit) & ((now <= limit) | (was - now >= worth_bps * self._cost[links]))
        return bool(emptied.any() and not grown.any())

    def _ejected(self, full: int, limit: float, moved: dict[int, int]) -> int | None:
        """Who leaves a link that has become too full: the smallest whose leaving is enough, or else the largest."""
        staying = [q for q in self._on(full) if q not in moved]
        excess = (float(self._share[full]) - limit) / float(self._cost[full])
        enough = [q for q in staying if self._rate[q] >= excess]
        if enough:
            return min(enough, key=lambda q: (float(self._rate[q]), q))
        return max(staying, key=lambda q: (float(self._rate[q]), q), default=None)

    def _away(self, q: int, full: int, usual: int) -> int | None:
        """Where one who leaves a link goes: to the usual candidate, or, where that is none of its pair, the emptiest."""
        links = self._links[:, self._pair[q]]
        free = ~((links == full).any(axis=0) | self._repeats[self._pair[q]])
        if free[usual]:
            return usual
        return int(np.where(free, self._share[links].max(axis=0), np.inf).argmin()) if free.any() else None

    def _worst_if_moved(self, on: Indices) -> Floats:
        """The fullest link of each candidate, were the queue pair on it, shape (len(on), candidates)."""
        worst = np.zeros((len(on), self._links.shape[2]))
        rates = self._rate[on][:, None]
        rows = np.arange(len(on))
        for links in self._links:
            mine = links[self._pair[on]]
            own = mine[rows, self.choice[on]][:, None]
            added = np.where(mine == own, 0.0, rates * self._cost[mine])
            np.maximum(worst, self._share[mine] + added, out=worst)
        return worst

    def _of(self, q: int, k: int) -> list[int]:
        """The links of a queue pair's candidate."""
        return [link for link in self._links[:, self._pair[q], k].tolist() if link != self._none]

    def _move(self, q: int, k: int) -> None:
        rate = float(self._rate[q])
        for link in self._of(q, int(self.choice[q])):
            self._share[link] -= rate * self._cost[link]
            self._on(link).discard(q)
        for link in self._of(q, k):
            self._share[link] += rate * self._cost[link]
            self._on(link).add(q)
        self.choice[q] = k

    def _on(self, link: int) -> set[int]:
        """Who crosses a link now and may be moved."""
        known = self._known.get(link)
        if known is None:
            known = {q for index in self._first for q in index.of(link)}
            if self._movable is not None:
                known = {q for q in known if self._movable[q]}
            self._known[link] = known
        return known


class _Index:
    """Which queue pairs crossed each link at one hop, at the start."""

    def __init__(self, links: Indices, link_count: int) -> None:
        narrow = links.astype(np.uint16) if link_count <= 2**16 else links
        self._order = np.argsort(narrow, kind="stable")
        self._starts = np.concatenate([[0], np.cumsum(np.bincount(links, minlength=link_count))])

    def of(self, link: int) -> list[int]:
        """The queue pairs of one link."""
        found: list[int] = self._order[self._starts[link] : self._starts[link + 1]].tolist()
        return found
