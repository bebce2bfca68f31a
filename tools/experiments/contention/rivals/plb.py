"""PLB's idea: a random other path after some rounds of congestion in a row.

Qureshi et al., "PLB: congestion signals are simple and effective for network load balancing", SIGCOMM 2022, with the
settings that Linux ships (`tcp_plb_cong_thresh` 128 of 256, `tcp_plb_rehash_rounds` 12). A round is congested where at
least half of its packets would have been marked by a switch. The marking threshold is here a delay: half as much
again as the path has without queues, which the queues of a well placed load stay below and those of two flows too many
exceed ten times over.
"""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from tools.experiments.contention.rivals import Choice, draw_port

MARKED_FROM = 1.5
CONGESTED_SHARE = 0.5
REHASH_ROUNDS = 12


class Plb:
    """One queue pair; see `Chooser` and `MakeChooser`."""

    def __init__(self, sport: int, base_ns: float, rng: np.random.Generator) -> None:
        self._sport, self._rng = sport, rng
        self._marked_ns = MARKED_FROM * base_ns
        self._congested = 0

    def step(self, delays_ns: Mapping[int, NDArray[np.float64]]) -> Choice:
        """Count congested rounds; draw another port after REHASH_ROUNDS of them."""
        mine = delays_ns.get(self._sport)
        if mine is not None and len(mine):
            is_congested = (mine > self._marked_ns).mean() >= CONGESTED_SHARE
            self._congested = self._congested + 1 if is_congested else 0
        if self._congested >= REHASH_ROUNDS:
            self._congested = 0
            self._sport = draw_port(self._rng)
        return Choice(self._sport)
