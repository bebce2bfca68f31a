"""The pulses of a host with more watched paths than each can have one often.

In turn, as often as the rate allows for, are asked: paths whose queue pairs send and hear nothing back; then few paths
that together cross every link of the fabric that the paths in use cross, but for those over which queue pairs are
answered; with the rest, all others.

A path whose pulse stays unanswered is asked in every half turn, and once those that share a link with it which no later
answer has come over; then its backups. The dataplane judges each path by its own pulses only, so
nothing is given up for another's silence. All of that takes from a token bucket.
"""

import numpy as np
from numpy.typing import NDArray

from cwdp.agent.liveness.cover import NO_LINK, Crossings, cover
from cwdp.agent.liveness.plan import (
    BURST_PER_S,
    DENSE_BELOW,
    NS_PER_S,
    REGULAR_PER_S,
    Columns,
    Mask,
    Rows,
    TokenBucket,
    Watched,
)
from cwdp.dataplane.abi import PathState

COVER_AGAIN_NS = 500_000_000
"""Between two times that the cover is chosen anew, as it takes some milliseconds."""

ACTIVE_NS = 100_000_000
"""After a request a path is one that queue pairs send over; they stop soon when they hear nothing back."""

_SILENT_SHARE, _COVER_SHARE = 1 / 2, 9 / 10
_KEPT_FOR_ACTIVE = 1 / 2
_TOGETHER_NS = np.uint64(200_000)
_NOTICE_TURNS = 0.4
_SLOW_MARGIN = 1.25
_NOTICE_DEAD = 1 / 4
_LOST_BOTH_DEAD = 5
_NOBODY: Rows = np.zeros(0, dtype=np.intp)


