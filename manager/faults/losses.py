"""From lost probes to the cause that explains them best. No I/O.

Each class of causes is held against the others by its likelihood, as in Flock (Harsh et al., "Flock: Accurate network
fault localization at scale", CoNEXT 2023) and 007 (Arzani et al., NSDI 2018): probes that meet the cause are lost
with one probability, all others with another, both at their most likely values. A cause is believed
when it explains the losses far better than one probability for all probes does, so that losses which are everywhere
blame nobody, and when hardly any probability is left for the other causes. Several spans of windows that end now are
looked at, short ones for grave faults, long ones for faint ones.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.special import logsumexp

from manager.faults.causes import Causes
from manager.faults.probe_history import ProbeHistory

SPANS = (3, 6, 12, 20, 40)
"""Windows."""

ROUNDING = 1e-6
"""Log likelihoods that differ by less may be the same."""

LEAST_LOSS = 3e-4
"""Losses that are rarer than this anyhow are no surprise."""

EVIDENCE = 4.5
"""Log likelihood ratio, beside the logarithm of how many causes there are to choose from."""

EVIDENCE_AMID_LOSSES = 10.0
"""As much more where probes that do not meet the cause have been lost too, `MANY_LOST` or more of late."""

MANY_LOST = 4.0

SURE = 0.98
LIKELY = 0.4
DEADLINE_WINDOWS = 10
LEAST_WINDOWS_WITH_LOSS = 3
LATE_WINDOWS = 2
HARD_LOSS = 0.5
OVERFLOW_POWER = 2.0
LEAST_RANK = 0.05
FOR_LINK = 3.5
FOR_OVERFLOW = -2.0

Floats = NDArray[np.float64]
Rows = NDArray[np.bool_]
Indices = NDArray[np.intp]


@dataclass(frozen=True)
class Explanation:
    """The best explanation.

    Attributes:
        number: of the class.
        confidence: its share of the probability of all classes.
        gain: log likelihood ratio to losses alike everywhere.
        likelihood: log likelihood of all windows where it has lost since the span began, and nothing was at fault before.
        sent, lost: probes that met the cause.
        elsewhere: share of the others that was lost.
        windows: the span looked at.
        of_late: share of the probes that meet the cause that was lost in the last two windows. Where a link has died
            within a window, some came through in the first.
    """

    number: int
    confidence: float
    gain: float
    likelihood: float
    sent: int
    lost: int
    elsewhere: float
    windows: int
    of_late: float

    @property
    def loss(self) -> float:
        """Share of the probes that meet the cause that are lost."""
        return self.lost / self.sent


class Sums(Protocol):
    """All that decides between classes: sums over probes, so that those of the parts of a fleet add up.

    None of them takes in probes whose losses are explained already.
    """

    def totals(self, place: int) -> tuple[float, float]:
        """How many probes were sent in a span, of `SPANS` the one at some place, and lost."""
        ...

    def lost_by_class(self, place: int) -> Floats:
        """How many of those lost met each class's cause, shape (classes,)."""
        ...

    def sent_by_class(self, place: int, classes: Indices | None = None) -> Floats:
        """How many of those sent met the cause of each, or of some classes, shape (those classes,)."""
        ...

    def windows_with_loss(self, number: int, span: int) -> int:
        """In how many of the last windows some of those were lost."""
        ...

    def of_late(self, number: int) -> tuple[float, float]:
        """How many of those were sent in the last `LATE_WINDOWS`, and lost."""
        ...


