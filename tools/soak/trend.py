"""Whether what a process holds grows: the slope over time, robustly, with its uncertainty. No I/O."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Verdict = Literal["flat", "grows", "open"]

BLOCK_S = 30.0
"""Samples nearer to each other than that are not independent: each block counts once, by its median."""

SETTLES_S = 600.0
"""A process's memory of its first minutes tells of no growth: tables reach back as long by design, so they fill until then."""

S_PER_H = 3600.0
CONFIDENCE = 0.99
FLAT_PER_H = 0.01


@dataclass(frozen=True)
class Trend:
    """Growth as a share of the mean level, an hour.

    Attributes:
        level: median of what was sampled.
        per_h: the slope.
        low_per_h, high_per_h: its confidence interval; infinite where too little is known.
    """

    level: float
    per_h: float
    low_per_h: float
    high_per_h: float

    @property
    def verdict(self) -> Verdict:
        """Flat where it surely grows by less than `FLAT_PER_H`, growing where surely by more."""
        if self.high_per_h < FLAT_PER_H:
            return "flat"
        return "grows" if self.low_per_h > FLAT_PER_H else "open"


def trend(series: Sequence[tuple[Floats, Floats]]) -> Trend | None:
    """The slope that several processes of one role have in common; None where there is nothing of it.

    Slopes between any two blocks of the same process are pooled, relative to its median, and their median taken
    (Theil and Sen; pooled as seasons are by Hirsch, Slack and Smith, Water Resources Research 18(1), 1982), with the interval
    of Gilbert, Statistical Methods for Environmental Pollution Monitoring, 1987, 17.3.

    Args:
        series: for each process the times in s and the values, both of shape (n,).
    """
    blocks = [block for times_s, values in series if len(block := _blocks(times_s, values)[1])]
    if not blocks:
        return None
    level = float(np.median([np.median(values) for values in blocks]))
    slopes, variance = [], 0.0
    for times_s, values in series:
        at_s, medians = _blocks(times_s, values)
        scale = float(np.median(medians)) if len(medians) else 0.0
        if len(medians) < 2 or scale <= 0:
            continue
        first, second = np.triu_indices(len(medians), 1)
        slopes.append((medians[second] - medians[first]) / (at_s[second] - at_s[first]) * S_PER_H / scale)
        variance += _variance(medians)
    if not slopes:
        return Trend(level, 0.0, -np.inf, np.inf)
    ordered = np.sort(np.concatenate(slopes))
    reach = NormalDist().inv_cdf((1 + CONFIDENCE) / 2) * np.sqrt(variance)
    return Trend(
        level,
        float(np.median(ordered)),
        _ranked(ordered, (len(ordered) - reach) / 2),
        _ranked(ordered, (len(ordered) + reach) / 2),
    )


def _variance(values: Floats) -> float:
    """Of Kendall's S without a trend; values that are equal say nothing, and count so."""
    _, ties = np.unique(values, return_counts=True)
    return float(
        sum(sign * n * (n - 1) * (2 * n + 5) / 18 for sign, n in ((1, len(values)), *((-1, t) for t in ties)))
    )


def _ranked(ordered: Floats, rank: float) -> float:
    """The value of a rank, counted from 0; beyond the ends nothing is known."""
    if rank < 0 or rank > len(ordered):
        return float(-np.inf if rank < 0 else np.inf)
    return float(ordered[min(int(rank), len(ordered) - 1)])


def _blocks(times_s: Floats, values: Floats) -> tuple[Floats, Floats]:
    """Mean time and median value of each block, shape (blocks,)."""
    if not len(times_s):
        return np.zeros(0), np.zeros(0)
    number = ((times_s - times_s[0]) // BLOCK_S).astype(int)
    each = np.unique(number)
    return (
        np.array([times_s[number == n].mean() for n in each]),
        np.array([np.median(values[number == n]) for n in each]),
    )


def unknown(series: Sequence[tuple[Floats, Floats]]) -> Trend | None:
    """Of what is too young for a slope; None where there is nothing of it."""
    values = [values for _, values in series if len(values)]
    return Trend(float(np.median(np.concatenate(values))), 0.0, -np.inf, np.inf) if values else None


def pooled(
    samples: Mapping[str, Sequence[tuple[float, float]]], since_s: float, settles_s: float = 0.0
) -> list[tuple[Floats, Floats]]:
    """What was sampled of each process from a time on and once it had settled, as `trend` takes it."""
    found = []
    for each in samples.values():
        from_s = max(since_s, min((at_s for at_s, _ in each), default=0.0) + settles_s)
        pairs = np.array([pair for pair in each if pair[0] >= from_s], float).reshape(-1, 2)
        found.append((pairs[:, 0], pairs[:, 1]))
    return found