class CoveredPaths:
    """See `cwdp.agent.liveness.plan.Plan`.

    Args:
        watched: the paths.
        columns: what the dataplane knows of them.
        bucket: of BURST_PULSES; outlives the plan.
        turn_ns: the time between two turns.
        dead_after_ns: after which silence a path is given up.
    """

    def __init__(
        self, watched: Watched, columns: Columns, bucket: TokenBucket, turn_ns: int, dead_after_ns: int
    ) -> None:
        self._watched, self._columns, self._bucket = watched, columns, bucket
        self._turn_ns, self._dead_after_ns = turn_ns, max(dead_after_ns, turn_ns)
        self._crossings = Crossings(watched.links)
        self._asked_ns = np.zeros(len(watched), dtype=np.int64)
        self._open_ns = np.zeros(len(watched), dtype=np.int64)
        self._active_until_ns = np.zeros(len(watched), dtype=np.int64)
        self._is_closer = np.zeros(len(watched), dtype=bool)
        self._in_use = self._alive = np.zeros(len(watched), dtype=bool)
        self._cover, self._covered_ns = _NOBODY, -COVER_AGAIN_NS
        self._last_ns: int | None = None
        self._credit = 0.0

    def turn(self, now_ns: int) -> tuple[Rows, bool]:
        """See `cwdp.agent.liveness.plan.Plan`."""
        is_down = self._columns.read("state") == PathState.DOWN
        urgent, others = self._urgent(now_ns, is_down)
        self._take_up(is_down, now_ns, is_calm=not len(urgent) + len(others))
        return self._ask(self._regular(now_ns), urgent, others, now_ns), True

    def between(self, now_ns: int) -> Rows:
        """See `cwdp.agent.liveness.plan.Plan`."""
        urgent, others = self._urgent(now_ns, self._columns.read("state") == PathState.DOWN)
        return self._ask(self._regular(now_ns), urgent, others, now_ns)

    def _ask(self, rows: Rows, urgent: Rows, others: Rows, now_ns: int) -> Rows:
        """These, and of the urgent ones and of others what the token bucket allows for."""
        more = np.concatenate(
            [
                self._bucket.take(urgent[~np.isin(urgent, rows)]),
                self._bucket.take(others[~np.isin(others, rows)], _KEPT_FOR_ACTIVE),
            ]
        )
        opened = self._open_ns == 0
        self._is_closer[rows[opened[rows]]] = False
        self._is_closer[more[opened[more]]] = True
        rows = np.concatenate([rows, more])
        self._asked_ns[rows] = now_ns
        self._open_ns[rows[opened[rows]]] = now_ns
        return rows

    def _take_up(self, is_down: Mask, now_ns: int, *, is_calm: bool) -> None:
        """See which paths are in use: the primary ones, and their backups while those are down."""
        watched = self._watched
        in_use = watched.is_primary | self._backups(is_down)
        silent = self._columns.read("unanswered") >= DENSE_BELOW
        alive = in_use & ~is_down & ~silent
        self._in_use = in_use
        if is_calm and now_ns - self._covered_ns > COVER_AGAIN_NS and not np.array_equal(alive, self._alive):
            self._alive, self._covered_ns = alive, now_ns
            self._cover = cover(watched.links, np.flatnonzero(alive))

    def _regular(self, now_ns: int) -> Rows:
        """As many as the rate allows for since the last call."""
        passed_ns = self._turn_ns if self._last_ns is None else min(now_ns - self._last_ns, 2 * self._turn_ns)
        self._last_ns = now_ns
        self._bucket.fill(BURST_PER_S * passed_ns / NS_PER_S)
        self._credit += REGULAR_PER_S * passed_ns / NS_PER_S
        count = int(self._credit)
        self._credit -= count
        sent, answered = self._columns.heard()
        self._active_until_ns[sent] = now_ns + ACTIVE_NS
        chosen = np.zeros(len(self._watched), dtype=bool)
        for among, most in (
            (self._in_use & sent & ~answered, int(count * _SILENT_SHARE)),
            (self._unheard_cover(answered), int(count * _COVER_SHARE)),
            (np.ones_like(chosen), count),
        ):
            chosen[self._oldest(among & ~chosen, most - int(chosen.sum()))] = True
        return np.flatnonzero(chosen)

    def _unheard_cover(self, answered: Mask) -> Mask:
        """Those of the cover that cross a link over which nothing else was answered since the last turn."""
        is_heard = self._crossings.over(answered)
        is_heard[NO_LINK] = True
        unheard = np.zeros(len(self._watched), dtype=bool)
        unheard[self._cover] = ~is_heard[self._watched.links[self._cover]].all(axis=1)
        return unheard

    def _oldest(self, among: Mask, count: int) -> Rows:
        """Those that were asked longest ago, at most so many."""
        rows = np.flatnonzero(among)
        if count >= len(rows):
            return rows
        return rows[np.argpartition(self._asked_ns[rows], max(count, 0))[: max(count, 0)]]

    def _urgent(self, now_ns: int, is_down: Mask) -> tuple[Rows, Rows]:
        """The paths to ask more often now: those that matter to queue pairs that send, and others.

        Whoever has missed more than one pulse has its backup asked too, and again if that was lost: only a backup that has
        answered within the silence is taken.
        """
        unanswered = self._columns.read("unanswered")
        is_open = unanswered > 0
        self._open_ns[~is_open] = 0
        self._open_ns[is_open & (self._open_ns == 0)] = now_ns
        age_ns = np.where(is_open, now_ns - self._open_ns, 0)
        late = age_ns > _NOTICE_TURNS * self._turn_ns
        if not late.any():
            return _NOBODY, _NOBODY
        slow_ns = _SLOW_MARGIN * self._columns.read("slow_ns")
        late &= age_ns > np.minimum(slow_ns, _NOTICE_DEAD * self._dead_after_ns)
        askable = ~is_down & (unanswered < DENSE_BELOW)
        suspects = late & askable
        doubted = self._doubted(suspects & ~self._is_closer)
        sharers = self._in_use & ~is_open & askable & self._crossings.of_any(doubted)
        of_detours = self._watched.is_detour_only & self._has_any_lost_both(is_down, age_ns)
        rested = askable & (now_ns - self._asked_ns > _NOTICE_DEAD * self._dead_after_ns)
        active = late & ~is_down & (self._active_until_ns > now_ns)
        backups, of_active = (self._backups(of & (unanswered > 1)) & rested for of in (suspects, active))
        first = (active & askable) | of_active
        others = suspects | backups | sharers | (of_detours & rested)
        return np.flatnonzero(first), np.flatnonzero(others & ~first)

    def _doubted(self, suspects: Mask) -> Mask:
        """The links of suspects over which nobody has had a later answer; shape (links + 1,)."""
        links = self._watched.links[suspects]
        since_ns = self._columns.read("waiting_since_ns")[suspects]
        latest_ns = self._crossings.latest(self._columns.read("answered_sent_ns")) + _TOGETHER_NS
        doubted = np.zeros(len(latest_ns), dtype=bool)
        doubted[links[latest_ns[links] < since_ns[:, None]]] = True
        doubted[NO_LINK] = False
        return doubted

    def _has_any_lost_both(self, is_down: Mask, age_ns: NDArray[np.int64]) -> bool:
        """Whether some path and its backup have of late both been lost, so that detours matter."""
        lost = is_down | (age_ns > self._dead_after_ns)
        recently = (age_ns > 0) & (age_ns < _LOST_BOTH_DEAD * self._dead_after_ns)
        path, backup = self._watched.pairs.T
        return bool((lost[path] & recently[path] & lost[backup]).any())

    def _backups(self, of: Mask) -> Mask:
        """The backups of some paths."""
        path, backup = self._watched.pairs.T
        found = np.zeros(len(of), dtype=bool)
        found[backup[of[path]]] = True
        return found
