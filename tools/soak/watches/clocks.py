"""Clocks held against the lab's truth, and the steering of one queue pair in its host's dataplane."""

import time

import numpy as np
from numpy.typing import NDArray

from tools.lab.truth.clocks import Truth
from tools.soak.stage import Stage
from tools.soak.watches.looking import Watch

EVERY_S = 0.1
PROMPT_NS = 20_000_000
"""Clocks that are read later than that are followed back over lines that were not theirs then."""


class ClockWatch(Watch):
    """All hosts' clocks.

    Attributes:
        times_s: of each reading, since the start.
        errors_ns, bounds_ns: of each reading, shape (hosts,); NaN where none is claimed.
        late: readings that took too long.
    """

    def __init__(self, stage: Stage, truth: Truth) -> None:
        super().__init__(EVERY_S)
        self._stage, self._truth = stage, truth
        self.times_s: list[float] = []
        self.errors_ns: list[NDArray[np.float64]] = []
        self.bounds_ns: list[NDArray[np.float64]] = []
        self.late = 0

    def look(self) -> None:
        """Read them."""
        asked_ns = time.monotonic_ns()
        reading = self._truth.read(asked_ns)
        if time.monotonic_ns() - asked_ns > PROMPT_NS:
            self.late += 1
            return
        self.times_s.append(self._stage.now_s)
        self.errors_ns.append(np.abs(reading.error_ns))
        self.bounds_ns.append(reading.bound_ns)


class SteeringWatch(Watch):
    """Whether a host's dataplane watches the paths that a queue pair is steered over.

    Attributes:
        looks: how often it was looked.
        lost_s: when they were not there, since the start.
    """

    def __init__(self, stage: Stage, truth: Truth, host: str, sports: set[int]) -> None:
        super().__init__(EVERY_S)
        self._stage, self._truth, self._host, self._sports = stage, truth, host, sports
        self.looks = 0
        self.lost_s: list[float] = []

    def look(self) -> None:
        """Read the map of its paths."""
        self.looks += 1
        if not self._truth.watched_sports(self._host) >= self._sports:
            self.lost_s.append(self._stage.now_s)
