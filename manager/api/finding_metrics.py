"""Metrics of what is wrong in the fabric, and of whom it touches. Pure."""

from collections.abc import Collection, Iterator, Mapping
from typing import get_args

from prometheus_client.core import Metric

from manager.api.metric_families import Labels, counters, gauges, labelled_gauges
from manager.fabric.routes import is_nic
from manager.faults.finding import Finding, Kind
from manager.moment.talkers import Talkers
from manager.view.severity import severity, severity_rank

MOST_FINDINGS = 500
KINDS = get_args(Kind)


def finding_metrics(findings: Collection[Finding], opened: Mapping[str, int]) -> Iterator[Metric]:
    """Findings that hold, counted and named, and how many there have been.

    Args:
        findings: those that hold. At most `MOST_FINDINGS` are named, the gravest and of these the oldest.
        opened: totals by kind.
    """
    counts: dict[Labels, float] = {(kind, severity(kind)): 0 for kind in KINDS}
    for finding in findings:
        counts[finding.kind, severity(finding.kind)] += 1
    labels = ("kind", "severity")
    yield labelled_gauges("cwdp_findings", "Findings that hold, by kind.", labels, counts)
    totals = {kind: opened.get(kind, 0) for kind in KINDS}
    yield counters("cwdp_findings_opened", "Findings that began, by kind.", "kind", totals)
    gravest = sorted(findings, key=lambda each: (severity_rank(severity(each.kind)), each.start_s))
    starts: dict[Labels, float] = {}
    for finding in gravest[:MOST_FINDINGS]:
        starts.setdefault((finding.kind, severity(finding.kind), finding.subject.name), finding.start_s)
    text = "When findings that hold began, in seconds since 1970; the gravest only."
    yield labelled_gauges("cwdp_finding_start_seconds", text, (*labels, "subject"), starts)


def host_metrics(hosts: Mapping[str, str], findings: Collection[Finding]) -> Iterator[Metric]:
    """Hosts by whether a finding touches them.

    Args:
        hosts: the state of each, `up` or `lost`.
        findings: those that hold.
    """
    touched = _touched(findings)
    counts = {"healthy": 0, "affected": 0, "lost": 0}
    for host, state in hosts.items():
        counts["lost" if state == "lost" else "affected" if host in touched else "healthy"] += 1
    yield gauges("cwdp_hosts", "Hosts by whether a finding touches them.", "state", counts)


def job_metrics(talkers: Talkers, findings: Collection[Finding]) -> Iterator[Metric]:
    """Jobs by whether a finding touches them.

    Args:
        talkers: the queue pairs that send, which make the jobs.
        findings: those that hold.
    """
    subjects = [subject for finding in findings for subject in (finding.subject, *finding.also)]
    ends = {subject.name for subject in subjects if subject.kind in ("host", "nic")}
    links = {link for subject in subjects if subject.kind not in ("host", "nic") for link in subject.links}
    places = [*talkers.crossing(links).tolist(), *talkers.at(ends).tolist()]
    affected = len(talkers.jobs_of(places))
    counts = {"healthy": len(talkers.jobs.hosts) - affected, "affected": affected}
    yield gauges("cwdp_jobs", "Jobs by whether a finding touches them.", "state", counts)


def _touched(findings: Collection[Finding]) -> set[str]:
    """The hosts that findings are about, or whose links they are about."""
    subjects = [subject for finding in findings for subject in (finding.subject, *finding.also)]
    named = {subject.name.partition("/")[0] for subject in subjects if subject.kind in ("host", "nic")}
    ends = {node for subject in subjects for link in subject.links for node in link}
    return named | {node.partition("/")[0] for node in ends if is_nic(node)}
