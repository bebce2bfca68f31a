"""The clocks of a swarm's hosts, and the timelines of its pods, each of which has one of its own."""

import time

import numpy as np

from cwdp.shared.bus.messages import ClockLine

MOST_OFFSET_NS, MOST_DRIFT = 5 * 10**9, 5e-5


class Clocks:
    """The clocks of all hosts: seconds off, and drifting."""

    def __init__(self, hosts: int, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self._origin_ns = time.monotonic_ns()
        self._offset_ns = rng.integers(-MOST_OFFSET_NS, MOST_OFFSET_NS, hosts)
        self.drift = rng.uniform(-MOST_DRIFT, MOST_DRIFT, hosts)

    def local_ns(self, host: int, now_ns: int) -> int:
        """What a host's clock shows."""
        gained_ns = np.round(self.drift[host] * (now_ns - self._origin_ns))
        return now_ns + int(self._offset_ns[host]) + int(gained_ns)

    def all_ns(self, now_ns: int) -> np.ndarray:
        """What each shows."""
        return now_ns + self._offset_ns + np.round(self.drift * (now_ns - self._origin_ns)).astype(np.int64)


class Timelines:
    """What each pod's timeline shows, by the line that one of its hosts was last told.

    Args:
        clocks: of the hosts.
        pods: how many there are.
    """

    def __init__(self, clocks: Clocks, pods: int) -> None:
        self._clocks = clocks
        self._heard: list[tuple[int, ClockLine] | None] = [None] * pods

    def hear(self, pod: int, host: int, line: ClockLine) -> None:
        """A host has been told a line."""
        self._heard[pod] = host, line

    def of(self, host: int, line: ClockLine, now_ns: int) -> int:
        """What the timeline shows, by a host's line."""
        local_ns = self._clocks.local_ns(host, now_ns)
        gained_ns = line.offset_ns + line.drift * (local_ns - line.ref_local_ns)
        return local_ns + line.offset_base_ns + round(gained_ns)

    def ahead_ns(self, pod: int, now_ns: int) -> np.ndarray:
        """By how much each pod's timeline is ahead of a pod's, NaN where it has none yet, 0 for itself, shape (pods,)."""
        shown = [None if heard is None else self.of(*heard, now_ns) for heard in self._heard]
        own = shown[pod]
        ahead = [np.nan if own is None or other is None else float(other - own) for other in shown]
        ahead[pod] = 0.0
        return np.array(ahead)
