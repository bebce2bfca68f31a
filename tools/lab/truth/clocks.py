"""How far each host's published clock is from the truth that the lab set.

All hosts share one real clock, so what each host's dataplane makes of the same instant can be compared to the
nanosecond. The timeline belongs to no single host; an error is a host's distance from the median of all hosts,
which one host that is off does not move.
"""

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from cwdp.agent.clock.timebase import LOOKED_AFTER_NS, REACH_NS
from cwdp.dataplane.pinned.maps import Maps
from cwdp.dataplane.pinned.tree import TreePath
from tools.lab.lab import Host, Lab
from tools.lab.network import netns

Q40_MIDDLE_BITS, Q48_MIDDLE_BITS = 20, 16
Q40_BITS, Q48_BITS = 40, 48


def scale(delta_ns: int, rate: int, middle_bits: int, bits: int) -> int:
    """What `scale_q40` and `scale_q48` of the dataplane's clock.h compute."""
    high, low = delta_ns >> middle_bits, delta_ns & ((1 << middle_bits) - 1)
    return (high * rate + (low * rate >> middle_bits)) >> (bits - middle_bits)


def scale_q48(delta_ns: int, rate_q48: int) -> int:
    """As the dataplane does, of a rate in 2^-48."""
    return scale(delta_ns, rate_q48, Q48_MIDDLE_BITS, Q48_BITS)


def local_ns(host: Host, base: NDArray[np.void], real_ns: int) -> int:
    """What a host's dataplane shows as local time at an instant.

    Args:
        host: whose clock it is.
        base: its dataplane's line, a record of `abi.BASE_LINE`.
        real_ns: the machine's CLOCK_MONOTONIC.
    """
    mono_ns = host.clock.mono_ns(real_ns)
    since_ns = min(max(mono_ns - int(base["ref_mono_ns"]), -REACH_NS), REACH_NS)
    return mono_ns + int(base["ahead_ns"]) + scale(since_ns, int(base["rate_q40"]), Q40_MIDDLE_BITS, Q40_BITS)


@dataclass(frozen=True)
class Reading:
    """All hosts at one instant.

    Attributes:
        real_ns: the instant, on the machine's clock.
        error_ns: distance from the median of the synced hosts, shape (hosts,); NaN where not synced.
        bound_ns: the bound claimed, shape (hosts,); NaN where not synced.
    """

    real_ns: int
    error_ns: NDArray[np.float64]
    bound_ns: NDArray[np.float64]


class Truth:
    """Reads the clocks of a lab's hosts from their dataplanes' maps."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab
        self._maps: dict[str, Maps] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.reopen()

    def reopen(self) -> None:
        """Let go of all maps; they are opened anew when they are read."""
        for maps in self._maps.values():
            maps.close()
        self._maps.clear()

    def counters(self, host: str) -> dict[str, int]:
        """What a host's dataplane has counted, by reason; empty where none is loaded."""
        maps = self._open(self._lab.host(host))
        return maps.counters() if maps else {}

    def watched_sports(self, host: str) -> set[int]:
        """The source ports of the paths that a host's dataplane watches for its queue pairs; none where none is loaded."""
        maps = self._open(self._lab.host(host))
        return set() if maps is None else set(maps.paths["sport"][maps.paths["users"] > 0].tolist())

    def probes_sent(self) -> int:
        """How many probes all hosts have sent since their dataplanes were loaded."""
        return sum(self.counters(host.name).get("probe_sent", 0) for host in self._lab.hosts)

    def read(self, real_ns: int) -> Reading:
        """Compare all hosts at an instant, which should be now."""
        timeline = [self._timeline(host, real_ns) for host in self._lab.hosts]
        first = next((t for t, _ in timeline if t is not None), 0)
        error = np.array([np.nan if t is None else float(t - first) for t, _ in timeline])
        if not np.isnan(error).all():
            error -= np.nanmedian(error)
        return Reading(real_ns, error, np.array([bound for _, bound in timeline]))

    def _timeline(self, host: Host, real_ns: int) -> tuple[int | None, float]:
        maps = self._open(host)
        if maps is None:
            return None, float("nan")
        line = maps.read_clock()
        if not line["synced"]:
            return None, float("nan")
        base = maps.read_base()
        local = local_ns(host, base, real_ns)
        looked_ns = int(base["ref_mono_ns"]) + int(base["ahead_ns"])
        if base["ref_mono_ns"] and local - looked_ns > LOOKED_AFTER_NS:
            return None, float("nan")
        delta = local - int(line["ref_local_ns"])
        bound = int(line["bound_ns"]) + scale_q48(abs(delta), int(line["bound_drift_q48"]))
        slewed = scale_q48(min(delta, int(line["slew_ns"])), int(line["slew_q48"]))
        return local + int(line["offset_ns"]) + scale_q48(delta, int(line["drift_q48"])) + slewed, float(
            bound
        )

    def _open(self, host: Host) -> Maps | None:
        if host.name not in self._maps:
            where = TreePath(netns.cookie(host.netns), host.nics[0].name)
            if not where.path.exists():
                return None
            self._maps[host.name] = Maps(where)
        return self._maps[host.name]
