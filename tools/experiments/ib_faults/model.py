"""What the lab's faults are, and whether what is named is right. No lab."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from tools.ib.faults import Fault, Kind

KINDS: tuple[Kind, ...] = "cut", "flapping", "degraded", "errors", "congested"

Json = dict[str, Any]


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
