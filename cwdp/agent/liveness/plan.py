"""Which of a host's watched paths have a pulse now: every one where they are few (`everypath`), else a cover (`coveredpaths`)."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

REGULAR_PER_S, BURST_PER_S, BURST_PULSES = 16_000, 1_000, 3_000
"""Pulses of a host in any second: in turn, in bursts, and how many of these may be saved up."""

BACKUP_EVERY = 9
"""Turns to a pulse of a path that is only a backup, while all is well."""

DENSE_BELOW = 16
"""Unanswered pulses, from which on a path is not asked more often than others."""

NS_PER_S = 1_000_000_000

Rows = NDArray[np.intp]
Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Watched:
    """The watched paths of a host; every array but the pairs has one row a path.

    Attributes:
        pairs: rows of paths and of the backups that queue pairs have for them; shape (pairs, 2).
        is_primary: whether queue pairs take it as long as it is alive.
        is_detour_only: whether it is only part of detours.
        links: numbers of the links that it crosses, without its destination's own; see `cwdp.agent.liveness.cover`.
    """

    pairs: NDArray[np.intp]
    is_primary: Mask
    is_detour_only: Mask
    links: NDArray[np.intp]

    def __len__(self) -> int:
        return len(self.is_primary)

    def fits(self, turn_ns: int) -> bool:
        """Whether every primary path can have a pulse each turn, and every other one now and then."""
        primary = int(self.is_primary.sum())
        return primary + (len(self) - primary) / BACKUP_EVERY <= REGULAR_PER_S * turn_ns / NS_PER_S


class Columns(Protocol):
    """What the dataplane knows of those paths now."""

    def read(self, name: str) -> NDArray[np.uint64]:
        """A field of `abi.PATH`, shape (paths,)."""

    def heard(self) -> tuple[Mask, Mask]:
        """Of late: over which paths something was sent that asks for answers, and which of those were answered."""


class Plan(Protocol):
    """Who has a pulse when; times are of any clock that goes on."""

    def turn(self, now_ns: int) -> tuple[Rows, bool]:
        """The paths that have a pulse at a turn, and whether `between` is to be asked before the next one."""

    def between(self, now_ns: int) -> Rows:
        """The paths that have one in the middle between two turns."""


class TokenBucket:
    """What may be spent beyond the usual: a bucket that fills up again.

    Args:
        most: what it holds, and holds at first.
    """

    def __init__(self, most: float) -> None:
        self._most = self.left = most

    def fill(self, by: float) -> None:
        """So much more may be spent."""
        self.left = min(self._most, self.left + by)

    def take(self, rows: Rows, kept: float = 0.0) -> Rows:
        """Those of some rows, the first ones, that one each may be spent on, if such a share of all is to be kept."""
        allowed = rows[: max(0, int(self.left - kept * self._most))]
        self.left -= len(allowed)
        return allowed


def parted(rows: Rows, starts: Sequence[int]) -> Iterator[Rows]:
    """The rows of each part of a table, counted from its first.

    Args:
        rows: of the whole table.
        starts: where each part begins, and the end of the last one.
    """
    if len(starts) == 2:
        yield rows
        return
    for start, stop in pairwise(starts):
        yield rows[(rows >= start) & (rows < stop)] - start
