"""Other ways to choose a queue pair's path from its host alone, to compare with: PLB's idea and Hopper's.

Each decides for one queue pair, once a round, from delays that were measured on its paths (`Chooser`); `hands` gives
them the delays and carries their choices out. Both get more than on a real host: one-way delays in nanoseconds in the
place of ECN marks and round trips, and a pulse every few milliseconds on each path that they ask about.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

FIRST_PORT, PORTS = 49152, 2**14


@dataclass(frozen=True)
class Choice:
    """What a chooser wants: the source port to send from, and two others whose delays it wants to know."""

    sport: int
    probed: tuple[int, int] | tuple[()] = ()


class Chooser(Protocol):
    """Chooses the path of one queue pair."""

    def step(self, delays_ns: Mapping[int, NDArray[np.float64]]) -> Choice:
        """Decide at the end of a round.

        Args:
            delays_ns: one-way delays that were measured in this round, by source port; none where none came.
        """
        ...


MakeChooser = Callable[[int, float, np.random.Generator], Chooser]
"""`make(sport, base_ns, rng)`: for a queue pair that sends from `sport`, over paths whose delay without queues is
`base_ns`."""


def draw_port(rng: np.random.Generator) -> int:
    """Any of RoCEv2's source ports, which is to say any path."""
    return FIRST_PORT + int(rng.integers(PORTS))
