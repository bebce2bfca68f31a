"""A Kalman filter for every host's clock: offset, drift, and how the drift changes while a clock is heated or cooled.

The drift is a random walk, and has a trend that fades (Singer's model of a manoeuvre, IEEE T-AES 1970). How large both
may be is learnt from the innovations, clock by clock; a clock on which nothing acts is filtered as if it had no trend.
"""

import numpy as np

from cwdp.shared.clocksync._types import F64, I64, NS_PER_S, WANDER, Bool, learnt_wander, split_ns
from cwdp.shared.clocksync.timeline.hostlines import HostLines

_TREND_S = 20.0
_LEAST_TREND = 1e-9
_TREND_OF_WANDER = 3.0
_LEARN = 0.1
_NOT_BETTER = 0.5


class HostFilter:
    """The filters of `n_hosts` slots, all at one instant. Units are ns and s.

    Attributes:
        g_ns, frac_ns: int64 and float64 [hosts], their sum is global - local.
        drift_ns: float64 [hosts], its growth per s.
        trend_ns: float64 [hosts], growth of the drift per s.
        covariance: float64 [hosts, 3, 3], of these three.
        wander: float64 [hosts], random walk of the frequency as learnt, per sqrt(s).
    """

    def __init__(self, n_hosts: int) -> None:
        self.g_ns, self.frac_ns = np.zeros(n_hosts, np.int64), np.zeros(n_hosts)
        self.drift_ns, self.trend_ns = np.zeros(n_hosts), np.zeros(n_hosts)
        self.covariance = np.zeros((n_hosts, 3, 3))
        self.wander = np.full(n_hosts, WANDER)

    def resized(self, n_hosts: int) -> "HostFilter":
        """With empty slots at the end, or without the last ones."""
        fresh, kept = HostFilter(n_hosts), min(n_hosts, len(self.g_ns))
        for name, array in vars(fresh).items():
            array[:kept] = getattr(self, name)[:kept]
        return fresh

    @property
    def var(self) -> F64:
        """Variance of the offset, ns**2: float64 [hosts]."""
        return self.covariance[:, 0, 0]

    @property
    def var_drift(self) -> F64:
        """Variance of the drift: float64 [hosts]."""
        return self.covariance[:, 1, 1]

    def after(self, dt_s: float) -> tuple[I64, F64, F64, F64]:
        """Offset, whole and rest, drift and trend some seconds later: each [hosts]."""
        kept = float(np.exp(-abs(dt_s) / _TREND_S))
        gained = self.drift_ns * dt_s + self.trend_ns * dt_s**2 / 2
        g_ns, frac_ns = split_ns(self.g_ns, self.frac_ns + gained)
        return g_ns, frac_ns, self.drift_ns + self.trend_ns * dt_s, self.trend_ns * kept

    def covariance_after(self, dt_s: float) -> F64:
        """Covariance some seconds later: float64 [hosts, 3, 3]."""
        kept = float(np.exp(-abs(dt_s) / _TREND_S))
        move = np.array([[1.0, dt_s, dt_s**2 / 2], [0.0, 1.0, dt_s], [0.0, 0.0, kept]])
        q, lasts_s = np.square(self.wander * NS_PER_S)[:, None, None], abs(dt_s)
        sign = np.sign(dt_s)
        walk = np.array(
            [[lasts_s**3 / 3, sign * lasts_s**2 / 2, 0], [sign * lasts_s**2 / 2, lasts_s, 0], [0, 0, 0]]
        )
        trend = _LEAST_TREND**2 + _TREND_OF_WANDER**2 * np.square(self.wander - WANDER)
        moved = move @ self.covariance @ move.T + q * walk
        moved[:, 2, 2] += (1 - kept**2) * trend * NS_PER_S**2
        return np.asarray(moved)

    def advance(self, dt_s: float) -> None:
        """Predict every clock some seconds on."""
        covariance = self.covariance_after(dt_s)
        self.g_ns, self.frac_ns, self.drift_ns, self.trend_ns = self.after(dt_s)
        self.covariance = covariance

    def update(self, rows: Bool, innovation_ns: F64, variance: F64, lasting_ns: F64) -> None:
        """Take in offsets that lie `innovation_ns` off, known to a variance: float64 [hosts], of use for some rows.

        Of their errors `lasting_ns`, a standard deviation, is the same each time: by them no offset becomes better known than
        that. What is known far better goes on as ever.
        """
        i = np.flatnonzero(rows)
        before, lasting = self.covariance[i, 0, 0], lasting_ns[i] ** 2
        known = np.where(before >= _NOT_BETTER**2 * lasting, np.minimum(before, lasting), 0.0)
        across = self.covariance[i, :, 0]
        gain = across / (across[:, :1] + variance[i, None])
        ahead = gain * innovation_ns[i, None]
        self.g_ns[i], self.frac_ns[i] = split_ns(self.g_ns[i], self.frac_ns[i] + ahead[:, 0])
        self.drift_ns[i] += ahead[:, 1]
        self.trend_ns[i] += ahead[:, 2]
        self.covariance[i] -= gain[:, :, None] * across[:, None, :]
        self.covariance[i, 0, 0] = np.maximum(self.covariance[i, 0, 0], known)

    def learn_wander(self, rows: Bool, innovation_ns: F64, variance: F64) -> None:
        """Have clocks wander more or less by how far off they are found: `variance` as in `update`."""
        surprise = innovation_ns**2 / np.maximum(self.var + variance, 1e-12)
        self.wander = learnt_wander(self.wander, surprise, rows, _LEARN)

    def wanders_ns(self, within_s: float) -> F64:
        """How far clocks wander within some seconds beyond what any clock does: float64 [hosts], standard deviation."""
        excess = np.sqrt(np.maximum(self.wander**2 - WANDER**2, 0.0)) * NS_PER_S
        return np.asarray(np.where(self.wander < 2 * WANDER, 0.0, excess * within_s**1.5 / np.sqrt(3)))

    def put(self, rows: Bool, g_ns: I64, frac_ns: F64, variance: F64) -> None:
        """Have clocks stand where they were found, whatever was known of their offsets: values [hosts]."""
        self.g_ns, self.frac_ns = np.where(rows, g_ns, self.g_ns), np.where(rows, frac_ns, self.frac_ns)
        self.covariance[rows, 0, :] = self.covariance[rows, :, 0] = 0.0
        self.covariance[rows, 0, 0] = variance[rows]

    def put_drift(self, rows: Bool, drift_ns: F64, variance: F64) -> None:
        """Have clocks drift as was found, without a trend: values [hosts]."""
        self.drift_ns = np.where(rows, drift_ns, self.drift_ns)
        self.trend_ns = np.where(rows, 0.0, self.trend_ns)
        self.covariance[rows, 1:, :] = 0.0
        self.covariance[rows, :, 1:] = 0.0
        self.covariance[rows, 1, 1] = variance[rows]
        self.covariance[rows, 2, 2] = (_LEAST_TREND * NS_PER_S) ** 2

    def take(self, rows: Bool, lines: HostLines) -> None:
        """Go on from lines that are at this filter's instant."""
        i = np.flatnonzero(rows)
        self.put(rows, lines.g_ns, lines.frac_ns, lines.var)
        self.put_drift(rows, lines.drift_ns, lines.var_drift)
        self.covariance[i, 0, 1] = self.covariance[i, 1, 0] = lines.cov[i]

    def lines(self, instant_ns: int, ahead_s: float = 0.0) -> HostLines:
        """What the clocks do from `ahead_s` after the instant of the filter on."""
        g_ns, frac_ns, drift_ns, _ = self.after(ahead_s)
        covariance = self.covariance_after(ahead_s)
        ref_ns = np.full(len(g_ns), instant_ns + round(ahead_s * NS_PER_S))
        return HostLines(
            ref_ns, g_ns, frac_ns, drift_ns, covariance[:, 0, 0], covariance[:, 0, 1], covariance[:, 1, 1]
        )
