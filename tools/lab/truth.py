"""How far each host's published clock is from the truth that the lab set.

All hosts share one real clock, so what each host's dataplane makes of the same instant can be compared to the
nanosecond. The timeline belongs to no single host; an error is a host's distance from the median of all hosts,
which one host that is off does not move.
"""

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from cwdp.dataplane.maps import Maps
from cwdp.dataplane.tree import TreePath
from tools.lab import netns
from tools.lab.lab import Host, Lab

MIDDLE_BITS = 16
Q48_BITS = 48


def scale_q48(delta_ns: int, rate_q48: int) -> int:
    """What `scale_q48` of the dataplane's clock.h computes."""
    high, low = delta_ns >> MIDDLE_BITS, delta_ns & ((1 << MIDDLE_BITS) - 1)
    return (high * rate_q48 + low * (rate_q48 >> MIDDLE_BITS)) >> (Q48_BITS - MIDDLE_BITS)


def local_ns(host: Host, raw_ns: int) -> int:
    """What a host's own clock shows at an instant of the machine's clock."""
    rate = round(host.clock.drift_ppb * 1e-9 * 2**Q48_BITS)
    return raw_ns + host.clock.offset_ns + scale_q48(raw_ns - host.clock.base_ns, rate)


@dataclass(frozen=True)
class Reading:
    """All hosts at one instant.

    Attributes:
        raw_ns: the instant, on the machine's clock.
        error_ns: distance from the median of the synced hosts, shape (hosts,); NaN where not synced.
        bound_ns: the bound claimed, shape (hosts,); NaN where not synced.
    """

    raw_ns: int
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

    def probes_sent(self) -> int:
        """How many probes all hosts have sent since their dataplanes were loaded."""
        return sum(self.counters(host.name).get("probe_sent", 0) for host in self._lab.hosts)

    def read(self, raw_ns: int) -> Reading:
        """Compare all hosts at an instant, which should be now."""
        timeline = [self._timeline(host, raw_ns) for host in self._lab.hosts]
        first = next((t for t, _ in timeline if t is not None), 0)
        error = np.array([np.nan if t is None else float(t - first) for t, _ in timeline])
        if not np.isnan(error).all():
            error -= np.nanmedian(error)
        return Reading(raw_ns, error, np.array([bound for _, bound in timeline]))

    def _timeline(self, host: Host, raw_ns: int) -> tuple[int | None, float]:
        maps = self._open(host)
        line = None if maps is None else maps.read_clock()
        if line is None or not line["synced"]:
            return None, float("nan")
        local = local_ns(host, raw_ns)
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
