"""What the HTTP API answers of links and of what is wrong with them."""

import math
from collections.abc import Callable
from typing import Any

from manager.fabric.routes import DirectedLink
from manager.faults.finding import Finding, Subject
from manager.links.loads import LinkLoads
from manager.state import FleetState
from manager.view.json_values import Json, rounded

SORTS = ("trouble", "queue", "load", "name")
SHARE_DIGITS = 6
_WORST = ("dead", "silent", "flapping", "lossy", "slow", "slow_sender", "slow_receiver")


def links(state: FleetState, *, sort: str = "trouble", limit: int = 0) -> Json:
    """Every link, each way by itself, and the findings that hold.

    Args:
        state: What the manager knows.
        sort: One of `SORTS`; `trouble` puts what is wrong first, then the longest queue.
        limit: At most so many links; 0 for all.
    """
    loads = state.links
    wrong = wrong_links(list(state.faults.current.values()))
    rows = [_link(loads, i, wrong.get(link)) for i, link in enumerate(loads.routes.links)]
    rows.sort(key=ORDERS[sort])
    shown = rows[:limit] if limit > 0 else rows
    return {
        "link_count": len(rows),
        "links": shown,
        "findings": [finding_as_json(finding) for finding in state.faults.current.values()],
    }


def finding_as_json(finding: Finding) -> Json:
    """A finding for programs."""
    return {
        "number": finding.number,
        "kind": finding.kind,
        "subject": _subject(finding.subject),
        "also": [_subject(subject) for subject in finding.also],
        "confidence": round(finding.confidence, 4),
        "loss": round(finding.loss, SHARE_DIGITS),
        "evidence": finding.evidence,
        "start_s": finding.start_s,
        "end_s": finding.end_s,
    }


def _subject(subject: Subject) -> Json:
    return {"kind": subject.kind, "name": subject.name, "links": [list(link) for link in subject.links]}


def wrong_links(findings: list[Finding]) -> dict[DirectedLink, str]:
    """The gravest kind of finding about each link, those included that cannot be told from its subject."""
    kinds: dict[DirectedLink, str] = {}
    for finding in findings:
        for subject in (finding.subject, *finding.also):
            for link in subject.links:
                kinds[link] = min(kinds.get(link, finding.kind), finding.kind, key=gravest)
    return kinds


def gravest(kind: str) -> int:
    """The gravest kinds of finding have the lowest numbers."""
    return _WORST.index(kind) if kind in _WORST else len(_WORST)


def _link(loads: LinkLoads, i: int, wrong: str | None) -> Json:
    link = loads.routes.links[i]
    load_bps, likely_bps = float(loads.load_bps[i]), float(loads.likely_capacity_bps[i])
    return {
        "a": link.a,
        "b": link.b,
        "state": wrong or ("full" if loads.stands[i] else "ok"),
        "queue_ns": rounded(loads.queue_ns[i]),
        "queue_p50_ns": rounded(loads.queue_p50_ns[i]),
        "queue_p99_ns": rounded(loads.queue_p99_ns[i]),
        "load_bps": rounded(load_bps),
        "capacity_bps": rounded(loads.capacity_bps[i]),
        "likely_capacity_bps": rounded(likely_bps),
        "share": round(load_bps / likely_bps, 4) if likely_bps > 0 else None,
        "loss": round(float(loads.loss[i]), SHARE_DIGITS) if math.isfinite(loads.loss[i]) else None,
    }


def _name(row: Json) -> tuple[str, str]:
    return row["a"], row["b"]


def _trouble(row: Json) -> tuple[Any, ...]:
    kind = row["state"] if row["state"] != "full" else "slow_receiver"
    return gravest(kind), -(row["queue_p99_ns"] or 0), _name(row)


ORDERS: dict[str, Callable[[Json], Any]] = {
    "trouble": _trouble,
    "queue": lambda row: (-(row["queue_p50_ns"] or 0), _name(row)),
    "load": lambda row: (-(row["load_bps"] or 0), _name(row)),
    "name": _name,
}
