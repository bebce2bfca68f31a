"""The root's look at the losses of all pods together: what is at fault between them, and when it is well again. No I/O.

It decides as a pod's manager does (`manager.faults.loss_watch`), by sums. What lies in one pod alone is that pod's to name;
only what its manager does not name for `GRACE_S` is named here.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from manager.faults.causes import Class
from manager.faults.finding import Finding
from manager.faults.loss_watch import LEAST_LOSSY, MOST_ELSEWHERE, Found, found, is_private
from manager.faults.losses import (
    HARD_LOSS,
    LIKELY,
    SURE,
    Explanation,
    Recovery,
    Silence,
    best_explanation,
    overflowed,
)
from manager.faults.told import Counts
from manager.pods.evidence import Joined, JointSums

GRACE_S = 4.0
LIKELY_AFTER_S = 1.0
SETTLE_S = 0.5
"""So much later pods' sums may be, in which a link that has just died still let something through."""

MOST_WINDOWS = 40

Decides = Callable[[Class], bool]


@dataclass(kw_only=True)
class _Followed:
    finding: Finding
    recovery: Recovery
    silence: Silence
    before: dict[str, tuple[int, Counts]] = field(default_factory=dict)


class JointWatch:
    """The losses of all pods.

    Args:
        open_finding, close_finding, fall_silent: as of `LossWatch`.
    """

    def __init__(
        self,
        open_finding: Callable[[Found], Finding],
        close_finding: Callable[[Finding], None],
        fall_silent: Callable[[Finding], Finding],
    ) -> None:
        self._open, self._close, self._fall_silent = open_finding, close_finding, fall_silent
        self._followed: dict[int, _Followed] = {}
        self._elsewhere = 0.0
        self._since: tuple[str, float] = "", 0.0

    @property
    def findings(self) -> list[Finding]:
        """What was found here and holds."""
        self._followed = {
            number: each for number, each in self._followed.items() if each.finding.end_s is None
        }
        return [each.finding for each in self._followed.values()]

    def follow(self, finding: Finding) -> None:
        """Hold all pods' losses over a finding's links against it."""
        loss = finding.loss or 1.0
        self._followed[finding.number] = _Followed(
            finding=finding, recovery=Recovery(loss), silence=Silence(loss)
        )

    def leave(self, finding: Finding) -> None:
        """It is somebody else's to follow, or over."""
        self._followed.pop(finding.number, None)

    def look(self, joined: Joined, sums: JointSums, is_ours: Decides, now_s: float) -> None:
        """Name what explains the losses that nothing explains yet, once that is clear enough.

        Args:
            joined: the classes.
            sums: of all pods that are heard.
            is_ours: whether no pod alone is to name a cause.
            now_s: seconds of the manager's monotonic clock.
        """
        sent, lost = sums.totals(0)
        self._elsewhere = lost / max(sent, 1.0)
        explanation = best_explanation(sums, joined.prior)
        if explanation is None or explanation.loss < LEAST_LOSSY:
            self._since = "", now_s
            return
        named = joined.classes[explanation.number]
        if named.subject.name != self._since[0]:
            self._since = named.subject.name, now_s
        waited_s = now_s - self._since[1]
        if is_private(named.subject) or not (is_ours(named) or waited_s > GRACE_S):
            return
        told = found(explanation, named)
        is_settled = told.kind == "silent" or told.loss < HARD_LOSS or waited_s >= SETTLE_S
        if not is_settled or not _is_fault(explanation, sums):
            return
        if explanation.confidence >= SURE or (explanation.confidence >= LIKELY and waited_s > LIKELY_AFTER_S):
            told.evidence.append(f"by the probes of {joined.pods[explanation.number]} pods together")
            self.follow(self._open(told))

    def count(
        self, pods: Mapping[str, tuple[int, Mapping[str, Counts]]], key_of: Callable[[Finding], str]
    ) -> None:
        """See which causes are gone, and which lose all by now.

        Args:
            pods: the epoch of each pod's leader, and what it has counted over each finding, by key.
            key_of: the key of a finding.
        """
        for finding in self.findings:
            followed = self._followed[finding.number]
            windows, sent, lost = _since_then(followed, pods, key_of(finding))
            for _ in range(min(windows, MOST_WINDOWS)):
                if self._add(followed, sent / windows, lost / windows):
                    break

    def _add(self, followed: _Followed, sent: float, lost: float) -> bool:
        """Take in a window; whether the finding has ended by it."""
        finding = followed.finding
        if sent and followed.recovery.add(sent, lost, self._elsewhere):
            self.leave(finding)
            self._close(finding)
            return True
        if finding.kind == "lossy" and followed.silence.add(sent, lost):
            self.leave(finding)
            self.follow(self._fall_silent(finding))
            return True
        return False


def _since_then(
    followed: _Followed, pods: Mapping[str, tuple[int, Mapping[str, Counts]]], key: str
) -> tuple[int, int, int]:
    """The windows, and the probes sent and lost over a finding, since the last look; of pods that count anew nothing."""
    windows = sent = lost = 0
    for pod, (epoch, counted) in pods.items():
        now = counted.get(key)
        if now is None:
            continue
        epoch_before, before = followed.before.get(pod, (epoch, now))
        followed.before[pod] = epoch, Counts(windows=now.windows, sent=now.sent, lost=now.lost)
        if epoch_before == epoch and now.windows > before.windows and now.sent >= before.sent:
            windows = max(windows, now.windows - before.windows)
            sent, lost = sent + now.sent - before.sent, lost + max(0, now.lost - before.lost)
    return windows, sent, lost


def _is_fault(explanation: Explanation, sums: JointSums) -> bool:
    """Whether no queue that overflows explains the losses."""
    if explanation.loss >= HARD_LOSS and explanation.elsewhere < MOST_ELSEWHERE:
        return True
    background = min(1.0, explanation.elsewhere / explanation.loss)
    return overflowed(np.asarray(sums.ranks(explanation.number)), background) is False
