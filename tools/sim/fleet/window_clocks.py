"""A fleet's clocks as the probes of a window meet them: how far each host's timeline is off, and what it claims."""

from dataclasses import dataclass

import numpy as np

from cwdp.shared.bus.records import WINDOW_NS
from tools.clocks import ClockKind
from tools.sim.clocks.manoeuvres import of_kind
from tools.sim.fleet.probes import Bools, FleetOptions, Floats
from tools.sim.fleet.simulation import FleetSimulation

SETTLED_S = 15.0
WINDOW_S = WINDOW_NS * 1e-9


@dataclass(frozen=True, slots=True)
class WindowClocks:
    """Window by window from the first one on.

    Attributes:
        error_ns: the timeline that a host shows less the truth, shape (windows, hosts); NaN where it shows none.
        bound_ns: what it claims, shape (windows, hosts); NaN as above.
        set_aside: what it shows is known to be wrong, and used for nothing; shape (windows, hosts).
        changed: the window since when, as the manager knows in each window, a clock that is being found anew has gone
            otherwise, shape (windows, hosts); NaN for others.
    """

    error_ns: Floats
    bound_ns: Floats
    set_aside: Bools
    changed: Floats

    @classmethod
    def of_fleet(cls, kind: ClockKind, hosts: int, windows: int, seed: int) -> "WindowClocks":
        """What a simulated fleet with clocks of a kind makes of them, once it has settled."""
        begins_s = SETTLED_S + np.arange(windows) * WINDOW_S
        options = FleetOptions(hosts=hosts, seconds=float(begins_s[-1]) + 1, seed=seed)
        result = FleetSimulation(options, of_kind(kind)).run()
        rows = np.searchsorted(result.time_s, begins_s)
        shows = ~np.isnan(result.bound_ns[rows]) & ~result.set_aside[rows]
        error_ns, bound_ns = (
            np.where(shows, values[rows], np.nan) for values in (result.error_ns, result.bound_ns)
        )
        changed = (result.changed_s[rows] - SETTLED_S) / WINDOW_S
        return cls(error_ns, bound_ns, result.set_aside[rows], changed)
