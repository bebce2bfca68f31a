"""In which rhythm queue pairs send: the period of their bursts. Pure.

A training job repeats one iteration: what its queue pairs send in one is what they send in the next, so the activity of
all together is like itself one period later. The period is the first peak of the autocorrelation that is nearly as high as
the highest, as Falcon finds iterations (arXiv 2410.12588). Iterations vary, so each is then found by itself, where what follows
is most like what followed the beginnings of those before.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

BIN_NS = 2_000_000
"""Finer than the end of a burst is known: a period of a few bins would not be seen at its full likeness."""

SHORTEST_BURST_NS = 1_000_000
LEAST_BINS = 10
"""Of a period: a shorter one is not told from noise."""

LEAST_PERIODS = 6
"""That must have been seen of it."""

NEARLY = 0.9
"""Of the highest peak."""

LEAST_LIKENESS, FEW_PERIODS = 0.3, 1.4
"""Of the activity with itself a period later: below the first there is no rhythm, nor below the second over the root of how many
periods were seen."""

MULTIPLES = 6
DIP = 0.2
"""So much less like itself the activity is some time before a period is over."""


SMOOTHED = 0.15
"""Of a lag, or twice as much: over so long activity is smoothed that is compared at it."""

LEAST_VARIATION = 1e-6
"""Of all variation, in what is compared: less is what is left of rounding."""

REACH = 0.25
"""Of a period: by so much at most an iteration is shorter or longer."""

SILENT = 0.01
"""Of the busiest bin: below it a bin sends next to nothing."""

Floats = NDArray[np.float64]
Rows = NDArray[np.void]


@dataclass(frozen=True, eq=False)
class Rhythm:
    """In which rhythm queue pairs send.

    Attributes:
        period_ns: the mean.
        likeness: how like itself the activity is a period later, 1 for exactly.
        starts: the bin in which each iteration begins, shape (iterations,).
    """

    period_ns: float
    likeness: float
    starts: NDArray[np.intp]


def activity(bursts: Rows, until_ns: int, bins: int) -> Floats:
    """Bytes in each of so many bins of BIN_NS until a moment, each burst's spread evenly over it.

    Args:
        bursts: dtype BURST_ROW, shape (n,).
        until_ns: on the timeline.
        bins: how many.

    Returns:
        Shape (bins,), the earliest first.
    """
    start_ns = (bursts["start_ns"] - until_ns).astype(np.float64)
    length_ns = np.maximum(bursts["end_ns"] - bursts["start_ns"], SHORTEST_BURST_NS)
    rate = bursts["bytes"] / length_ns
    times_ns = np.concatenate([start_ns, start_ns + length_ns])
    order = np.argsort(times_ns, kind="stable")
    times_ns, rates = times_ns[order], np.cumsum(np.concatenate([rate, -rate])[order])
    sent = np.concatenate([[0.0], np.cumsum(rates[:-1] * np.diff(times_ns))]) if len(times_ns) else rates
    edges_ns = BIN_NS * np.arange(-bins, 1, dtype=np.float64)
    if not len(times_ns):
        return np.zeros(bins)
    found: Floats = np.maximum(np.diff(np.interp(edges_ns, times_ns, sent)), 0.0)
    return found


def rhythm(sent: Floats) -> Rhythm | None:
    """In which rhythm it was sent, by bytes in each bin, shape (bins,); None where there is none."""
    like = _likeness(sent)
    peaks = _peaks(like[: len(sent) // LEAST_PERIODS + 2])
    peaks = peaks[peaks >= LEAST_BINS]
    scores = np.array([_score(like, lag) for lag in peaks.tolist()])
    sure = scores >= np.maximum(LEAST_LIKENESS, FEW_PERIODS / np.sqrt(len(sent) / peaks))
    if not sure.any():
        return None
    first = int(peaks[sure][np.flatnonzero(scores[sure] >= NEARLY * scores[sure].max())[0]])
    starts = _starts(sent, first)
    return Rhythm(float(np.diff(starts).mean()) * BIN_NS, float(min(like[first], 1.0)), starts)


def _score(like: Floats, lag: int) -> float:
    """How like itself the activity is after so many bins, and after all multiples of them, in the mean."""
    found, near = [], lag
    while near < len(like) and len(found) < MULTIPLES:
        reach = max(1, near // 20)
        at = near - reach + int(np.argmax(like[near - reach : near + reach + 1]))
        found.append(like[at])
        near = round(at * (len(found) + 1) / len(found))
    return float(np.mean(found))


def _likeness(sent: Floats) -> Floats:
    """The autocorrelation by lag in bins, shape (2 * bins // 3,).

    For lags of each octave of what is smoothed over a share of them: iterations vary by more where they are longer.
    """
    most = 2 * len(sent) // 3
    like = np.ones(most)
    begin = LEAST_BINS // 2
    while begin < most:
        width = max(1, round(SMOOTHED * begin))
        smooth = np.convolve(sent, np.full(width, 1 / width), "valid")
        end = min(2 * begin, most)
        like[begin:end] = _autocorrelation(smooth, end)[begin:]
        begin *= 2
    return like


def _autocorrelation(sent: Floats, most: int) -> Floats:
    """Pearson's correlation of what was sent with itself by lag in bins, shape (most,); zeros where nothing varies."""
    n, lag = len(sent), np.arange(min(most, len(sent) - 1))
    deviation = sent - sent.mean()
    spectrum = np.fft.rfft(deviation, 2 * n)
    products = np.fft.irfft(np.abs(spectrum) ** 2)[: len(lag)]
    sums, squares = (np.concatenate([[0.0], np.cumsum(deviation**power)]) for power in (1, 2))
    count = n - lag
    early, late = sums[n - lag], sums[n] - sums[lag]
    varies = squares[n - lag] - early**2 / count, squares[n] - squares[lag] - late**2 / count
    scale = np.sqrt(np.maximum(varies[0], 0.0) * np.maximum(varies[1], 0.0))
    found = np.zeros(most)
    enough = scale > LEAST_VARIATION * squares[n]
    np.divide(products - early * late / count, scale, out=found[: len(lag)], where=enough)
    return found


def _peaks(like: Floats) -> NDArray[np.intp]:
    """Lags that are higher than both their neighbours, and by DIP than some before."""
    inner = like[1:-1]
    above = inner - np.minimum.accumulate(like)[:-2] >= DIP
    return np.flatnonzero((inner > like[:-2]) & (inner >= like[2:]) & above) + 1


def _starts(sent: Floats, period: int) -> NDArray[np.intp]:
    """The bin in which each iteration begins: where what follows is most like what followed the beginnings before.

    Iterations vary, so each is looked for a period after the one before it, give or take `REACH` of a period. The first
    begins at the end of the longest pause.
    """
    begin = _end_of_pause(sent[: 2 * period])
    starts, pattern = [begin], sent[begin : begin + period].copy()
    reach = max(1, round(REACH * period))
    while (near := starts[-1] + period) + period + reach <= len(sent):
        found = np.correlate(sent[near - reach : near + period + reach], pattern, "valid")
        starts.append(near - reach + int(np.argmax(found)))
        pattern += (sent[starts[-1] : starts[-1] + period] - pattern) / len(starts)
    return np.array(starts, np.intp)


def _end_of_pause(sent: Floats) -> int:
    """Where the longest run of bins that send next to nothing ends."""
    silent = np.concatenate([[False], sent < SILENT * sent.max(), [False]])
    edges = np.flatnonzero(np.diff(silent.astype(np.int8)))
    begins, ends = edges[::2], edges[1::2]
    inner = ends < len(sent)
    if not inner.any():
        return 0
    longest = int(np.argmax(np.where(inner, ends - begins, -1)))
    return int(ends[longest])
