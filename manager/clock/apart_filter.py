"""How far a pod's timeline is ahead of this one's, followed over time. Pure.

A Kalman filter of offset and rate. Both timelines are ensembles, so the rate hardly changes; how much it does is learnt from
how far off what is measured is found.
"""

import numpy as np

from cwdp.shared.clocksync._types import F64, NS_PER_S, learnt_wander
from manager.clock.apart import Measured

WINDOW_S = 2.0
"""Fits that are closer than that share data."""

STEP_SIGMAS = 8.0
ROUNDS_TO_BELIEVE = 3
LEAST_SIGMA_RATE = 20e-9
WANDER_AT_FIRST = 3e-9
_LEARN = 0.3
_OFF_KEPT = 0.8


class AheadFilter:
    """What is known of one pod's timeline, from the first measurement on.

    Attributes:
        ref_ns: time of this timeline that all is for.
        ahead_ns, frac_ns: their sum is the other timeline less this one.
        rate_ns: what it grows by, per s.
        covariance: float64 [2, 2], of offset and rate, in ns and ns per s.
        measured_var: of the last measurement, ns**2, with what lines have in common; it is much the same each time, so no
            less is claimed.
        off_ns: by how much measurements of late were not where they were expected; no less is claimed.
        is_doubted: whether that was not believed.
    """

    def __init__(self, first: Measured) -> None:
        self._wander = np.array([WANDER_AT_FIRST])
        self.covariance: F64 = np.zeros((2, 2))
        self.ref_ns = self.ahead_ns = 0
        self.frac_ns = self.rate_ns = self.measured_var = self.off_ns = 0.0
        self.is_doubted = False
        self._doubts = 0
        self._begin(first)

    def hear(self, measured: Measured) -> None:
        """Take in a measurement that is of later fits than the last."""
        dt_s = (measured.ref_ns - self.ref_ns) / NS_PER_S
        if dt_s <= 0:
            return
        self._advance(measured.ref_ns)
        off_ns = (measured.ahead_ns - self.ahead_ns) + measured.frac_ns - self.frac_ns
        variance = measured.sigma_ns**2 * max(1.0, WINDOW_S / dt_s)
        expected = self.covariance[0, 0] + variance
        if off_ns**2 > STEP_SIGMAS**2 * expected:
            self._doubts += 1
            self.off_ns, self.is_doubted = abs(off_ns), True
            if self._doubts >= ROUNDS_TO_BELIEVE:
                self._begin(measured)
            return
        surprise = np.array([off_ns**2 / expected])
        self._wander = learnt_wander(self._wander, surprise, np.ones(1, bool), _LEARN)
        gain = self.covariance[:, 0] / expected
        self._set(self.ahead_ns, self.frac_ns + float(gain[0]) * off_ns)
        self.rate_ns += float(gain[1]) * off_ns
        self.covariance = self.covariance - np.outer(gain, self.covariance[0])
        self.off_ns = max(abs(off_ns), _OFF_KEPT * self.off_ns)
        self.measured_var, self.is_doubted, self._doubts = (
            measured.sigma_ns**2 + measured.common_ns**2,
            False,
            0,
        )

    def at(self, time_ns: int) -> tuple[int, float]:
        """The other timeline less this one at a time of this one, whole and rest."""
        rest = self.frac_ns + self.rate_ns * (time_ns - self.ref_ns) / NS_PER_S
        return self.ahead_ns + round(rest), rest - round(rest)

    @property
    def variance(self) -> float:
        """Of the offset at the reference, ns**2."""
        return float(self.covariance[0, 0]) + self.measured_var

    @property
    def sigma_rate(self) -> float:
        """Standard error of the rate, dimensionless, with what it may wander within a window."""
        wander = float(self._wander[0]) * NS_PER_S
        return float(np.sqrt(self.covariance[1, 1] + wander**2 * WINDOW_S / 3)) / NS_PER_S

    def _begin(self, measured: Measured) -> None:
        self.ref_ns = measured.ref_ns
        self._set(measured.ahead_ns, measured.frac_ns)
        self.rate_ns = measured.rate * NS_PER_S
        sigma_rate = max(measured.sigma_rate, LEAST_SIGMA_RATE) * NS_PER_S
        self.covariance = np.diag([measured.sigma_ns**2, sigma_rate**2])
        self.measured_var = measured.sigma_ns**2 + measured.common_ns**2
        self.off_ns, self.is_doubted, self._doubts = 0.0, False, 0

    def _advance(self, time_ns: int) -> None:
        dt_s = (time_ns - self.ref_ns) / NS_PER_S
        ahead_ns, frac_ns = self.at(time_ns)
        self.ref_ns = time_ns
        self._set(ahead_ns, frac_ns)
        move = np.array([[1.0, dt_s], [0.0, 1.0]])
        walk = np.array([[dt_s**3 / 3, dt_s**2 / 2], [dt_s**2 / 2, dt_s]])
        q = (float(self._wander[0]) * NS_PER_S) ** 2
        self.covariance = np.asarray(move @ self.covariance @ move.T + q * walk)

    def _set(self, ahead_ns: int, frac_ns: float) -> None:
        self.ahead_ns, self.frac_ns = ahead_ns + round(frac_ns), frac_ns - round(frac_ns)
