"""The whole in words: a verdict, what is wrong, what is worst. No I/O."""

from collections import Counter
from collections.abc import Sequence
from typing import Any, Literal, TypedDict

from manager.moment.moment import Moment
from manager.overview import advice, job_views
from manager.overview.qp_rows import QpRows
from manager.view.json_values import Json
from manager.view.severity import Severity, severity_rank

MOST_SHOWN = 20
NAMED = 2


class Notice(TypedDict):
    """Something about cwdp itself that whoever looks must know."""

    state: str
    severity: Severity
    text: str


class Standing(TypedDict):
    """How the fleet stands, as the manager knows it; null for what is not known of a time of the past."""

    cluster: str
    hosts: Json | None
    nics: Json
    clocks: Json | None
    notices: list[Notice]


def fleet(moment: Moment, standing: Standing, rows: QpRows) -> Json:
    """All of the Fleet page."""
    told = tick(moment, standing)
    talkers = moment.talkers
    return {
        **told,
        "worst_links": moment.links.worst(MOST_SHOWN),
        "slowest_queue_pairs": rows.slowest(talkers.fastest.tolist(), MOST_SHOWN),
        "jobs": job_views.jobs(moment, rows, MOST_SHOWN),
    }


def tick(moment: Moment, standing: Standing) -> Json:
    """What of it is sent again and again."""
    found = advice.findings(moment)
    return {
        "at_s": moment.at_s,
        "is_live": moment.is_live,
        "verdict": verdict(found, standing["notices"], standing["nics"]),
        **standing,
        "links": len(moment.links.names),
        "switches": len(moment.parts.nodes),
        "queue_pairs": len(moment.talkers.names),
        "findings": found,
        "finding_count": len(moment.findings),
    }


def verdict(findings: Sequence[Json], notices: Sequence[Notice], nics: Json) -> Json:
    """In a sentence or two, with the gravest severity of all."""
    graves: list[Severity] = [each["severity"] for each in (*findings, *notices)]
    gravest = min(graves, key=severity_rank, default="ok")
    gravest = "ok" if gravest == "info" else gravest
    sentences = [_about(findings)] if findings else []
    sentences += [each["text"] for each in notices if each["severity"] not in ("ok", "info")]
    if not sentences:
        probed = nics["probed"]
        sentences = [
            "All is well"
            + ("." if probed is None else f": {_count(probed, 'NIC')} probed, nothing is wrong.")
        ]
    return {"severity": gravest, "text": " ".join(sentences)}


def _about(findings: Sequence[Json]) -> str:
    counts = Counter(each["severity"] for each in findings)
    told = " and ".join(
        f"{counts[severity]} {severity}" for severity in ("critical", "warning", "info") if counts[severity]
    )
    named = "; ".join(each["title"] for each in findings[:NAMED])
    more = f"; and {len(findings) - NAMED} more" if len(findings) > NAMED else ""
    touches: dict[Literal["queue_pairs", "jobs"], Any] = {
        "queue_pairs": sum(each["touches"]["queue_pairs"] for each in findings),
        "jobs": {job for each in findings for job in each["touches"]["jobs"]},
    }
    whom = (
        f" {_count(touches['queue_pairs'], 'queue pair')} of {_count(len(touches['jobs']), 'job')} touched."
        if touches["jobs"]
        else ""
    )
    return f"{told}: {named}{more}.{whom}"


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"
