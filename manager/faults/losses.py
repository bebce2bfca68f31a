"""From lost probes to the cause that explains them best. No I/O.

Each class of causes is held against the others by its likelihood, as in Flock (Harsh et al., "Flock: Accurate network
fault localization at scale", CoNEXT 2023) and 007 (Arzani et al., NSDI 2018): probes that meet the cause are lost
with one probability, all others with another, both at their most likely values. A cause is believed
when it explains the losses far better than one probability for all probes does, so that losses which are everywhere
blame nobody, and when hardly any probability is left for the other causes. Several spans of windows that end now are
looked at, short ones for grave faults, long ones for faint ones.
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from manager.faults.causes import Causes
from manager.faults.probe_history import ProbeHistory

SPANS = (3, 6, 12, 20, 40)
"""Windows."""

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


@dataclass(frozen=True)
class Explanation:
    """The best explanation.

    Attributes:
        number: of the class.
        confidence: its share of the probability of all classes.
        gain: log likelihood ratio to losses alike everywhere.
        sent, lost: probes that met the cause.
        elsewhere: share of the others that was lost.
        windows: the span looked at.
        of_late: share of the probes that meet the cause that was lost in the last two windows. Where a link has died
            within a window, some came through in the first.
    """

    number: int
    confidence: float
    gain: float
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

    def by_class(self, place: int) -> tuple[Floats, Floats]:
        """As many that met each class's cause, shape (classes,) each."""
        ...

    def lost_ever(self, number: int) -> float:
        """How many that met a class's cause were lost in the longest span."""
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
        sent, lost = self._rows(place)
        return float(sent.sum()), float(lost.sum())

    def by_class(self, place: int) -> tuple[Floats, Floats]:
        """See `Sums`."""
        sent, lost = self._rows(place)
        return self.causes.by_class @ sent, self.causes.by_class @ lost

    def lost_ever(self, number: int) -> float:
        """See `Sums`."""
        return float(self.history.lost_sums[-1][self._of(number)].sum())

    def windows_with_loss(self, number: int, span: int) -> int:
        """See `Sums`."""
        return int(np.count_nonzero(self.history.lost[-span:, self._of(number)].any(axis=1)))

    def of_late(self, number: int) -> tuple[float, float]:
        """See `Sums`."""
        rows = self._of(number)
        sent, lost = (
            float(each[-LATE_WINDOWS:, rows].sum()) for each in (self.history.sent, self.history.lost)
        )
        return sent, lost

    def _rows(self, place: int) -> tuple[Floats, Floats]:
        sent, lost = (
            np.where(self.explained, 0.0, sums[place])
            for sums in (self.history.sent_sums, self.history.lost_sums)
        )
        return sent, lost

    def _of(self, number: int) -> NDArray[np.intp]:
        by_class = self.causes.by_class
        rows = by_class.indices[by_class.indptr[number] : by_class.indptr[number + 1]]
        return np.asarray(rows[~self.explained[rows]], np.intp)


def best_explanation(sums: Sums, prior: Floats) -> Explanation | None:
    """The class that explains the losses of some span, where that is far beyond chance.

    Args:
        sums: of probes.
        prior: log prior of each class, shape (classes,).
    """
    explanations = [
        explanation for place in range(len(SPANS)) if (explanation := _over(sums, prior, place)) is not None
    ]
    return max(explanations, key=lambda explanation: explanation.gain, default=None)


def _over(sums: Sums, prior: Floats, place: int) -> Explanation | None:
    all_sent, all_lost = sums.totals(place)
    if not len(prior) or all_lost < LEAST_WINDOWS_WITH_LOSS:
        return None
    sent, lost = sums.by_class(place)
    score, elsewhere = _score(sent, lost, all_sent, all_lost)
    posterior = score + prior
    best = int(np.argmax(posterior))
    gain = float(score[best] - _uniform(all_sent, all_lost))
    others_lost = sums.totals(-1)[1] - sums.lost_ever(best)
    needed = EVIDENCE + np.log(len(sent)) + EVIDENCE_AMID_LOSSES * min(1.0, others_lost / MANY_LOST)
    if gain < needed or sums.windows_with_loss(best, SPANS[place]) < LEAST_WINDOWS_WITH_LOSS:
        return None
    late_sent, late_lost = sums.of_late(best)
    return Explanation(
        number=best,
        confidence=float(np.exp(posterior[best] - logsumexp(posterior))),
        gain=gain,
        sent=int(sent[best]),
        lost=int(lost[best]),
        elsewhere=float(elsewhere[best]),
        windows=SPANS[place],
        of_late=late_lost / max(late_sent, 1.0),
    )


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
