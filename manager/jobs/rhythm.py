"""In which rhythm queue pairs send: the period of their bursts. Pure.

A training job repeats one iteration: what its queue pairs send in one is what they send in the next, so the activity of
all together is like itself one period later. The period is the first peak of the autocorrelation that is nearly as high as
the highest, as Falcon finds iterations (arXiv 2410.12588). Iterations vary, so each is then found by itself: where a pause of
all ends, if there is one in each, else where what follows is most like what followed the beginnings of those before.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from manager.jobs.flows import BurstColumns

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

COARSE = 6
"""Bins that tell what is smoothed over so many times as many."""

LEAST_VARIATION = 1e-6
"""Of all variation, in what is compared: less is what is left of rounding."""

REACH, LATEST = 0.25, 4
"""Of the median of the latest iterations' lengths: by so much at most one is shorter or longer, or several are until one is found."""

CHANGED = 0.05
"""By so much iterations of one half of the time are longer than those of the other where they have become others."""

CLEAR, CLEARER = 0.8, 0.1
"""Of likeness: with so much nothing has changed, and with so much more in either half something has."""

MOST_TIMES = 2
"""An iteration's length is followed as far as this many times shorter or longer."""

SILENT = 0.01
"""Of the busiest bin: below it a bin sends next to nothing."""

PAUSE_BINS, LONG_PAUSE = 5, 0.5
"""An iteration's pause lasts so long at least; one of so much of their median is one of them."""

PAUSED, SHORT_CUT = 0.5, 0.5
"""Iterations begin where pauses end if that is a period apart in this share of cases, and in none less than that share of a period."""

PARTS = (2, 3)
ALIKE = 0.1
"""By no more of their mean the medians of the lengths and of the sizes of iterations differ that are alike."""

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Rhythm:
    """In which rhythm queue pairs send.

    Attributes:
        period: the mean, in bins.
        likeness: how like itself the activity is a period later, 1 for exactly.
        starts: the bin in which each iteration begins, shape (iterations,).
    """

    period: float
    likeness: float
    starts: NDArray[np.intp]


def activity(bursts: BurstColumns, until_ns: int, bins: int, bin_ns: int) -> Floats:
    """Bytes in each of so many bins until a moment, each burst's spread evenly over it.

    Args:
        bursts: shape (n,).
        until_ns: on the timeline.
        bins: how many.
        bin_ns: how long each is.

    Returns:
        Shape (bins,), the earliest first.
    """
    start_ns = (bursts.start_ns - until_ns).astype(np.float64)
    length_ns = np.maximum(bursts.end_ns - bursts.start_ns, SHORTEST_BURST_NS)
    rate = bursts.bytes / length_ns
    times_ns = np.concatenate([start_ns, start_ns + length_ns])
    order = np.argsort(times_ns, kind="stable")
    times_ns, rates = times_ns[order], np.cumsum(np.concatenate([rate, -rate])[order])
    sent = np.concatenate([[0.0], np.cumsum(rates[:-1] * np.diff(times_ns))]) if len(times_ns) else rates
    edges_ns = bin_ns * np.arange(-bins, 1, dtype=np.float64)
    if not len(times_ns):
        return np.zeros(bins)
    found: Floats = np.maximum(np.diff(np.interp(edges_ns, times_ns, sent)), 0.0)
    return found


def rhythm(sent: Floats, shortest: int = LEAST_BINS) -> Rhythm | None:
    """In which rhythm some flows were sent; None where there is none.

    Each is compared with itself: what all send together may come twice in an iteration where what each sends comes once, as in a
    pipeline. Where the first half of the time has another rhythm than the second, iterations are those of the two.

    Args:
        sent: bytes in each bin, shape (flows, bins); what is before the first byte does not count.
        shortest: no period is shorter, in bins. The less short it is, the less there is to compute.
    """
    silent = int(np.argmax(sent.sum(axis=0) >= 1.0))
    found = _of_either_half(sent[:, silent:], max(shortest, LEAST_BINS))
    return None if found is None else Rhythm(found.period, found.likeness, silent + found.starts)


def _of_either_half(sent: Floats, shortest: int) -> Rhythm | None:
    whole = _rhythm(sent, shortest)
    if whole is not None and whole.likeness >= CLEAR:
        return whole
    middle = sent.shape[1] // 2
    first, second = (_rhythm(half, shortest) for half in (sent[:, :middle], sent[:, middle:]))
    if first is None or second is None or not _differ(first, second):
        return whole
    paused = _ends_of_pauses(sent.sum(axis=0), [each.period for each in (first, second)])
    if paused is not None:
        return Rhythm(_period(paused), max(first.likeness, second.likeness), paused)
    likeness = min(first.likeness, second.likeness)
    if whole is not None and likeness < whole.likeness + CLEARER:
        return whole
    begins = middle + second.starts
    starts = np.concatenate([first.starts, begins[begins > first.starts[-1] + first.period / 2]])
    return Rhythm(_period(starts), likeness, starts)


