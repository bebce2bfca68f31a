"""The dataplane's rule by which paths are given up, `bpf/steering/failover.h`, for many paths at once."""

import numpy as np
from numpy.typing import NDArray

from cwdp.dataplane.abi import PathState

UNANSWERED_MIN, SLOW_FACTOR, SLOW_SHIFT, SLOW_SPAN_SHIFT = 4, 2, 4, 24
HOLD_DOWN_NS = 300_000_000

Rows = NDArray[np.intp]


class PathRule:
    """The map `paths`, whose fields have the same names; times are int64 ns.

    Args:
        paths: how many.
        dead_after_ns: silence after which a path is given up.
        pulse_gap_ns: pulses that are further apart than this are no silence; 0 for any.
    """

    def __init__(self, paths: int, dead_after_ns: int, pulse_gap_ns: int) -> None:
        self._dead_after_ns, self._gap_ns = dead_after_ns, pulse_gap_ns
        self._paths = paths
        self.forget()

    def forget(self) -> None:
        """All are up, and nothing is known of them."""
        zeros = np.zeros((8, self._paths), dtype=np.int64)
        self.waiting_since_ns, self.last_answer_ns, self.answered_sent_ns, self.asked_ns = zeros[:4]
        self.slow_ns, self.unanswered, self.state, self.healthy_since_ns = zeros[4:]

    def pulses_sent(self, rows: Rows, now_ns: int) -> None:
        """Pulses leave."""
        first = self.waiting_since_ns[rows] <= self.last_answer_ns[rows]
        if self._gap_ns:
            gap = now_ns - self.asked_ns[rows] > self._gap_ns
            again = ~first & gap & ~self._is_silent(rows, now_ns, self._dead_after_ns)
            self.unanswered[rows[again]] = 0
            first |= again
        self.waiting_since_ns[rows[first]] = now_ns
        self.asked_ns[rows] = now_ns
        self.unanswered[rows] += 1

    def pulses_answered(self, rows: Rows, sent_ns: int, now_ns: NDArray[np.int64]) -> None:
        """Pulses that left at `sent_ns` come home."""
        was_silent = self._is_silent(rows, now_ns, self._dead_after_ns)
        spans = np.clip((now_ns - self.last_answer_ns[rows]) >> SLOW_SPAN_SHIFT, 1, 1 << SLOW_SHIFT)
        slow_ns = self.slow_ns[rows]
        self.slow_ns[rows] = np.maximum(slow_ns - (slow_ns >> SLOW_SHIFT) * spans, now_ns - sent_ns)
        self.last_answer_ns[rows] = now_ns
        self.answered_sent_ns[rows] = sent_ns
        self.unanswered[rows] = 0
        down = self.state[rows] == PathState.DOWN
        begins = down & (was_silent | (self.healthy_since_ns[rows] == 0))
        self.healthy_since_ns[rows[begins]] = now_ns[begins]
        up = down & ~begins & (now_ns - self.healthy_since_ns[rows] >= HOLD_DOWN_NS)
        self.state[rows[up]] = PathState.UP

    def give_up(self, rows: Rows, backups: Rows, now_ns: int) -> Rows:
        """Packets are to leave over these paths: those that are given up for their backups."""
        give_up_after_ns = self._dead_after_ns + SLOW_FACTOR * self.slow_ns[backups]
        given_up = (
            (self.state[rows] == PathState.UP)
            & self._is_silent(rows, now_ns, give_up_after_ns)
            & (self.state[backups] == PathState.UP)
            & (self.answered_sent_ns[backups] >= self.waiting_since_ns[rows] + give_up_after_ns // 2)
        )
        self.state[rows[given_up]] = PathState.DOWN
        self.healthy_since_ns[rows[given_up]] = 0
        left: Rows = rows[given_up]
        return left

    def _is_silent(
        self, rows: Rows, now_ns: int | NDArray[np.int64], dead_after_ns: int | NDArray[np.int64]
    ) -> NDArray[np.bool_]:
        since_ns = self.waiting_since_ns[rows]
        silent: NDArray[np.bool_] = (
            (self.unanswered[rows] >= UNANSWERED_MIN)
            & (since_ns > self.last_answer_ns[rows])
            & (now_ns - since_ns > dead_after_ns)
        )
        return silent
