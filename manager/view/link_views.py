"""What the HTTP API answers of links and of what is wrong with them."""

from collections.abc import Callable, Iterable
from dataclasses import asdict
from typing import Any

from manager.faults.finding import Finding, Subject
from manager.state import FleetState
from manager.view.ib_views import with_infiniband
from manager.view.json_values import Json
from manager.view.link_table import SHARE_DIGITS, Link, LinkTable, by_trouble, of_now

SORTS = ("trouble", "queue", "load", "name")


def links(state: FleetState, *, sort: str = "trouble", limit: int = 0) -> Json:
    """Every link, each way by itself, and the findings that hold.

    Args:
        state: What the manager knows.
        sort: One of `SORTS`; `trouble` puts what is wrong first, then the longest queue.
        limit: At most so many links; 0 for all.
    """
    findings = findings_of(state)
    return {**rows(table_of_now(state, findings), sort=sort, limit=limit), "findings": findings}


def table_of_now(state: FleetState, findings: Iterable[Json], avoided: Iterable[Link] = ()) -> LinkTable:
    """All links as they are, those of InfiniBand included."""
    return with_infiniband(of_now(state.links, findings, avoided), state.subnets)


def rows(table: LinkTable, *, sort: str, limit: int) -> Json:
    """The links of a table."""
    found = sorted((table.row(i) for i in range(len(table.names))), key=ORDERS[sort])
    return {"link_count": len(found), "links": found[:limit] if limit > 0 else found}


def findings_of(state: FleetState) -> list[Json]:
    """What is wrong now."""
    return [finding_as_json(finding) for finding in state.faults.current.values()]


def finding_as_json(finding: Finding) -> Json:
    """A finding for programs."""
    known = asdict(finding) | {
        "subject": _subject(finding.subject),
        "also": [_subject(subject) for subject in finding.also],
        "confidence": round(finding.confidence, 4),
        "loss": round(finding.loss, SHARE_DIGITS),
    }
    return {key: known[key] for key in _KEYS}


_KEYS = ("number", "kind", "subject", "also", "confidence", "loss", "evidence", "start_s", "end_s")


def _subject(subject: Subject) -> Json:
    return {"kind": subject.kind, "name": subject.name, "links": [list(link) for link in subject.links]}


def _name(row: Json) -> tuple[str, str]:
    return row["a"], row["b"]


ORDERS: dict[str, Callable[[Json], Any]] = {
    "trouble": by_trouble,
    "queue": lambda row: (-(row["queue_p50_ns"] or 0), _name(row)),
    "load": lambda row: (-(row["load_bps"] or 0), _name(row)),
    "name": _name,
}
