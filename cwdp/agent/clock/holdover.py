"""How far a clock may go off its line while nobody measures it. Pure.

An oscillator that is heated or cooled changes its rate evenly for some time (Allan, "Time and Frequency Characterization,
Estimation, and Prediction of Precision Clocks and Oscillators", 1987, on drift). How fast this one does is learnt from the
lines that it is told.
"""

from collections import deque

SPAN_NS, KEPT_NS = 10_000_000_000, 600_000_000_000
"""Rates are compared over the first; what was seen longer ago than the second counts no more."""

UNKNOWN, LEAST = 10e-9, 2e-9
"""Change of the rate per s: of a crystal of a few tenths of a ppm a kelvin in a draught, until this one has been seen for as
long as is remembered; and of any."""

SURCHARGE = 1.5
LASTS_S = 30.0
"""So long a rate goes on changing one way."""

MEASURED_S = 1.0
"""For so long after its reference a line's own bound holds all of it."""


class RateChanges:
    """What is known of how fast a clock's rate changes."""

    def __init__(self) -> None:
        self._first_ns = 0
        self._last: tuple[int, float] | None = None
        self._seen: deque[tuple[int, float]] = deque()

    def hear(self, local_ns: int, rate: float) -> None:
        """The clock's rate to the timeline, dimensionless, as solved for a local time."""
        if self._last is None:
            self._first_ns, self._last = local_ns, (local_ns, rate)
            return
        since_ns = local_ns - self._last[0]
        if since_ns < SPAN_NS:
            return
        self._seen.append((local_ns, abs(rate - self._last[1]) / (since_ns * 1e-9)))
        self._last = local_ns, rate
        while local_ns - self._seen[0][0] > KEPT_NS:
            self._seen.popleft()

    @property
    def fastest(self) -> float:
        """By how much the rate may change in a second."""
        seen = max((change for _, change in self._seen), default=0.0)
        followed_ns = 0 if self._last is None else self._last[0] - self._first_ns
        return max(SURCHARGE * seen, LEAST if followed_ns >= KEPT_NS else UNKNOWN)

    def off_ns(self, age_ns: int) -> tuple[float, float]:
        """How far off a line may be so long after its reference, in ns, and by how much that grows per ns."""
        alone_s = max(age_ns * 1e-9 - MEASURED_S, 0.0)
        changing_s = min(alone_s, LASTS_S)
        fastest = self.fastest
        grown_s2 = changing_s**2 / 2 + LASTS_S * (alone_s - changing_s)
        return fastest * grown_s2 * 1e9, fastest * changing_s
