"""What was found in the fabric, held against what was wrong with it. No I/O.

A finding is right where all links of its subject, or of one that it says cannot be told from it, are those of a link that
is at fault; or where its subject is the host at that link's end; or where they lead from an end of that link to a place
without a name, which is how a path looks that was traced while the link was silent. The fault may be over for `GRACE_S`
when the finding begins, as windows of up to 4 s are looked at, and a mended link loses what still waited in its queue. A finding that
is right must be over `STALE_S` after the fault, but where the manager says that it will wait longer (`LASTING`). A fault
that must be named is so in time where a right finding is seen within what its kind allows; `CONTROL_S` later where a
manager or a bus server was in trouble meanwhile, for who takes over must hear of the windows first.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from manager.fabric.routes import MARK
from tools.soak.troubles import KINDS

GRACE_S, STALE_S, CONTROL_S = 10.0, 30.0, 15.0
LASTING = {"slow": 600.0, "slow_sender": 120.0, "slow_receiver": 120.0, "flapping": 3600.0}
"""How long findings of a kind hold by design once their cause is gone: manager/faults/README.md."""

Link = tuple[str, str]


@dataclass(frozen=True)
class Fault:
    """A link that was at fault.

    Attributes:
        kind: of the trouble.
        told: for people.
        links: its directed links, as discovery names the ends.
        host: at its end, if any.
        begin_s, end_s: since the start, of what was done.
        control_troubled: whether a manager or a bus server was in trouble while it had to be named, or just before.
    """

    kind: str
    told: str
    links: frozenset[Link]
    host: str
    begin_s: float
    end_s: float
    control_troubled: bool = False

    @property
    def deadline_s(self) -> float | None:
        """When it has to have been named; None where it need not, or not for long enough."""
        within_s = KINDS[self.kind].named_within_s
        if within_s is None:
            return None
        return self.begin_s + within_s + CONTROL_S * self.control_troubled


@dataclass(frozen=True)
class Seen:
    """A finding as it was seen.

    Attributes:
        kind: of the finding.
        told: for people.
        subjects: the directed links of its subject and of each that is as likely.
        host: what its subject is, if that is a host or a NIC.
        start_s: when it began, as its finder says; one that takes over may have found it long before it was seen.
        first_s, last_s: when it was seen first and last, all since the start of the soak.
    """

    kind: str
    told: str
    subjects: tuple[frozenset[Link], ...]
    host: str
    start_s: float
    first_s: float
    last_s: float


@dataclass(frozen=True)
class Judgement:
    """What came of it.

    Attributes:
        named_s: how long each fault took that was named, with its kind.
        missed: faults that had to be named in time and were not.
        false: findings about what was well.
        stale: findings that held on.
    """

    named_s: tuple[tuple[str, float], ...]
    missed: tuple[str, ...]
    false: tuple[str, ...]
    stale: tuple[str, ...]


def judge(faults: Sequence[Fault], seen: Sequence[Seen]) -> Judgement:
    """Hold findings against faults, by the rule above."""
    named: list[tuple[str, float]] = []
    missed, false, stale = [], [], []
    for fault in faults:
        right = [each.first_s for each in seen if _explains(fault, each) and each.first_s >= fault.begin_s]
        still = [
            each for each in seen if _explains(fault, each) and each.first_s < fault.begin_s <= each.last_s
        ]
        took_s = 0.0 if still else min(right, default=float("inf")) - fault.begin_s
        if took_s < float("inf"):
            named.append((fault.kind, took_s))
        deadline_s = fault.deadline_s
        if deadline_s is not None and fault.begin_s + took_s > deadline_s:
            missed.append(fault.told + (f": after {took_s:.1f} s" if took_s < float("inf") else ""))
    for each in seen:
        of = [fault for fault in faults if _explains(fault, each)]
        if not of:
            false.append(f"{each.told} at {each.first_s:.0f} s")
            continue
        lasts_s = LASTING.get(each.kind, STALE_S)
        if each.last_s > max(fault.end_s for fault in faults if _is_of(fault, each)) + lasts_s:
            stale.append(f"{each.told} at {each.first_s:.0f} s until {each.last_s:.0f} s")
    return Judgement(tuple(named), tuple(missed), tuple(false), tuple(stale))


def _explains(fault: Fault, seen: Seen) -> bool:
    return _is_of(fault, seen) and fault.begin_s <= seen.last_s and seen.start_s <= fault.end_s + GRACE_S


def _is_of(fault: Fault, seen: Seen) -> bool:
    if not KINDS[fault.kind].may_be_named:
        return False
    if seen.host:
        return seen.host == fault.host
    return any(links and all(_is_at(fault, link) for link in links) for links in seen.subjects)


def _is_at(fault: Fault, link: Link) -> bool:
    """Whether a link is the one at fault, or leads from an end of it to a place without a name."""
    ends = {end for pair in fault.links for end in pair}
    return link in fault.links or any(a in ends and b.startswith(MARK) for a, b in (link, link[::-1]))
