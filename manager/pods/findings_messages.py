"""What leaders tell each other of links that are at fault, and what of it holds.

A message says all that its leader tells and replaces the one before it; who is not heard for `LAPSE_S` tells nothing any
more.
"""

import hashlib
import time
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct

from manager.fabric.routes import DirectedLink
from manager.faults.dead_links import is_dead
from manager.faults.finding import Finding, Subject

LAPSE_S = 7.0
"""A leader that has gone is missed sooner (`manager.pods.pods`), so that the next root takes over before others forget."""

KEPT_S = 30.0
"""For so long what a leader said last can be taken over from it."""

MOST_PODS, MOST_FINDINGS, MOST_LINKS = 64, 256, 65_536
REASONS = ("ok", "not_newer", "not_sane", "too_many_pods")

Share = Annotated[float, Meta(ge=0.0, le=1.0)]


class ToldFinding(Struct, frozen=True, kw_only=True):
    """A finding as it is told.

    Attributes:
        key: names it among those of all pods.
        explains: whether losses over it are explained by it.
        is_joint: whether it was found by the evidence of all pods together.
        is_inside: whether it lies in its teller's pod alone.
    """

    key: str
    kind: Literal["dead", "silent", "lossy"]
    subject: Subject
    also: tuple[Subject, ...]
    confidence: Share
    loss: Share
    evidence: Annotated[list[Annotated[str, Meta(max_length=1_000)]], Meta(max_length=16)]
    start_s: float
    explains: bool
    is_joint: bool
    is_inside: bool

    @property
    def links(self) -> frozenset[DirectedLink]:
        """All that it names, and that cannot be told from that."""
        return frozenset(link for each in (self.subject, *self.also) for link in each.links)

    @property
    def whole(self) -> Subject:
        """The same as one subject."""
        return Subject(self.subject.kind, self.subject.name, tuple(sorted(self.links)))


class PodFindings(Struct, frozen=True, kw_only=True):
    """What a pod's leader tells; see `evidence_messages.Evidence` for `epoch` and `seq`.

    Attributes:
        is_root: whether it decides for all pods.
    """

    pod: str
    epoch: int
    seq: int
    is_root: bool
    findings: Annotated[list[ToldFinding], Meta(max_length=MOST_FINDINGS)]


def told(
    finding: Finding, key: str, *, explains: bool, is_joint: bool, is_inside: bool
) -> ToldFinding | None:
    """A finding as it is told; None where it is none of links."""
    if finding.kind not in ("dead", "silent", "lossy") or not finding.subject.links:
        return None
    return ToldFinding(
        key=key,
        kind=finding.kind,
        subject=finding.subject,
        also=finding.also,
        confidence=min(max(finding.confidence, 0.0), 1.0),
        loss=min(max(finding.loss, 0.0), 1.0),
        evidence=[each[:1_000] for each in finding.evidence[:16]],
        start_s=finding.start_s,
        explains=explains,
        is_joint=is_joint,
        is_inside=is_inside,
    )


def dead_links(findings: Iterable[ToldFinding]) -> frozenset[DirectedLink]:
    """The links of some findings over which nothing should be sent."""
    return frozenset(link for each in findings if is_dead(each.kind, each.loss) for link in each.links)


def name_of(findings: Iterable[ToldFinding]) -> int:
    """A name for what some findings explain: 64 bits, another one for other links."""
    subjects = sorted({(each.key, each.whole.links) for each in findings if each.explains})
    digest = hashlib.blake2b(msgspec.msgpack.encode(subjects), digest_size=8).digest()
    return int.from_bytes(digest, "little")


class Board:
    """The latest findings of each pod.

    Args:
        now_s: a clock that only ever goes on.

    Attributes:
        reports: messages by what became of them (`REASONS`).
    """

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self.reports: Counter[str] = Counter(dict.fromkeys(REASONS, 0))
        self._now_s = now_s
        self._latest: dict[str, tuple[float, PodFindings]] = {}

    def hear(self, message: PodFindings) -> None:
        """Take a message in, or count why not."""
        self.reports[self._take(message)] += 1

    def _take(self, message: PodFindings) -> str:
        now_s = self._now_s()
        self._latest = {pod: each for pod, each in self._latest.items() if now_s - each[0] < KEPT_S}
        before = self._latest.get(message.pod)
        if before is None and len(self._latest) >= MOST_PODS:
            return "too_many_pods"
        if before is not None and now_s - before[0] < LAPSE_S:
            last = before[1]
            if (message.epoch, message.seq) <= (last.epoch, last.seq):
                return "not_newer"
        if sum(len(each.links) for each in message.findings) > MOST_LINKS:
            return "not_sane"
        self._latest[message.pod] = now_s, message
        return "ok"

    def fresh(self) -> dict[str, PodFindings]:
        """What is told now, by pod, in the order of their names."""
        since_s = self._now_s() - LAPSE_S
        return {pod: self._latest[pod][1] for pod in sorted(self._latest) if self._latest[pod][0] > since_s}

    def all(self) -> list[PodFindings]:
        """Also what was told last by those that are not heard any more, for a while."""
        since_s = self._now_s() - KEPT_S
        return [message for at_s, message in self._latest.values() if at_s > since_s]
