"""An audit as a page of its own: HTML without scripts, to be kept, sent and opened anywhere. Pure."""

from collections import defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime
from html import escape

from manager.audit.folding import Row, fold, place
from manager.audit.judging.ranges import ranges
from manager.audit.results import GRAVEST, Audit, Result
from manager.audit.summary import in_words, summary

MOST_NAMED = 40
"""Ranges of hosts in a row."""

_STYLE = """
body{font:14px/1.45 system-ui,sans-serif;margin:2rem auto;max-width:75rem;padding:0 1rem;color:#1b1f24;background:#fff}
h1{font-size:1.4rem}h2{font-size:1.1rem;margin-top:2rem}p{margin:.3rem 0}
table{border-collapse:collapse;width:100%}td,th{text-align:left;vertical-align:top;padding:.35rem .6rem;border-bottom:1px solid #d0d7de}
th{font-weight:600}.v{font-weight:600;white-space:nowrap}.fail,.outlier{color:#b3261e}.warn,.divided{color:#8a5a00}
.unknown{color:#6f3fb5}.pass{color:#1a7f37}.waived,.not_applicable,small{color:#57606a}code{font-size:.95em}
@media (prefers-color-scheme:dark){body{color:#e6edf3;background:#0d1117}td,th{border-color:#30363d}.fail,.outlier{color:#ff7b72}
.warn,.divided{color:#e3b341}.unknown{color:#bc8cff}.pass{color:#3fb950}.waived,.not_applicable,small{color:#8b949e}}
"""


def html(audit: Audit, *, title: str, ended_s: float) -> str:
    """The page.

    Args:
        audit: the verdicts.
        title: what was audited.
        ended_s: when, Unix time.
    """
    time = datetime.fromtimestamp(ended_s, tz=UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    parts = [
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>',
        f"<style>{_STYLE}</style></head><body><h1>{escape(title)}</h1><p>{time}</p>",
        f"<p>{_verdict(summary(audit).verdict)}: {escape(in_words(audit))}</p>",
        *_findings(audit),
        *_hosts(audit),
        *_checks(audit),
        "</body></html>\n",
    ]
    return "\n".join(parts)


def _findings(audit: Audit) -> Iterator[str]:
    if not audit.results:
        return
    yield "<h2>Findings</h2><table><tr><th>verdict<th>check<th>where<th>what<th>why, and what to do</tr>"
    for row in fold(audit.results):
        yield (
            f"<tr><td>{_verdict(row.first.verdict)}<td>{escape(', '.join(row.checks))}"
            f"<td>{escape(place(row, audit.hosts))}<td>{_what(row)}<td>{_advice(row.first)}</tr>"
        )
    yield "</table>"


def _what(row: Row) -> str:
    said = escape(row.found or row.reason)
    if row.found and row.expected:
        said += f"<br><small>expected {escape(row.expected)}</small>"
    if row.found and row.reason:
        until = f", until {escape(row.first.until)}" if row.first.until else ""
        said += f"<br><small>{escape(row.reason)}{until}</small>"
    return said


def _advice(one: Result) -> str:
    told = [escape(one.why)] if one.why else []
    if one.mend:
        told.append(f"<code>{escape(one.mend)}</code>")
    if one.reference:
        told.append(f"<small>{escape(one.reference)}</small>")
    return "<br>".join(told)


def _hosts(audit: Audit) -> Iterator[str]:
    by_verdict: defaultdict[str, list[str]] = defaultdict(list)
    for host, verdict in summary(audit).by_host.items():
        by_verdict[verdict].append(host)
    yield "<h2>Hosts</h2><table><tr><th>gravest<th>how many<th>which</tr>"
    for verdict in GRAVEST:
        if hosts := by_verdict.get(verdict):
            named = escape(ranges(hosts, most=MOST_NAMED))
            yield f"<tr><td>{_verdict(verdict)}<td>{len(hosts):,}<td>{named}</tr>"
    yield "</table>"


def _checks(audit: Audit) -> Iterator[str]:
    yield "<h2>Checks</h2><table><tr><th>check<th>pass<th>not applicable</tr>"
    for check in sorted({*audit.passed, *audit.not_applicable}):
        passed, other = audit.passed.get(check, 0), audit.not_applicable.get(check, 0)
        yield f"<tr><td>{escape(check)}<td>{passed:,}<td>{other:,}</tr>"
    yield "</table>"


def _verdict(verdict: str) -> str:
    return f'<span class="v {verdict}">{verdict.replace("_", " ")}</span>'
