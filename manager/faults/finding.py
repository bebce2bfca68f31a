"""What is wrong in the fabric: one finding per cause, with its start, its end and its evidence. No I/O."""

from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal

from manager.fabric.routes import DirectedLink, is_nic

HISTORY = 500
MOST_KEPT = 1 << 16
"""Links whose names are kept, so that each is made once: what is known of links is made anew whenever one is new."""

Kind = Literal[
    "dead", "silent", "lossy", "slow", "flapping", "slow_sender", "slow_receiver", "clock",
    "degraded", "bit_errors", "congested", "counters",
]  # fmt: skip
"""The last four are those of InfiniBand's ports (`manager/ib/faults`)."""

SubjectKind = Literal["link", "direction", "nic", "host", "switch", "port"]


@dataclass(frozen=True)
class Subject:
    """What a finding is about.

    Attributes:
        kind: a link both ways, one direction of a link, a NIC, a host, a switch, a port of an InfiniBand node.
        name: for people, `A - B` or `A > B` for links.
        links: the directed links that it takes in.
    """

    kind: SubjectKind
    name: str
    links: tuple[DirectedLink, ...] = ()

    @property
    def event_kind(self) -> str:
        """The word for it in an event's name."""
        return "link" if self.kind == "direction" else self.kind


@lru_cache(MOST_KEPT)
def cable(link: DirectedLink) -> Subject:
    """A link both ways, named in one order whichever way it is given."""
    a, b = sorted(link, key=lambda node: (not is_nic(node), node))
    return Subject("link", f"{a} - {b}", (DirectedLink(a, b), DirectedLink(b, a)))


@lru_cache(MOST_KEPT)
def direction(link: DirectedLink) -> Subject:
    """One way of a link."""
    return Subject("direction", f"{link.a} > {link.b}", (link,))


@dataclass(kw_only=True)
class Finding:
    """Something that is wrong, or was.

    Attributes:
        number: names it.
        confidence: that the subject is the cause, given that there is one, 0 to 1.
        evidence: what speaks for it, for people.
        also: other subjects that explain the same, where what is measured cannot tell them apart.
        loss: share of the probes over the subject that are lost, 0 where it is not about losses.
        start_s, end_s: the manager's wall clock; `end_s` is None while it lasts.
    """

    number: int
    kind: Kind
    subject: Subject
    confidence: float
    evidence: list[str]
    start_s: float
    also: tuple[Subject, ...] = ()
    loss: float = 0.0
    end_s: float | None = None

    @property
    def event_kind(self) -> str:
        """The name of the event at its start."""
        return self.kind if self.kind.startswith("slow_") else f"{self.subject.event_kind}_{self.kind}"

    @property
    def links(self) -> list[DirectedLink]:
        """Those that it names, and those that cannot be told from them."""
        return [link for subject in (self.subject, *self.also) for link in subject.links]


@dataclass
class Findings:
    """The findings that hold, and the last that held.

    Attributes:
        current: by number.
        past: the newest last.
        opened: how many there have been, by kind.
    """

    current: dict[int, Finding] = field(default_factory=dict)
    past: deque[Finding] = field(default_factory=lambda: deque(maxlen=HISTORY))
    opened: Counter[str] = field(default_factory=Counter)
    _last: int = 0

    def open(self, finding: Finding) -> Finding:
        """Add one, and number it."""
        self._last += 1
        self.opened[finding.kind] += 1
        finding.number = self._last
        self.current[finding.number] = finding
        return finding

    def close(self, finding: Finding, now_s: float) -> None:
        """It is over."""
        finding.end_s = now_s
        self.past.append(self.current.pop(finding.number))

    def of(self, *kinds: Kind) -> Iterator[Finding]:
        """The current ones of some kinds."""
        return (finding for finding in list(self.current.values()) if finding.kind in kinds)
