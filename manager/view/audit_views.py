"""What is told of audits as plain data."""

from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec

from cwdp.shared.audit.facts import HostFacts
from manager.audit.compare import Changes, FactChange
from manager.audit.folding import MOST_LISTED, MOST_ROWS, Row, Wanted, chosen, fold, parts, where
from manager.audit.results import Audit, Result
from manager.audit.service.kept import Finished
from manager.audit.service.service import Progress
from manager.audit.summary import FAILED, INCOMPLETE, WARNING, exit_status, in_words, of_host, summary
from manager.view.json_values import Json
from manager.view.severity import Severity

MOST_CHANGES = 50
"""Rows of what is new, of what is gone, and of what has changed."""

MOST_CHECKS = 8
"""Names of checks in a row."""

OF_A_CHECK = ("fact", "why", "mend", "reference")
"""What a row tells where it is of one check."""


def progress(running: Progress | None) -> Json:
    """How far the audit has come that is under way; number 0 for none."""
    return {"number": 0} if running is None else dict(msgspec.to_builtins(running))


def shown(finished: Finished) -> Json:
    """An audit that is over."""
    carried: Json = msgspec.to_builtins(finished.carried)
    return {
        **_about(finished),
        "hosts": finished.hosts,
        "audit": audit_json(finished.audit),
        "carried": carried,
    }


def listed(finished: Finished) -> Json:
    """A row of the list of audits."""
    in_short = {"severity": _severity(finished.audit), "said": in_words(finished.audit)}
    return {**_about(finished), "hosts": len(finished.hosts), **in_short}


def verdict(finished: Finished, host: str) -> Json:
    """What an audit came to for a host; it is unknown where it was not asked."""
    own = of_host(finished.audit, host)
    return {**_about(finished), "host": host, "audit": audit_json(own)}


def verdict_in_short(finished: Finished | None, host: str) -> Json:
    """The same in words; number 0 where there is no audit."""
    if finished is None:
        return {"number": 0, "host": host}
    own = of_host(finished.audit, host)
    said = in_words(own).removesuffix("; 1 host")
    about = {"verdict": summary(own).by_host[host], "severity": _severity(own), "said": said}
    return {**_head(finished), "host": host, **about}


def findings(finished: Finished, wanted: Wanted, limit: int = MOST_ROWS) -> Json:
    """What does not pass, alike findings in one row.

    Args:
        finished: the audit.
        wanted: which findings; `counts` are of all verdicts.
        limit: rows at most.
    """
    found = chosen(finished.audit, wanted)
    rows = fold(_of_verdicts(found, wanted))
    own = [row for row in rows if not row.first.is_shared]
    shared = [row for row in rows if row.first.is_shared]
    hosts, most = finished.audit.hosts, min(limit, MOST_ROWS)
    return {
        **listed(finished),
        "counts": dict(Counter(result.verdict for result in found if not result.is_shared)),
        "passed": _passed(finished.audit, wanted),
        "rows": [_row_json(row, hosts) for row in own[:most]],
        "row_count": len(own),
        "shared": [_row_json(row, hosts) for row in shared[:most]],
        "shared_count": len(shared),
    }


def finding(finished: Finished, wanted: Wanted, key: str) -> Json | None:
    """One row of `findings`, with its results one by one; None where there is none of that key."""
    found = _of_verdicts(chosen(finished.audit, wanted), wanted)
    row = next((each for each in fold(found) if each.key == key), None)
    if row is None:
        return None
    hosts = finished.audit.hosts
    told = sorted(row.results, key=lambda result: (result.host, result.subject, result.check))
    return {
        "number": finished.number,
        "row": _row_json(row, hosts),
        "results": [_result_json(result, hosts) for result in told[:MOST_LISTED]],
        "result_count": len(told),
    }


def changes(older: Finished, newer: Finished, found: Changes) -> Json:
    """What has changed between two audits, alike findings in one row."""
    hosts = {**older.audit.hosts, **newer.audit.hosts}
    changed = [_both(before, after) for before, after in found.changed]
    answer: Json = {"older": older.number, "newer": newer.number}
    for name, results in (("new", found.new), ("gone", found.gone), ("changed", changed)):
        rows = fold(results)
        answer[name] = [_change_json(row, hosts, is_other=name == "changed") for row in rows[:MOST_CHANGES]]
        answer[f"{name}_count"] = len(rows)
    return answer


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


def audit_json(audit: Audit) -> Json:
    """All verdicts."""
    return dict(msgspec.to_builtins(audit))


def _about(finished: Finished) -> Json:
    flows = "" if finished.carried is None else finished.carried.in_words()
    return {**_head(finished), "verdict": summary(finished.audit).verdict, "flows": flows}


def _head(finished: Finished) -> Json:
    return {
        "number": finished.number,
        "level": finished.level,
        "by": finished.by,
        "began_s": finished.began_s,
        "ended_s": finished.ended_s,
    }


def _severity(audit: Audit) -> Severity:
    """How grave it is as a whole, as `cwdp audit run --nagios` has it."""
    status = exit_status(audit)
    if status == FAILED:
        return "critical"
    if status == INCOMPLETE:
        return "unknown"
    return "warning" if any(result.verdict in WARNING for result in audit.results) else "ok"


def _of_verdicts(results: Iterable[Result], wanted: Wanted) -> list[Result]:
    return [result for result in results if not wanted.verdicts or result.verdict in wanted.verdicts]


def _passed(audit: Audit, wanted: Wanted) -> int | None:
    """How much passes; None where that is not known of what is wanted."""
    if wanted.text:
        return None
    if not wanted.host:
        return sum(audit.passed.values())
    return audit.hosts.get(wanted.host)


def _row_json(row: Row, hosts: dict[str, int]) -> Json:
    one, names = row.first, {result.host for result in row.results}
    return {
        "key": row.key,
        "verdict": one.verdict,
        "severity": one.severity,
        "checks": list(row.checks[:MOST_CHECKS]),
        "check_count": len(row.checks),
        "where": where(row.results, hosts),
        "parts": parts(row.results),
        "host": one.host if len(names) == 1 and one.host in hosts else None,
        "host_count": sum(name in hosts for name in names),
        "result_count": len(row.results),
        "found": row.found,
        "expected": row.expected,
        "variants": row.variants,
        "reason": row.reason,
        **{key: getattr(one, key) if len(row.checks) == 1 else "" for key in OF_A_CHECK},
        "until": one.until,
    }


def _result_json(result: Result, hosts: dict[str, int]) -> Json:
    kept = ("check", "host", "subject", "found", "expected", "reason", "group")
    return {**{key: getattr(result, key) for key in kept}, "is_host": result.host in hosts}


def _change_json(row: Row, hosts: dict[str, int], *, is_other: bool) -> Json:
    told = _row_json(row, hosts)
    kept = ("key", "verdict", "checks", "check_count", "where", "parts", "host", "host_count")
    before, after = (row.expected, row.found) if is_other else ("", row.found or row.reason)
    return {**{key: told[key] for key in kept}, "before": before, "after": after}


def _both(before: Result, after: Result) -> Result:
    """The later one, which says in words what was found, and was found before in place of what is expected."""
    told = [f"{each.verdict.replace('_', ' ')}: {each.found or each.reason}" for each in (before, after)]
    if told[0] == told[1]:
        told = [f"{said}, expected {each.expected}" for said, each in zip(told, (before, after), strict=True)]
    return msgspec.structs.replace(after, expected=told[0], found=told[1], reason="", until="")
