"""When jobs of a swarm begin their iterations, on the timeline."""

from functools import lru_cache

import numpy as np

from tools.swarm.traffic import LASTS_NS, PERIOD_NS

JITTER_NS = 0.05 * PERIOD_NS
WAITED_NS = 50_000_000
"""So long after it a burst is told of."""

KEPT = 128
"""Iterations that are kept once they are drawn: all hosts tell of the same."""


class Iterations:
    """The iterations of all jobs, each at a time of its own in every period, and a little off.

    Args:
        jobs: how many numbers jobs may have.
        seed: draws when.
    """

    def __init__(self, jobs: int, seed: int) -> None:
        self._seed = seed
        self._phase_ns = np.random.default_rng(seed).uniform(0, PERIOD_NS, jobs)
        self._begins_ns = lru_cache(KEPT)(self._drawn_ns)

    def ended(self, jobs: np.ndarray, since_ns: int, until_ns: int) -> np.ndarray:
        """When those began whose bursts ended between two moments, shape (iterations, jobs); of all jobs as many."""
        late_ns = LASTS_NS + WAITED_NS
        first, last = ((at_ns - late_ns) // PERIOD_NS for at_ns in (since_ns, until_ns))
        found = [self._begins_ns(number)[jobs] for number in range(first, last)]
        return np.array(found, np.int64).reshape(-1, len(jobs))

    def _drawn_ns(self, number: int) -> np.ndarray:
        """When each job begins one of its iterations, shape (jobs,)."""
        rng = np.random.default_rng((self._seed, number))
        jitter_ns = rng.uniform(-JITTER_NS, JITTER_NS, len(self._phase_ns))
        return number * PERIOD_NS - PERIOD_NS + self._phase_ns + jitter_ns
