"""Follows losses: finds what is silent or lossy, and when it is well again. No I/O.

Losses of a queue that overflows blame no link: who loses probes only while its queues are long is spared, and its
losses are set aside. Only a link that loses half of its probes or more is believed to be at fault whatever
its queue.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from manager.fabric import routes
from manager.fabric.routes import MARK
from manager.faults.causes import Causes, Class, crossing, perhaps_crossing
from manager.faults.finding import Finding, Kind, Subject
from manager.faults.losses import (
    DEADLINE_WINDOWS,
    HARD_LOSS,
    LIKELY,
    SPANS,
    SURE,
    Explanation,
    Recovery,
    RowSums,
    Silence,
    best_explanation,
    overflowed,
)
from manager.faults.probe_history import ProbeHistory
from manager.faults.told import Told
from manager.links.inference import QUIET_NS, QueueInference
from manager.links.matrix import PathMatrix
from manager.paths.windows import Window

SILENT_LOSS = 0.9
LEAST_LOSSY = 0.003
MOST_ELSEWHERE = 0.1
"""Where more is lost everywhere, half of the probes may well be lost in queues too."""

LEAST_OTHERS = 12
"""Windows of a path to hold one against."""

MOST_OVERFLOWS = 4
"""Overflowing queues that are looked past at once."""

WINDOWS_PER_S = 10

Rows = NDArray[np.bool_]


@dataclass(frozen=True)
class Found:
    """A cause of losses, ready to be told."""

    kind: Kind
    named: Class
    confidence: float
    loss: float
    evidence: list[str]
    windows: int


@dataclass(kw_only=True)
class _Followed:
    finding: Finding
    recovery: Recovery
    rows: Rows
    near: Rows
    silence: Silence


class LossWatch:
    """The losses of one fleet.

    Args:
        open_finding: announces a cause and returns its finding.
        close_finding: announces that it is over.
        fall_silent: announces that what lost some loses all by now, and returns the finding that says so.

    Attributes:
        told: what other managers found; losses over that are explained.
        decides: whether to name a cause, or leave that to another manager.
    """

    def __init__(
        self,
        open_finding: Callable[[Found], Finding],
        close_finding: Callable[[Finding], None],
        fall_silent: Callable[[Finding], Finding],
    ) -> None:
        self._open, self._close, self._fall_silent = open_finding, close_finding, fall_silent
        self.told = Told()
        self.decides: Callable[[Class], bool] = _everything
        self._followed: dict[int, _Followed] = {}
        self._waited = 0
        self._matrix: PathMatrix | None = None
        self._causes: Causes | None = None
        self._history = ProbeHistory(0, SPANS)
        self._aside = np.zeros(0, bool)

    @property
    def matrix(self) -> PathMatrix | None:
        """The rows, and what they cross."""
        return self._matrix

    @property
    def history(self) -> ProbeHistory:
        """What became of the rows' probes."""
        return self._history

    @property
    def explained(self) -> Rows:
        """Rows whose losses are explained, or blame nobody: queues overflow, or a path is not known; shape (rows,)."""
        explained = self._blamed(self._explained())
        if len(explained) == len(self._aside):
            explained |= self._aside
        return explained

    @property
    def followed(self) -> list[Finding]:
        """The findings that losses are held against."""
        return [followed.finding for followed in self._followed.values()]

    def use(self, matrix: PathMatrix, causes: Causes, moved: Rows) -> None:
        """Rows or routes are others than before.

        Args:
            matrix: what they are now.
            causes: those of the matrix.
            moved: rows that lead over other links than before, so that what they lost tells nothing; shape (rows,).
        """
        self._matrix, self._causes = matrix, causes
        self.told.use(matrix)
        for followed in list(self._followed.values()):
            followed.rows = crossing(matrix, followed.finding.subject)
            followed.near = perhaps_crossing(matrix, followed.finding.links)
            if not followed.rows.any() and is_unnamed(followed.finding.subject):
                self._close(followed.finding)
                self.leave(followed.finding)
        self._history.carry_on(moved)

    def follow(self, finding: Finding) -> None:
        """Hold the losses over a subject against this finding, whoever found it."""
        if self._matrix is not None:
            rows = crossing(self._matrix, finding.subject)
            loss = finding.loss or 1.0
            self._followed[finding.number] = _Followed(
                finding=finding,
                recovery=Recovery(loss),
                rows=rows,
                near=perhaps_crossing(self._matrix, finding.links),
                silence=Silence(loss),
            )

    def leave(self, finding: Finding) -> None:
        """It is over, whoever found that; what was lost until now blames nobody else."""
        followed = self._followed.pop(finding.number, None)
        if followed is not None:
            self._history.forget(followed.rows | followed.near)

    def forget(self, rows: NDArray[np.intp]) -> None:
        """What some rows have lost until now blames nobody."""
        over = np.zeros(self._history.rows, bool)
        over[rows[rows < len(over)]] = True
        self._history.forget(over)

    def take_told(self, subjects: Mapping[str, Subject]) -> None:
        """Other managers found these and no others, by their keys; what was lost over others until now blames nobody else."""
        over = self.told.take(subjects)
        if over.any():
            self._history.forget(over)

    def step(self, windows: Sequence[Window], queues: QueueInference) -> None:
        """Take in the next windows, then look for a cause; their queues are known already."""
        if self._matrix is None or self._causes is None:
            return
        known = self._matrix.known
        for window in windows:
            self._history.add(window.sent * known, window.lost * known, window.mean_ns[0] + window.mean_ns[1])
            self._look_again(window)
        self._look_for_cause(self._causes, queues, len(windows))

    def _explained(self) -> Rows:
        explained = np.zeros(self._history.rows, bool)
        if len(self.told.rows):
            explained |= self.told.rows
        for followed in self._followed.values():
            explained |= followed.rows
        return explained

    def _blamed(self, explained: Rows) -> Rows:
        """Those, and the rows that may cross what is followed or told: only what others lost speaks."""
        blamed = explained.copy()
        if len(self.told.near):
            blamed |= self.told.near
        for followed in self._followed.values():
            blamed |= followed.near
        return blamed

    def _best_explanation(self, causes: Causes, explained: Rows) -> Explanation | None:
        return best_explanation(RowSums(self._history, self._blamed(explained), causes), causes.prior)

    def _look_for_cause(self, causes: Causes, queues: QueueInference, windows: int) -> None:
        """Name the best explanation that is no overflowing queue and nobody else's to name, once it is clear enough; so many windows are new."""
        explained = self._explained()
        self._aside = np.zeros(len(explained), bool)
        for _ in range(MOST_OVERFLOWS):
            explanation = self._best_explanation(causes, explained)
            if explanation is None or explanation.loss < LEAST_LOSSY:
                break
            rows = np.zeros(self._history.rows, bool)
            rows[causes.rows_of(explanation.number)] = True
            hard = explanation.loss >= HARD_LOSS and explanation.elsewhere < MOST_ELSEWHERE
            verdict = not hard and self._overflowed(explanation, causes, rows & ~explained, queues)
            if verdict is None:
                break
            named = causes.classes[explanation.number]
            if not verdict and self.decides(named):
                self._consider(explanation, causes, windows)
                return
            if verdict or is_private(named.subject):
                self._aside |= rows
            explained |= rows
        self._waited = 0

    def _overflowed(
        self, explanation: Explanation, causes: Causes, rows: Rows, queues: QueueInference
    ) -> bool | None:
        """Whether queues explain the losses of a span; None where that cannot be told yet."""
        named = causes.classes[explanation.number]
        links = {link for subject in (named.subject, *named.also) for link in subject.links}
        if queues.stand(links):
            return True
        losing = np.flatnonzero(rows & (self._history.lost_sums[-1] > 0))
        lost = self._history.lost_of(losing, explanation.windows)
        background = min(1.0, explanation.elsewhere / explanation.loss)
        return overflowed(_ranks(self._history.queued_ns_of(losing), lost), background)

    def _consider(self, explanation: Explanation, causes: Causes, windows: int) -> None:
        self._waited += windows
        if explanation.confidence >= SURE or (
            explanation.confidence >= LIKELY and self._waited > DEADLINE_WINDOWS
        ):
            self.follow(self._open(found(explanation, causes.classes[explanation.number])))

    def _look_again(self, window: Window) -> None:
        """See which causes are gone, and which lose all by now."""
        self.told.count(window.sent, window.lost, [each.rows for each in self._followed.values()])
        if not self._followed:
            return
        times = self._times_explained()
        free = [float(each.sum() - each[times > 0].sum()) for each in (window.sent, window.lost)]
        elsewhere = free[1] / max(free[0], 1.0)
        for followed in list(self._followed.values()):
            alone = followed.rows & (times == 1)
            sent, lost = float(window.sent[alone].sum()), float(window.lost[alone].sum())
            if sent and followed.recovery.add(sent, lost, elsewhere):
                self._close(followed.finding)
                self.leave(followed.finding)
                times = self._times_explained()
            elif followed.finding.kind == "lossy" and followed.silence.add(sent, lost):
                del self._followed[followed.finding.number]
                self.follow(self._fall_silent(followed.finding))
                times = self._times_explained()

    def _times_explained(self) -> NDArray[np.intp]:
        """By how many findings the losses of each row are explained, other managers' as one, shape (rows,)."""
        times = np.zeros(self._history.rows, np.intp)
        if len(self.told.rows):
            times += self.told.rows
        for followed in self._followed.values():
            times += followed.rows
        return times


