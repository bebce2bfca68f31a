"""Lines of hosts' clocks with their covariances, and where they lead."""

from dataclasses import dataclass, fields, replace

import numpy as np

from cwdp.shared.clocksync._types import F64, I64, NS_PER_S, Bool, split_ns


@dataclass(frozen=True, slots=True)
class HostLines:
    """Per host: global - local is g at the global time ref, and grows by drift.

    Attributes:
        ref_ns: int64 [hosts].
        g_ns, frac_ns: int64 and float64 [hosts]; their sum is g.
        drift_ns: float64 [hosts], ns per s of global time.
        var, cov, var_drift: float64 [hosts], of g in ns and drift in ns per s.
    """

    ref_ns: I64
    g_ns: I64
    frac_ns: F64
    drift_ns: F64
    var: F64
    cov: F64
    var_drift: F64

    @classmethod
    def nothing(cls, n_hosts: int) -> "HostLines":
        """No host is known."""
        whole, real = np.zeros(n_hosts, np.int64), np.zeros(n_hosts)
        return cls(whole, whole.copy(), *(real.copy() for _ in range(5)))

    def at(self, instant_ns: int, wander: F64) -> "HostLines":
        """All lines at one global time; wander, float64 [hosts], is the random walk of a frequency, per sqrt(s)."""
        dt = (instant_ns - self.ref_ns) / NS_PER_S
        q = np.square(wander * NS_PER_S)
        g_ns, frac_ns = split_ns(self.g_ns, self.frac_ns + self.drift_ns * dt)
        return HostLines(
            np.full_like(self.ref_ns, instant_ns),
            g_ns,
            frac_ns,
            self.drift_ns,
            np.maximum(self.var + dt * (2 * self.cov + dt * self.var_drift), 0.0) + q * np.abs(dt) ** 3 / 3,
            self.cov + dt * self.var_drift + q * np.sign(dt) * dt**2 / 2,
            self.var_drift + q * np.abs(dt),
        )

    def where(self, rows: Bool, other: "HostLines") -> "HostLines":
        """These lines for some hosts, others for the rest."""
        chosen = (np.where(rows, getattr(self, f.name), getattr(other, f.name)) for f in fields(self))
        return HostLines(*chosen)

    def resized(self, n_hosts: int) -> "HostLines":
        """With empty places at the end, or without the last ones."""
        fresh, kept = HostLines.nothing(n_hosts), min(n_hosts, len(self.g_ns))
        for field in fields(self):
            getattr(fresh, field.name)[:kept] = getattr(self, field.name)[:kept]
        return fresh

    def moved(self, ahead_ns: F64, drift_ns: F64, var: F64, cov: F64, var_drift: F64) -> "HostLines":
        """The same references, other states: g larger by float64 [hosts], and drift."""
        g_ns, frac_ns = split_ns(self.g_ns, self.frac_ns + ahead_ns)
        return replace(
            self, g_ns=g_ns, frac_ns=frac_ns, drift_ns=drift_ns, var=var, cov=cov, var_drift=var_drift
        )
