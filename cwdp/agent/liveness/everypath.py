"""The pulses of a host with few watched paths: each by itself.

Primary paths have one each turn, those that only back others up one turn in nine, as long as all is well. As soon as
something is not, all of them have every one. That lasts for a while only: where answers stay late because hosts are
overloaded, more pulses would make it worse.
"""

import numpy as np
from numpy.typing import NDArray

from cwdp.agent.liveness.plan import BACKUP_EVERY, DENSE_BELOW, Columns, Mask, Rows, TokenBucket, Watched
from cwdp.dataplane.abi import PathState

BURST_TURNS, CALM_TURNS = 256, 8
"""Turns with more pulses than usual, of which one is given back for so many turns that needed none."""

URGENT_FROM = 2

Column = NDArray[np.uint64]
_UP, _DOWN = int(PathState.UP), int(PathState.DOWN)


class EveryPath:
    """See `cwdp.agent.liveness.plan.Plan`.

    Args:
        watched: the paths.
        columns: what the dataplane knows of them.
        bucket: of BURST_TURNS * CALM_TURNS; outlives the plan.
    """

    def __init__(self, watched: Watched, columns: Columns, bucket: TokenBucket) -> None:
        self._columns, self._bucket = columns, bucket
        self._everything = np.arange(len(watched))
        self._is_primary, self._primary = watched.is_primary, np.flatnonzero(watched.is_primary)
        self._turn = 0

    def turn(self, _now_ns: int) -> tuple[Rows, bool]:
        """See `cwdp.agent.liveness.plan.Plan`; the second is True while something is not well."""
        self._turn += 1
        state, unanswered = self._read()
        takes_burst = self._takes_burst(state, unanswered)
        rows = self._everything if takes_burst or self._turn % BACKUP_EVERY == 0 else self._primary
        return rows, self._bucket.left >= CALM_TURNS and _any(_unanswered(state, unanswered, 1))

    def between(self, _now_ns: int) -> Rows:
        """Those that may be found dead within the next few pulses."""
        return np.flatnonzero(_unanswered(*self._read(), URGENT_FROM))

    def _read(self) -> tuple[Column, Column]:
        """The state of each path, and how many of its pulses are unanswered."""
        return self._columns.read("state"), self._columns.read("unanswered")

    def _takes_burst(self, state: Column, unanswered: Column) -> bool:
        """Whether this turn has more pulses than usual."""
        is_down = self._is_primary & (state == _DOWN)
        if not (_any(is_down) or _any(_unanswered(state, unanswered, URGENT_FROM))):
            self._bucket.fill(1)
        elif self._bucket.left >= CALM_TURNS:
            self._bucket.left -= CALM_TURNS
            return True
        return False


def _unanswered(state: Column, unanswered: Column, least: int) -> Mask:
    """The paths with so many unanswered pulses that have not been given up, and may be yet."""
    found: Mask = (unanswered >= least) & (unanswered < DENSE_BELOW) & (state == _UP)
    return found


def _any(mask: Mask) -> bool:
    """As `mask.any()`, in less time where there are few."""
    return bool(np.count_nonzero(mask))