def found(explanation: Explanation, named: Class) -> Found:
    """What is to be told of a class that explains losses."""
    evidence = (
        f"{explanation.lost} of {explanation.sent} probes over it were lost in "
        f"{explanation.windows / WINDOWS_PER_S:.1f} s, {explanation.elsewhere:.2%} of others"
    )
    return Found(
        kind="silent" if _is_silent(explanation) else "lossy",
        named=named,
        confidence=explanation.confidence / (1 + len(named.also)),
        loss=explanation.loss,
        evidence=[evidence],
        windows=explanation.windows,
    )


def _is_silent(explanation: Explanation) -> bool:
    """Whether all is lost: from the beginning of the span on, or since it died within it."""
    return explanation.loss >= SILENT_LOSS or (
        explanation.loss >= HARD_LOSS and explanation.of_late >= SILENT_LOSS
    )


def _ranks(queued_ns: NDArray[np.float32], lost: NDArray[np.uint16]) -> NDArray[np.float64]:
    """How long the queues of a path were when it lost a probe, by the share of its other windows with shorter ones.

    Args:
        queued_ns: there and back, NaN where nothing was answered, shape (windows, rows).
        lost: of the last of those windows, shape (fewer windows, rows).

    Returns:
        One rank for each lost probe with a known delay, 0 where hardly anything was queued; the order has no meaning.
    """
    ranks = []
    window, row = np.nonzero((lost > 0) & np.isfinite(queued_ns[-len(lost) :]))
    for w, r in zip((window + len(queued_ns) - len(lost)).tolist(), row.tolist(), strict=True):
        others = queued_ns[:, r][np.isfinite(queued_ns[:, r])]
        here = queued_ns[w, r]
        if len(others) < LEAST_OTHERS:
            continue
        shorter = (np.count_nonzero(others < here) + 0.5) / len(others)
        count = int(lost[w - len(queued_ns), r])
        ranks += [0.0 if here < QUIET_NS else shorter] * count
    return np.array(ranks)


def _everything(_: Class) -> bool:
    """Where there is no other manager."""
    return True


def is_unnamed(subject: Subject) -> bool:
    """Whether a subject is all between places that stand for what did not answer; once paths are known, nothing is there."""
    return bool(subject.links) and all(MARK in (a[:1], b[:1]) for a, b in subject.links)


def is_private(subject: Subject) -> bool:
    """Whether a subject is all between places of which each stands for whatever one path crosses where nobody answers."""
    return bool(subject.links) and all(any(map(routes.is_private, link)) for link in subject.links)