@dataclass(frozen=True)
class RowSums:
    """Sums over rows.

    Attributes:
        history: what became of probes.
        explained: rows whose losses are, shape (rows,).
        causes: to choose from.
    """

    history: ProbeHistory
    explained: Rows
    causes: Causes

    def totals(self, place: int) -> tuple[float, float]:
        """See `Sums`."""
        lost = float(self.history.lost_sums[place, self._losing].sum())
        return float(self._sent(place).sum()), lost

    def lost_by_class(self, place: int) -> Floats:
        """See `Sums`."""
        return np.asarray(self._met.T @ self.history.lost_sums[place, self._losing])

    def sent_by_class(self, place: int, classes: Indices | None = None) -> Floats:
        """See `Sums`."""
        by_class = self.causes.by_class if classes is None else self.causes.by_class[classes]
        return np.asarray(by_class @ self._sent(place))

    def windows_with_loss(self, number: int, span: int) -> int:
        """See `Sums`."""
        return int(np.count_nonzero(self.history.lost_of(self._of(number), span).any(axis=1)))

    def of_late(self, number: int) -> tuple[float, float]:
        """See `Sums`."""
        rows = self._of(number)
        sent = self.history.sent_over(LATE_WINDOWS)[rows].sum()
        return float(sent), float(self.history.lost_of(rows, LATE_WINDOWS).sum())

    @cached_property
    def _losing(self) -> Indices:
        """The rows that lost something which is not explained."""
        losing = np.flatnonzero(self.history.lost_sums[-1])
        return losing[~self.explained[losing]]

    @cached_property
    def _met(self) -> csr_array:
        """The classes whose cause these rows meet, shape (losing rows, classes)."""
        return csr_array(self.causes.rows[self._losing])

    def _sent(self, place: int) -> Floats:
        sent = self.history.sent_over(SPANS[place]).astype(np.float64)
        sent[self.explained] = 0.0
        return sent

    def _of(self, number: int) -> Indices:
        rows = self.causes.rows_of(number)
        return np.asarray(rows[~self.explained[rows]], np.intp)


def best_explanation(sums: Sums, prior: Floats) -> Explanation | None:
    """The class that explains the losses of some span, where that is far beyond chance.

    Of several spans the one since whose beginning the fault is most likely there: a longer one than that would have a dead
    link lose a part of its probes, as a queue does.

    Args:
        sums: of probes.
        prior: log prior of each class, shape (classes,).
    """
    if not len(prior):
        return None
    lost = [sums.lost_by_class(place) for place in range(len(SPANS))]
    explanations = [
        explanation
        for place in range(len(SPANS))
        if lost[place].max() >= LEAST_WINDOWS_WITH_LOSS
        and (explanation := _over(sums, prior, place, lost[place], lost[-1])) is not None
    ]
    return max(explanations, key=lambda explanation: explanation.likelihood, default=None)


def _over(sums: Sums, prior: Floats, place: int, lost: Floats, lost_ever: Floats) -> Explanation | None:
    (all_sent, all_lost), (ever_sent, ever_lost) = sums.totals(place), sums.totals(-1)
    needed = _needed(ever_lost - lost_ever)
    if not _may_suffice(sums, place, lost, needed, (all_sent, all_lost)):
        return None
    sent = sums.sent_by_class(place)
    score, elsewhere = _score(sent, lost, all_sent, all_lost)
    posterior = score + prior
    best = int(np.argmax(posterior))
    gain = float(score[best] - _uniform(all_sent, all_lost))
    if gain < needed[best] or sums.windows_with_loss(best, SPANS[place]) < LEAST_WINDOWS_WITH_LOSS:
        return None
    before = _log_likelihood(np.array(ever_sent - all_sent), np.array(ever_lost - all_lost), elsewhere[best])
    late_sent, late_lost = sums.of_late(best)
    return Explanation(
        number=best,
        confidence=float(np.exp(posterior[best] - logsumexp(posterior))),
        gain=gain,
        likelihood=float(score[best] + before),
        sent=int(sent[best]),
        lost=int(lost[best]),
        elsewhere=float(elsewhere[best]),
        windows=SPANS[place],
        of_late=late_lost / max(late_sent, 1.0),
    )


def _needed(others_lost: Floats) -> Floats:
    """The gain from which a class is believed, by what was lost of probes that do not meet it; shape (classes,)."""
    amid_losses = EVIDENCE_AMID_LOSSES * np.minimum(1.0, others_lost / MANY_LOST)
    return np.asarray(EVIDENCE + np.log(len(others_lost)) + amid_losses)


def _may_suffice(sums: Sums, place: int, lost: Floats, needed: Floats, totals: tuple[float, float]) -> bool:
    """Whether any class explains enough. Most can be ruled out by how little they lost, had they sent no more than that."""
    uniform = _uniform(*totals)
    most = _score(lost, lost, *totals)[0] - uniform
    some = np.flatnonzero((lost >= LEAST_WINDOWS_WITH_LOSS) & (most + ROUNDING >= needed))
    if not len(some):
        return False
    sent = sums.sent_by_class(place, some)
    gain = _score(sent, lost[some], *totals)[0] - uniform
    return bool((gain + ROUNDING >= needed[some]).any())


