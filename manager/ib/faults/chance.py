"""For how many polls a port has to hold up others, that it is no chance. No I/O.

Hosts pause for a moment, counters are read late: now and then a port is the root of a tree for a poll or two, and then no more. How
often that is, is learned from the subnet itself. If it is so in a share p of polls, a port is a root in n polls in a row with a
chance of p^n. A tree is told of after so many polls that chance brings about less than one in a day at all ports of the subnet.
"""

import math

import numpy as np
from numpy.typing import NDArray

from manager.ib.faults.ports import grown

LASTS_POLLS = 3
"""What is a root in fewer polls in a row was one by chance."""

SPAN_POLLS = 600.0
"""Over which that is counted, with weights that fade."""

FIRST_STRAYS, FIRST_PORT_POLLS = 1.0, 1_000.0
"""What is taken to have been seen of a subnet before anything was."""

DAY_POLLS = 86_400


class Strays:
    """Roots by chance in one subnet."""

    def __init__(self) -> None:
        self._strays, self._port_polls = FIRST_STRAYS, FIRST_PORT_POLLS
        self._ports = 1
        self._in_a_row: NDArray[np.int_] = np.zeros(0, np.int_)

    def step(self, is_root: NDArray[np.bool_], is_known: NDArray[np.bool_]) -> None:
        """Take in a poll.

        Args:
            is_root: whether others, or its own packets, wait for a port that is not full, by slot, shape (slots,).
            is_known: whether that is known; else it is taken to be as it was, shape (slots,).
        """
        before = grown(self._in_a_row, len(is_root), 0)
        is_over = is_known & ~is_root & (before < LASTS_POLLS)
        known = int(is_known.sum())
        kept = math.exp(-1.0 / SPAN_POLLS)
        self._strays = kept * self._strays + float(before[is_over].sum())
        self._port_polls = kept * self._port_polls + known
        self._ports = max(self._ports, known)
        self._in_a_row = np.where(is_known, np.where(is_root, before + 1, 0), before)

    def is_no_stray(self, slot: int) -> bool:
        """Whether a port has been a root in so many polls in a row as chance does not explain."""
        return bool(self._in_a_row[slot] >= self.polls)

    @property
    def polls(self) -> int:
        """In so many polls in a row a port has to be a root, `LASTS_POLLS` or more."""
        share = min(self._strays / self._port_polls, 0.5)
        return max(LASTS_POLLS, math.ceil(math.log(self._ports * DAY_POLLS) / -math.log(share)))
