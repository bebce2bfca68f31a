"""What is told of audits as plain data."""

from collections.abc import Iterable, Sequence

import msgspec

from cwdp.shared.audit.facts import HostFacts
from manager.audit.compare import Changes, FactChange
from manager.audit.results import Audit
from manager.audit.service.kept import Finished
from manager.audit.service.service import Progress
from manager.audit.summary import in_words, of_host, summary
from manager.view.json_values import Json


def progress(running: Progress | None) -> Json:
    """How far the audit has come that is under way; number 0 for none."""
    return {"number": 0} if running is None else dict(msgspec.to_builtins(running))


def shown(finished: Finished) -> Json:
    """An audit that is over."""
    return {**_about(finished), "hosts": finished.hosts, "audit": audit_json(finished.audit)}


def listed(audits: Iterable[Finished]) -> Json:
    """Audits, the newest first."""
    rows = [{**_about(each), "hosts": len(each.hosts), "said": in_words(each.audit)} for each in audits]
    return {"audits": rows[::-1]}


def verdict(finished: Finished, host: str) -> Json:
    """What an audit came to for a host; it is unknown where it was not asked."""
    return {**_about(finished), "host": host, "audit": audit_json(of_host(finished.audit, host))}


def facts(told: Sequence[HostFacts]) -> Json:
    """The facts of hosts."""
    return {"hosts": msgspec.to_builtins(told)}


def diff(older: int, newer: int, found: Changes, facts: Sequence[FactChange]) -> Json:
    """What has changed between two audits."""
    return {
        "older": older,
        "newer": newer,
        "new": msgspec.to_builtins(found.new),
        "gone": msgspec.to_builtins(found.gone),
        "changed": [
            {"before": before, "after": after} for before, after in msgspec.to_builtins(found.changed)
        ],
        "facts": msgspec.to_builtins(facts),
    }


def _about(finished: Finished) -> Json:
    return {
        "number": finished.number,
        "level": finished.level,
        "by": finished.by,
        "began_s": finished.began_s,
        "ended_s": finished.ended_s,
        "verdict": summary(finished.audit).verdict,
    }


def audit_json(audit: Audit) -> Json:
    """All verdicts."""
    return dict(msgspec.to_builtins(audit))
