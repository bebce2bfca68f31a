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
        self._each: list[tuple[int, float]] = list(
            zip(self._offset_ns.tolist(), self.drift.tolist(), strict=True)
        )

    def local_ns(self, host: int, now_ns: int) -> int:
        """What a host's clock shows."""
        offset_ns, drift = self._each[host]
        return now_ns + offset_ns + round(drift * (now_ns - self._origin_ns))

    def each_ns(self, hosts: np.ndarray, now_ns: int) -> np.ndarray:
        """What those of some hosts show, shape (hosts,)."""
        gained_ns = np.round(self.drift[hosts] * (now_ns - self._origin_ns))
        shown_ns: np.ndarray = now_ns + self._offset_ns[hosts] + gained_ns.astype(np.int64)
        return shown_ns


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
