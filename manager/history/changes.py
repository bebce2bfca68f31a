"""What is new about findings and about the fabric since it was last told. Pure."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict
from typing import Any, cast

from manager.fabric.model import Model
from manager.fabric.routes import DirectedLink
from manager.fabric.wiring import Miswired
from manager.faults.finding import Finding, Findings, Subject
from manager.history.records import Element, ElementName, FabricRecord, FindingRecord, SubjectRecord, What

ELEMENTS_A_RECORD = 1_000

Elements = dict[ElementName, dict[str, Any]]


class FindingChanges:
    """Which findings have begun, changed or ended since they were last looked at."""

    def __init__(self) -> None:
        self._told: dict[int, FindingRecord] = {}
        self._last = 0

    def begin_anew(self) -> None:
        """Tell all that hold again; whoever led before told of them under other numbers."""
        self._told.clear()

    def skip(self, findings: Findings) -> None:
        """Tell nothing of those that came and went meanwhile."""
        self._last = max([self._last, *findings.current, *(finding.number for finding in findings.past)])

    def step(self, findings: Findings, now_s: float) -> list[FindingRecord]:
        """What is new; also of those that began and ended meanwhile."""
        records: list[FindingRecord] = []
        for finding in findings.past:
            is_new = finding.number > self._last and finding.number not in self._told
            if is_new:
                records.append(_record(finding, finding.start_s, end_s=None))
            if is_new or finding.number in self._told:
                self._told.pop(finding.number, None)
                records.append(_record(finding, now_s, end_s=finding.end_s))
        for number, finding in findings.current.items():
            record = _record(finding, now_s, end_s=None)
            before = self._told.get(number)
            if before is None or _said(before) != _said(record):
                records.append(record)
                self._told[number] = record
        self.skip(findings)
        return records


def _record(finding: Finding, time_s: float, *, end_s: float | None) -> FindingRecord:
    return FindingRecord(
        time_s=time_s,
        number=finding.number,
        kind=finding.kind,
        subject=_subject(finding.subject),
        also=[_subject(each) for each in finding.also],
        confidence=round(finding.confidence, 4),
        loss=round(finding.loss, 6),
        evidence=list(finding.evidence),
        start_s=finding.start_s,
        end_s=end_s,
    )


def _subject(subject: Subject) -> SubjectRecord:
    return SubjectRecord(kind=subject.kind, name=subject.name, links=[(a, b) for a, b in subject.links])


def _said(record: FindingRecord) -> tuple[object, ...]:
    """What makes it worth telling again."""
    also = [each.name for each in record.also]
    return record.kind, record.subject.name, also, round(record.confidence, 2), record.evidence


def elements(
    model: Model, suspects: Iterable[Miswired], aside: Collection[str], avoided: Collection[DirectedLink]
) -> Elements:
    """The fabric, each part by its kind and name.

    Args:
        model: switches, links, seats, rails.
        suspects: links that are not where the others' pattern puts them.
        aside: hosts whose word on paths does not count.
        avoided: links that queue pairs are kept off.
    """
    found: Elements = {}
    for node in model.nodes:
        found["switch", node.name] = {"tier": node.tier, "answers": node.answers}
    for a, b in model.cables:
        found["cable", f"{a} - {b}"] = {"a": a, "b": b}
    for nic, switches in model.seats.items():
        found["seat", nic] = {"switches": list(switches)}
    for ifname, leaves in model.rails.items():
        found["rail", ifname] = {"leaves": list(leaves)}
    for suspect in suspects:
        found["suspect", f"{suspect.what} at {suspect.at or suspect.expected}"] = asdict(suspect)
    for host in aside:
        found["aside", host] = {}
    for a, b in avoided:
        found["avoided", f"{a} > {b}"] = {"a": a, "b": b}
    return found


def difference(
    before: Mapping[ElementName, dict[str, Any]], now: Elements, time_s: float
) -> list[FabricRecord]:
    """What has come, changed and gone, in records of a size that the bus takes."""
    present = [
        Element(what=what, name=name, data=data)
        for (what, name), data in now.items()
        if before.get((what, name)) != data
    ]
    gone = sorted(before.keys() - now.keys())
    records = []
    for start in range(0, max(len(present), len(gone)), ELEMENTS_A_RECORD):
        end = start + ELEMENTS_A_RECORD
        records.append(FabricRecord(time_s=time_s, present=present[start:end], gone=gone[start:end]))
    return records


def of_kinds(stored: Mapping[tuple[str, str], dict[str, Any]]) -> Elements:
    """What the store says is there."""
    return {(cast("What", what), name): data for (what, name), data in stored.items()}
