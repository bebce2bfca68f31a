"""What one agent remembers of its edges from fit to fit: relative frequency and one-way floor.

The frequency is followed by a two-state Kalman filter per edge over the fitted offsets, since offsets
seconds apart tell it far better than one window can. The floor is the best margin of late, so that a
fit can see how much of its margin is queueing.
"""

from dataclasses import dataclass

import numpy as np

from cwdp.shared.clocksync._types import F64, I64, NS_PER_S, WANDER, Bool, learnt_wander
from cwdp.shared.clocksync.edge.fit import EdgeFits, EdgePrior
from cwdp.shared.clocksync.edge.floors import SURE_SIGMAS, at_most
from cwdp.shared.clocksync.edge.kinks import Lines

_LEAST_STEP_S = 0.9
_FLOOR_DEPTH = 32
_STEP_SIGMAS = 10.0
_SLOPE_SIGMA_AT_START = 2.0
_SETTLED_AFTER = 4
_SHORTER_AFTER = 5
_LEARN = 0.25
_BENT_STEPS = 4
"""Fits learnt from before a change is noticed that may rest on data from after it."""


@dataclass(slots=True)
class _Lines:
    ref_ns: I64
    offset_ns: I64
    frac_ns: F64
    slope: F64
    var_offset: F64
    covariance: F64
    var_slope: F64


