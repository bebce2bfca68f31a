"""Hopper's idea: look at two other paths when this one is slow, and move to the better one if it is better by far.

Nosrati and Ghaderi, "Congestion-aware path selection for load balancing in AI clusters", arXiv:2506.08132 (2025), with
its settings: the moving average of the delay above 1.5 times that of an empty path starts the search, two paths drawn
at random are probed, and the better one is taken if its delay is below 0.8 of the present one's. Here the two are
watched all along, so that a search never waits for its probes; those that lose are drawn anew.
"""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from tools.experiments.contention.rivals import Choice, draw_port

SEARCH_FROM = 1.5
BETTER_BELOW = 0.8
CHOICES = 2
NEW_WEIGHT = 0.25
"""Of a round in the moving averages."""

LEAST_ROUNDS = 4
"""That a path is watched before it is judged."""


class Hopper:
    """One queue pair; see `Chooser` and `MakeChooser`."""

    def __init__(self, sport: int, base_ns: float, rng: np.random.Generator) -> None:
        self._sport, self._rng = sport, rng
        self._search_ns = SEARCH_FROM * base_ns
        self._probed = self._draw()
        self._average_ns: dict[int, float] = {}
        self._rounds: dict[int, int] = {}

    def step(self, delays_ns: Mapping[int, NDArray[np.float64]]) -> Choice:
        """Follow the averages; move if the path is slow and one of the others much faster."""
        for port in (self._sport, *self._probed):
            delays = delays_ns.get(port)
            if delays is not None and len(delays):
                self._follow(port, float(delays.mean()))
        present = self._known(self._sport)
        others = {port: self._known(port) for port in self._probed}
        known = {port: delay for port, delay in others.items() if delay is not None}
        if present is not None and present > self._search_ns and len(known) == CHOICES:
            best = min(known, key=known.__getitem__)
            if known[best] < BETTER_BELOW * present:
                self._sport = best
            self._start_anew()
        return Choice(self._sport, self._probed)

    def _follow(self, port: int, delay_ns: float) -> None:
        before = self._average_ns.get(port, delay_ns)
        self._average_ns[port] = before + NEW_WEIGHT * (delay_ns - before)
        self._rounds[port] = self._rounds.get(port, 0) + 1

    def _known(self, port: int) -> float | None:
        """A path's average, once it has been watched for long enough."""
        return self._average_ns.get(port) if self._rounds.get(port, 0) >= LEAST_ROUNDS else None

    def _start_anew(self) -> None:
        self._probed = self._draw()
        self._average_ns, self._rounds = {}, {}

    def _draw(self) -> tuple[int, int]:
        """Two ports, neither the present one."""
        first = second = self._sport
        while self._sport in {first, second} or first == second:
            first, second = draw_port(self._rng), draw_port(self._rng)
        return first, second