def overflowed(rank: Floats, background: float) -> bool | None:
    """Whether losses come from queues that overflow, which is not the link's fault.

    A sequential test (Wald 1945) of how long the paths' queues were when probes were lost. A faulty link loses at any
    time, so that ranks are uniform; an overflowing queue loses when it is at its longest, which is taken for a rank
    density of 3 u^2, amid the losses that others have as well.

    Args:
        rank: for each lost probe whose path's delay at that time is known, the share of other times when it was less.
        background: the share of losses that would be there anyhow.

    Returns:
        False where it is the link, True where it is the queue, None where that cannot be told yet.
    """
    queue = (OVERFLOW_POWER + 1.0) * np.clip(rank, LEAST_RANK, 1.0) ** OVERFLOW_POWER
    for_link = -float(np.log(background + (1.0 - background) * queue).sum())
    if for_link > FOR_LINK:
        return False
    return True if for_link < FOR_OVERFLOW else None


def _score(sent: Floats, lost: Floats, all_sent: float, all_lost: float) -> tuple[Floats, Floats]:
    """Log likelihood of all probes under each class, and the loss among those that do not meet it."""
    rest_sent, rest_lost = all_sent - sent, all_lost - lost
    outside = np.maximum(rest_lost / np.maximum(rest_sent, 1.0), LEAST_LOSS)
    inside = np.maximum(lost / np.maximum(sent, 1.0), outside)
    score = _log_likelihood(sent, lost, inside) + _log_likelihood(rest_sent, rest_lost, outside)
    return score, outside


def _uniform(all_sent: float, all_lost: float) -> float:
    share = max(all_lost / max(all_sent, 1.0), LEAST_LOSS)
    return float(_log_likelihood(np.array(all_sent), np.array(all_lost), np.array(share)))


def _log_likelihood(sent: Floats, lost: Floats, share: Floats) -> Floats:
    share = np.minimum(share, 1.0 - 1e-9)
    return np.asarray(lost * np.log(share) + (sent - lost) * np.log1p(-share))


class Recovery:
    """Whether a cause that was found has gone: a sequential test, its loss against next to none (Wald 1945).

    Args:
        loss: that was found.
    """

    CLEAR = 7.0
    LEAST_WINDOWS = 5

    def __init__(self, loss: float) -> None:
        self._loss = min(max(loss, 2 * LEAST_LOSS), 0.9)
        self._for_recovery = 0.0
        self._windows = 0

    def add(self, sent: float, lost: float, elsewhere: float) -> bool:
        """Take in a window's probes that meet the cause alone; whether it is over."""
        healthy = min(max(elsewhere, LEAST_LOSS), self._loss / 2)
        ratio = lost * np.log(healthy / self._loss) + (sent - lost) * np.log((1 - healthy) / (1 - self._loss))
        self._for_recovery = max(0.0, self._for_recovery + float(ratio))
        self._windows = self._windows + 1 if self._for_recovery > 0.0 else 0
        return self._for_recovery > self.CLEAR and self._windows >= self.LEAST_WINDOWS


class Silence:
    """Whether nothing comes through any more where some did: a link may die one way first, and then the other.

    Args:
        loss: that was found; as many probes in a row would be lost by it once in a thousand million times.
    """

    LEAST_WINDOWS, CHANCE = 5, 1e-9

    def __init__(self, loss: float) -> None:
        self._enough = np.log(self.CHANCE) / np.log(min(max(loss, LEAST_LOSS), 0.9))
        self._windows, self._lost = 0, 0.0

    def add(self, sent: float, lost: float) -> bool:
        """Take in a window's probes that meet the cause alone; whether all have been lost for long enough."""
        if lost < sent:
            self._windows, self._lost = 0, 0.0
        elif sent:
            self._windows, self._lost = self._windows + 1, self._lost + lost
        return self._windows >= self.LEAST_WINDOWS and self._lost >= self._enough
