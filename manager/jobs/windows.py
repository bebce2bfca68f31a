"""How far back the iterations of jobs are looked for. Pure."""

from dataclasses import dataclass

from manager.queue_pairs.bursts import REMEMBERED_NS

BINS = 15_000


@dataclass(frozen=True)
class Window:
    """A time until now in which iterations are looked for.

    Attributes:
        length_ns: how long it is.
        least_period_ns: of iterations; what is shorter is left to a shorter window.
    """

    length_ns: int
    least_period_ns: int

    @property
    def bin_ns(self) -> int:
        """How finely activity is looked at, of `BINS` in all.

        In the short window that is finer than the end of a burst is known: a period of a few bins would not be seen at its full
        likeness.
        """
        return self.length_ns // BINS


SHORT = Window(30 * 10**9, 0)
LONG = Window(REMEMBERED_NS, 3 * 10**9)
"""For iterations of which too few come in the short one, as those of large models."""
