"""What clocks that change again and again will do before the next change is seen."""

import numpy as np

from cwdp.shared.clocksync._types import F64, I64, LONG_AGO, Bool

_DEPTH = 8
_LATELY_NS = 64_000_000_000
_RESTLESS_AFTER = 2
_SEEN_AFTER_S = 0.6
_SIGMAS = 2.3


class PastChanges:
    """The last changes of rate of `n_hosts` slots: when, and by how much.

    A clock that has changed twice of late is expected to do so again, by as much as it did, or as restless clocks do in
    the median: it has changed too seldom to tell by itself how far it may go.
    """

    def __init__(self, n_hosts: int) -> None:
        self._at_ns = np.full((n_hosts, _DEPTH), LONG_AGO)
        self._by_ns = np.zeros((n_hosts, _DEPTH))
        self._next = np.zeros(n_hosts, np.int64)

    def resized(self, n_hosts: int) -> "PastChanges":
        """With empty slots at the end, or without the last ones."""
        fresh, kept = PastChanges(n_hosts), min(n_hosts, len(self._next))
        for name, array in vars(fresh).items():
            array[:kept] = getattr(self, name)[:kept]
        return fresh

    def clear(self, slots: I64) -> None:
        """Forget the hosts of some slots."""
        self._at_ns[slots] = LONG_AGO

    def note(self, rows: Bool, by_ns: F64, instant_ns: int) -> None:
        """Take in that some clocks have changed their rate by float64 [hosts], ns per s."""
        hosts = np.flatnonzero(rows)
        column = self._next[hosts] % _DEPTH
        self._at_ns[hosts, column], self._by_ns[hosts, column] = instant_ns, by_ns[hosts]
        self._next[hosts] += 1

    def expected_ns(self, instant_ns: int) -> F64:
        """How far clocks may go before the next change of rate is seen: float64 [hosts], ns; 0 for clocks at rest."""
        lately = self._at_ns > instant_ns - _LATELY_NS
        count = lately.sum(axis=1)
        restless = count >= _RESTLESS_AFTER
        if not restless.any():
            return np.zeros(len(count))
        rms_ns = np.sqrt((np.square(self._by_ns) * lately).sum(axis=1) / np.maximum(count, 1))
        by_ns = np.maximum(rms_ns, np.median(rms_ns[restless]))
        return np.where(restless, _SIGMAS * _SEEN_AFTER_S * by_ns, 0.0)
