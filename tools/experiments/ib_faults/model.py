"""Faults at random places of an InfiniBand subnet, and whether what is named is right. No lab."""

import random
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Literal

from tools.ib.lab import links
from tools.ib.lab.faults import WIDTHS
from tools.ib.lab.links import Link
from tools.ib.topology import Clos, port_name

Kind = Literal["cut", "flapping", "degraded", "errors", "congested"]
KINDS: tuple[Kind, ...] = "cut", "flapping", "degraded", "errors", "congested"

TICKS_PER_S = 125_000_000
"""Of a port of 10 Gb/s a lane that waits all the time, a tick being the time of eight bytes on a lane."""

LEAST_ERRORS_PER_S, MOST_ERRORS_PER_S = 20, 500
LEAST_WAIT, MOST_WAIT = 0.2, 0.5
"""Shares of the time in which a port waits."""

Json = dict[str, Any]


@dataclass(frozen=True)
class Fault:
    """What is done.

    Attributes:
        link: where; with errors and congestion its first end is the port that counts.
        size: lanes that are left, errors or ticks in a second; 0 of what has no size.
    """

    kind: Kind
    link: Link
    size: int = 0

    @property
    def right(self) -> set[tuple[str, str]]:
        """What may be named: the kind of a finding and its subject."""
        a, b = port_name(*self.link.a), port_name(*self.link.b)
        cable = f"{a} - {b}"
        match self.kind:
            case "cut":
                return {("dead", cable)}
            case "flapping":
                return {("flapping", cable), ("dead", cable)}
            case "degraded":
                return {("degraded", cable)}
            case "errors":
                return {("bit_errors", f"{b} > {a}")}
            case "congested":
                is_to_host = b.startswith("h")
                return {("slow_receiver" if is_to_host else "congested", f"{a} > {b}")}

    @property
    def decisive(self) -> str:
        """The kind of finding without which it is missed."""
        return self.kind if self.kind == "flapping" else next(kind for kind, _ in self.right)


def draw(
    kind: Kind, topology: Clos, rng: random.Random, avoided: Collection[str], readers: Collection[str]
) -> Fault:
    """A fault of a kind at a random place.

    Args:
        kind: which.
        topology: of the lab.
        rng: draws it.
        avoided: keys of links that are not to be taken.
        readers: hosts that read the subnet; their links are not cut, as nothing could be read any more.
    """
    is_cut = kind in ("cut", "flapping")
    free = [
        link
        for link in links.every(topology)
        if link.key not in avoided and not (is_cut and link.a[0] in readers)
    ]
    link = rng.choice(free)
    if kind in ("errors", "congested") and rng.random() < 0.5:
        link = Link(link.b, link.a)
    sizes: Mapping[Kind, int] = {
        "degraded": rng.choice([lanes for lanes in WIDTHS if lanes < max(WIDTHS)]),
        "errors": rng.randint(LEAST_ERRORS_PER_S, MOST_ERRORS_PER_S),
        "congested": int(rng.uniform(LEAST_WAIT, MOST_WAIT) * TICKS_PER_S),
    }
    return Fault(kind, link, sizes.get(kind, 0))


@dataclass(frozen=True)
class Verdict:
    """What came of a fault.

    Attributes:
        named: what was named of it, as kind and subject; empty for nothing.
        after_s: after how long, 0 where it was before, as a link had been cut earlier; None for never.
        others: what else was named.
        is_right: the right link or port, in time, and nothing else.
    """

    fault: Fault
    named: str
    after_s: float | None
    others: tuple[str, ...]
    is_right: bool


def judge(fault: Fault, findings: Iterable[Json], since_s: float, within_s: float) -> Verdict:
    """Hold what was named since a fault against it.

    Args:
        fault: what was done.
        findings: as `/v1/link` has them, those that began since then.
        since_s: when it could be seen first, since 1970.
        within_s: in time is what is named so soon after.
    """
    named, after_s, others = "", None, []
    for finding in sorted(findings, key=lambda one: int(one["number"])):
        kind, subject = finding["kind"], finding["subject"]["name"]
        if (kind, subject) not in fault.right:
            others.append(f"{kind} {subject}")
        elif kind == fault.decisive and after_s is None:
            named, after_s = f"{kind} {subject}", max(0.0, finding["start_s"] - since_s)
    is_right = after_s is not None and after_s <= within_s and not others
    return Verdict(fault, named, after_s, tuple(others), is_right)


def summarise(verdicts: Sequence[Verdict]) -> list[Json]:
    """All faults of each kind."""
    rows = []
    for kind in KINDS:
        mine = [one for one in verdicts if one.fault.kind == kind]
        times = [one.after_s for one in mine if one.after_s is not None]
        if mine:
            rows.append(
                {
                    "kind": kind,
                    "faults": len(mine),
                    "right": sum(one.is_right for one in mine),
                    "after_p50_s": round(median(times), 2) if times else None,
                    "after_max_s": round(max(times), 2) if times else None,
                }
            )
    return rows