def _differ(first: Rhythm, second: Rhythm) -> bool:
    lengths = [float(np.median(np.diff(each.starts))) for each in (first, second)]
    return max(lengths) > (1 + CHANGED) * min(lengths)


def _rhythm(sent: Floats, shortest: int) -> Rhythm | None:
    if sent.shape[1] < LEAST_PERIODS * LEAST_BINS:
        return None
    like = _likeness(sent, shortest)
    sent = sent.sum(axis=0)
    peaks = _peaks(like[: len(sent) // LEAST_PERIODS + 2])
    peaks = peaks[peaks >= shortest]
    scores = np.array([_score(like, lag) for lag in peaks.tolist()])
    sure = scores >= np.maximum(LEAST_LIKENESS, FEW_PERIODS / np.sqrt(len(sent) / peaks))
    if not sure.any():
        return None
    first = int(peaks[sure][np.flatnonzero(scores[sure] >= NEARLY * scores[sure].max())[0]])
    starts = _ends_of_pauses(sent, [first])
    if starts is None and like[first] < CLEAR:
        starts = _of_parts(sent, first)
    if starts is None:
        starts = _starts(sent, first)
    return Rhythm(_period(starts), float(min(like[first], 1.0)), starts)


def _period(starts: NDArray[np.intp]) -> float:
    return float(np.diff(starts).mean())


def _score(like: Floats, lag: int) -> float:
    """How like itself the activity is after so many bins, and after all multiples of them, in the mean."""
    near, found = lag, list[float]()
    while near < len(like) and len(found) < MULTIPLES:
        reach = max(1, near // 20)
        at = near - reach + int(np.argmax(like[near - reach : near + reach + 1]))
        found.append(float(like[at]))
        near = round(at * (len(found) + 1) / len(found))
    return float(np.mean(found))


def _likeness(sent: Floats, shortest: int) -> Floats:
    """The autocorrelation by lag in bins, the mean of some flows', shape (2 * bins // 3,); 1 where lags are too short to matter.

    For lags of each octave of what is smoothed over a share of them, as iterations vary by more where they are longer; of what is
    so smooth every few bins tell all.
    """
    most = 2 * sent.shape[1] // 3
    like = np.ones(most)
    begin, step = LEAST_BINS // 2, 1
    while 2 * begin <= shortest:
        begin *= 2
    while begin < most:
        width = max(1, round(SMOOTHED * begin))
        while 2 * step <= width // COARSE:
            sent, step = _halved(sent), 2 * step
        end = min(2 * begin, most)
        coarse = _autocorrelation(_smooth(sent, max(1, width // step)), end // step + 2).mean(axis=0)
        like[begin:end] = np.interp(np.arange(begin, end), step * np.arange(len(coarse)), coarse)
        begin *= 2
    return like


def _halved(sent: Floats) -> Floats:
    """The mean of every two bins of each row."""
    whole = sent[:, sent.shape[1] % 2 :]
    found: Floats = (whole[:, ::2] + whole[:, 1::2]) / 2
    return found


def _smooth(sent: Floats, width: int) -> Floats:
    """Means of so many neighbouring bins of each row."""
    sums = np.cumsum(sent, axis=1)
    sums[:, width:] -= sums[:, :-width].copy()
    found: Floats = sums[:, width - 1 :] / width
    return found


def _autocorrelation(sent: Floats, most: int) -> Floats:
    """Pearson's correlation of each row with itself by lag in bins, shape (rows, most); zeros where nothing varies."""
    n = sent.shape[1]
    lag = np.arange(min(most, n - 1))
    deviation = sent - sent.mean(axis=1, keepdims=True)
    spectrum = np.fft.rfft(deviation, 1 << (n + len(lag)).bit_length())
    products = np.fft.irfft(spectrum.real**2 + spectrum.imag**2)[:, : len(lag)]
    sums, squares = (_sums(deviation**power) for power in (1, 2))
    count = n - lag
    early, late = sums[:, n - lag], sums[:, n, None] - sums[:, lag]
    varies = (
        squares[:, n - lag] - early**2 / count,
        squares[:, n, None] - squares[:, lag] - late**2 / count,
    )
    scale = np.sqrt(np.maximum(varies[0], 0.0) * np.maximum(varies[1], 0.0))
    found = np.zeros((len(sent), most))
    enough = scale > LEAST_VARIATION * squares[:, n, None]
    np.divide(products - early * late / count, scale, out=found[:, : len(lag)], where=enough)
    return found


def _sums(values: Floats) -> Floats:
    """Of the first so many of each row, shape (rows, n + 1)."""
    found = np.zeros((len(values), values.shape[1] + 1))
    np.cumsum(values, axis=1, out=found[:, 1:])
    return found


def _peaks(like: Floats) -> NDArray[np.intp]:
    """Lags that are higher than both their neighbours, and by DIP than some before."""
    inner = like[1:-1]
    above = inner - np.minimum.accumulate(like)[:-2] >= DIP
    return np.flatnonzero((inner > like[:-2]) & (inner >= like[2:]) & above) + 1


def _ends_of_pauses(sent: Floats, periods: Sequence[float]) -> NDArray[np.intp] | None:
    """Where each iteration begins if nobody sends before; None where iterations have no pause, or several.

    So one of another length is seen as soon as it is over.

    Args:
        sent: bytes in each bin, shape (bins,).
        periods: of the time, or of parts of it, in bins.
    """
    begins, ends = _pauses(sent)
    lengths = ends - begins
    expected = max(round(PAUSED * len(sent) / max(periods)), 1)
    usual = float(np.median(np.sort(lengths)[-expected:])) if len(lengths) else 0.0
    if usual < PAUSE_BINS:
        return None
    starts = ends[lengths >= LONG_PAUSE * usual]
    apart = np.diff(starts)
    if len(apart) < LEAST_PERIODS - 1 or apart.min() < SHORT_CUT * min(periods):
        return None
    like = np.any([np.abs(apart - period) <= REACH * period for period in periods], axis=0)
    return starts if like.mean() >= PAUSED else None


def _of_parts(sent: Floats, period: int) -> NDArray[np.intp] | None:
    """Where each begins if so long a time holds several with a pause each, that are alike; None where it does not.

    Those that vary by as much as they send are like each other some periods later by chance only.
    """
    for parts in PARTS:
        starts = _ends_of_pauses(sent, [period / parts])
        if starts is not None and _are_alike(sent, starts, parts):
            return starts
    return None


def _are_alike(sent: Floats, starts: NDArray[np.intp], parts: int) -> bool:
    """Whether iterations are as long, and send as much, whichever of so many in turn they are."""
    lengths, sizes = np.diff(starts), np.add.reduceat(sent, starts)[:-1]
    medians = np.array([[np.median(each[i::parts]) for i in range(parts)] for each in (lengths, sizes)])
    return bool((np.ptp(medians, axis=1) <= ALIKE * medians.mean(axis=1)).all())


def _starts(sent: Floats, period: int) -> NDArray[np.intp]:
    """The bin in which each iteration begins: where what follows is most like what followed the beginnings before.

    Iterations vary, so each is looked for as long after the one before it as the last ones took, give or take `REACH` of that.
    The first begins at the end of the longest pause.
    """
    begin = _end_of_pause(sent[: 2 * period])
    starts, pattern = [begin], sent[begin : begin + period].copy()
    while True:
        lasts = round(float(np.median(np.diff(starts[-LATEST:])))) if len(starts) > LATEST else period
        lasts = min(max(lasts, period // MOST_TIMES), MOST_TIMES * period)
        near, reach = starts[-1] + lasts, max(1, round(REACH * lasts))
        if near + period + reach > len(sent):
            return np.array(starts, np.intp)
        found = np.correlate(sent[near - reach : near + period + reach], pattern, "valid")
        starts.append(near - reach + int(np.argmax(found)) if found.max() > 0 else near)
        pattern += (sent[starts[-1] : starts[-1] + period] - pattern) / len(starts)


def _end_of_pause(sent: Floats) -> int:
    """Where the longest pause ends."""
    begins, ends = _pauses(sent)
    return int(ends[np.argmax(ends - begins)]) if len(ends) else 0


def _pauses(sent: Floats) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Runs of bins that send next to nothing, but for one that is not over: where each begins and ends, shape (pauses,)."""
    silent = np.concatenate([[False], sent < SILENT * sent.max(), [False]])
    edges = np.flatnonzero(np.diff(silent.astype(np.int8)))
    begins, ends = edges[::2], edges[1::2]
    over = ends < len(sent)
    return begins[over], ends[over]