class EdgeMemory:
    """State of `n_edges` edges, one slot each, in the order of the fits.

    How much a frequency wanders is learnt from how far fits lie from where they were expected.

    Args:
        n_edges: how many slots.
    """

    def __init__(self, n_edges: int) -> None:
        self._wander_ns = np.full(n_edges, WANDER * NS_PER_S)
        whole, real = np.zeros(n_edges, np.int64), np.zeros(n_edges)
        self._lines = _Lines(whole, whole.copy(), real, *(real.copy() for _ in range(4)))
        self._known = np.zeros(n_edges, bool)
        self._lines_now: Lines | None = None
        self._margins = np.full((n_edges, _FLOOR_DEPTH), np.nan)
        self._margin_sigmas = np.full((n_edges, _FLOOR_DEPTH), np.nan)
        self._next, self._below = np.zeros(n_edges, np.int64), np.zeros(n_edges, np.int64)

    def forget(self, edges: Bool) -> None:
        """Drop what is known of some slots (bool [n_edges]): another peer or another path."""
        self._lines_now = None
        self._known[edges] = False
        self._margins[edges] = np.nan
        self._margin_sigmas[edges] = np.nan

    @property
    def slope(self) -> F64:
        """Relative frequencies as last known, 0 where nothing is: float64 [edges]."""
        return self._lines.slope / NS_PER_S

    def let_go(self, edges: Bool) -> None:
        """Drop the lines of some slots (bool [n_edges]), whose clocks have changed; ways are as long as before.

        The last margins are dropped too, where there are enough others: the change may have bent them.
        """
        self._lines_now = None
        self._known[edges] = False
        rows = np.flatnonzero(edges & (self._margin_count() >= _BENT_STEPS + _SETTLED_AFTER))[:, None]
        last = (self._next[rows] - np.arange(_BENT_STEPS) - 1) % _FLOOR_DEPTH
        self._margins[rows, last] = self._margin_sigmas[rows, last] = np.nan

    def lines(self) -> Lines:
        """What probes that come in are held against."""
        if self._lines_now is None:
            self._lines_now = self._as_lines()
        return self._lines_now

    def _as_lines(self) -> Lines:
        floor, sigma_floor = self._floor()
        line = self._lines
        return Lines(
            line.ref_ns,
            line.offset_ns,
            line.frac_ns,
            line.slope / NS_PER_S,
            line.var_offset,
            line.covariance,
            line.var_slope,
            self._wander_ns,
            floor,
            sigma_floor,
            self._known & (self._margin_count() >= _SETTLED_AFTER),
        )

    def prior(self, now_ns: int | I64) -> EdgePrior:
        """What the next fit may assume, for windows that end at `now_ns` on the local clock."""
        age = np.maximum((now_ns - self._lines.ref_ns) / NS_PER_S, 0.0)
        sigma = np.sqrt(self._lines.var_slope + self._wander_ns**2 * age) / NS_PER_S
        floor, sigma_floor = self._floor()
        return EdgePrior(
            slope=self._lines.slope / NS_PER_S,
            sigma_slope=np.where(self._known, sigma, np.inf),
            floor_ns=floor,
            sigma_floor_ns=sigma_floor,
            wander=self._wander_ns / NS_PER_S,
        )

    def update(self, fits: EdgeFits, settled: Bool | None = None) -> None:
        """Learn from the fits; those that overlap the last one learnt from too much are passed over.

        Args:
            fits: of all slots.
            settled: bool [n_edges], those to learn from; None for all.
        """
        self._lines_now = None
        step_s = (fits.ref_ns - self._lines.ref_ns) / NS_PER_S
        due = fits.valid & (~self._known | (step_s >= _LEAST_STEP_S))
        if settled is not None:
            due &= settled
        self._remember_floor(fits, due)
        advanced, surprise = self._advance(fits, np.where(due, step_s, 0.0))
        gone = surprise > _STEP_SIGMAS**2
        start = due & (~self._known | gone)
        self._wander_ns = learnt_wander(self._wander_ns / NS_PER_S, surprise, due & ~start, _LEARN) * NS_PER_S
        fresh = _Lines(
            fits.ref_ns,
            fits.offset_ns,
            fits.offset_frac_ns,
            fits.slope * NS_PER_S,
            fits.sigma_offset_ns**2,
            np.zeros(len(due)),
            (_SLOPE_SIGMA_AT_START * fits.sigma_slope * NS_PER_S) ** 2,
        )
        for name in _Lines.__slots__:
            merged = np.where(start, getattr(fresh, name), getattr(advanced, name))
            setattr(self._lines, name, np.where(due, merged, getattr(self._lines, name)))
        self._known |= due

    def _advance(self, fits: EdgeFits, step_s: F64) -> tuple[_Lines, F64]:
        """Kalman step of every line to the fits; with the square of each innovation in standard errors."""
        old, q = self._lines, self._wander_ns**2
        var = old.var_offset + step_s * (2 * old.covariance + step_s * old.var_slope) + q * step_s**3 / 3
        cov = old.covariance + step_s * old.var_slope + q * step_s**2 / 2
        var_slope = old.var_slope + q * step_s
        predicted = old.frac_ns + old.slope * step_s
        innovation = (fits.offset_ns - old.offset_ns) + (fits.offset_frac_ns - predicted)
        total = np.maximum(var + fits.sigma_offset_ns**2, 1e-12)
        gain, gain_slope = var / total, cov / total
        lines = _Lines(
            fits.ref_ns,
            old.offset_ns,
            predicted + gain * innovation,
            old.slope + gain_slope * innovation,
            (1 - gain) * var,
            (1 - gain) * cov,
            var_slope - gain_slope * cov,
        )
        return lines, innovation**2 / total

    def _remember_floor(self, fits: EdgeFits, due: Bool) -> None:
        """Learn margins, but none that lies below the floor by more than its error: its window was bent.

        Unless that goes on: then the way has become shorter.
        """
        floor, sigma_floor = self._floor()
        allowed = SURE_SIGMAS * np.hypot(fits.sigma_offset_ns, np.nan_to_num(sigma_floor))
        below = due & (fits.margin_ns < floor - allowed)
        self._below = np.where(due, np.where(below, self._below + 1, 0), self._below)
        shorter = self._below >= _SHORTER_AFTER
        self._margins[shorter] = self._margin_sigmas[shorter] = np.nan
        self._below[shorter] = 0
        rows = np.flatnonzero(due & (~below | shorter))
        column = self._next[rows] % _FLOOR_DEPTH
        self._margins[rows, column] = fits.margin_ns[rows]
        self._margin_sigmas[rows, column] = fits.sigma_offset_ns[rows]
        self._next[rows] += 1

    def _margin_count(self) -> I64:
        """How many margins are remembered: int64 [edges]."""
        return np.asarray(np.count_nonzero(~np.isnan(self._margins), axis=1), np.int64)

    def _floor(self) -> tuple[F64, F64]:
        most = at_most(self._margins, self._margin_sigmas)
        best = np.argmin(np.where(np.isnan(most), np.inf, most), axis=1)[:, None]
        return (
            np.take_along_axis(self._margins, best, axis=1)[:, 0],
            np.take_along_axis(self._margin_sigmas, best, axis=1)[:, 0],
        )
