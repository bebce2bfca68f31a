"""By which ways pulses come back: each path has several reply ports and takes them in turn.

A reply travels on a path of its own, which can be dead while the way there is not. A reply port whose pulses stay
unanswered while others of its path are answered is passed over for a while, so that a dead way back does not look
like a dead way there. No port is passed over while all are silent.
"""

import numpy as np
from numpy.typing import NDArray

from cwdp.dataplane.abi import SPORT_MIN

PORTS = 16
MISSES = 2
REST_NS = 100_000_000

_STRATUM = (0x10000 - SPORT_MIN) // PORTS


def draw_ports(paths: int, rng: np.random.Generator) -> NDArray[np.uint16]:
    """Reply ports of each path, spread over RoCEv2's range; shape (paths, PORTS)."""
    within = rng.integers(0, _STRATUM, (paths, PORTS))
    return (SPORT_MIN + _STRATUM * np.arange(PORTS) + within).astype(np.uint16)


class ReplyTurns:
    """Whose turn it is, of each path's reply ports.

    Args:
        paths: how many paths.

    Attributes:
        order: the reply ports to take one after the other, as indices below PORTS; shape (paths, PORTS).
    """

    def __init__(self, paths: int) -> None:
        self._misses = np.zeros((paths, PORTS), dtype=np.int64)
        self._rests_until_ns = np.zeros((paths, PORTS), dtype=np.int64)
        self.order: NDArray[np.intp] = np.tile(np.arange(PORTS), (paths, 1))

    @property
    def is_any_resting(self) -> bool:
        """Whether a reply port is passed over, or has begun to be missed."""
        return bool(self._rests_until_ns.any() or self._misses.any())

    def judge(self, answered: NDArray[np.bool_], unanswered: NDArray[np.bool_], now_ns: int) -> None:
        """Take in what became of the last pulse of each reply port, and order the next turns.

        Args:
            answered: shape (paths, PORTS).
            unanswered: as `answered`; neither holds where nothing is known.
            now_ns: of any clock that goes on.
        """
        self._misses[answered] = 0
        others_answered = answered.any(axis=1, keepdims=True)
        self._misses[unanswered & others_answered] += 1
        tired = self._misses >= MISSES
        self._misses[tired] = 0
        self._rests_until_ns[tired] = now_ns + REST_NS
        self._rests_until_ns[self._rests_until_ns <= now_ns] = 0
        rests = self._rests_until_ns > 0
        rests[rests.all(axis=1)] = False
        awake_first = np.argsort(rests, axis=1, kind="stable")
        awake = PORTS - np.count_nonzero(rests, axis=1)
        self.order = np.take_along_axis(awake_first, np.arange(PORTS) % awake[:, None], axis=1)
