"""Metrics of audits: what the last one came to, and what hosts told."""

from collections.abc import Iterator
from typing import get_args

from prometheus_client.core import Metric

from manager.api.metric_families import counters, gauge, gauges
from manager.audit.results import Verdict
from manager.audit.service.running import HEARD
from manager.audit.service.service import Audits
from manager.audit.summary import summary


def audit_metrics(audits: Audits | None) -> Iterator[Metric]:
    """Results are 0 where none has been made."""
    latest = None if audits is None else audits.latest
    results = dict.fromkeys(get_args(Verdict), 0)
    if latest is not None:
        results |= summary(latest.audit).by_verdict
    yield gauges("cwdp_audit_results", "Results of the last audit by verdict.", "verdict", results)
    ended_s = 0.0 if latest is None else latest.ended_s
    yield gauge(
        "cwdp_audit_ended_timestamp_seconds", "When the last audit ended, Unix time; 0 for none.", ended_s
    )
    told: dict[str, int] = dict.fromkeys(HEARD, 0) if audits is None else dict(audits.counters)
    yield counters("cwdp_audit_reports", "Hosts' facts for audits by outcome.", "reason", told)
