"""What an audit comes to as a whole: verdicts of hosts, the exit status, a line for Nagios. Pure."""

from collections import Counter
from collections.abc import Container, Iterable

from msgspec import Struct

from manager.audit.judging.ranges import ranges
from manager.audit.results import ANSWERS, GRAVEST, Audit, Result, Verdict

PASSED, FAILED, USAGE, INCOMPLETE = 0, 1, 2, 3
"""Exit status of an audit. `USAGE` is that of errors of usage and settings."""

NAGIOS_OK, NAGIOS_WARNING, NAGIOS_CRITICAL, NAGIOS_UNKNOWN = 0, 1, 2, 3
"""Exit status of a Nagios plug-in (Monitoring Plugins development guidelines, plugin return codes)."""

FAILING = ("fail", "outlier")
WARNING = ("warn", "divided")
"""A divided group accuses nobody, as while a fleet is being upgraded: it counts as a warning."""

COUNTED: tuple[Verdict, ...] = ("fail", "outlier", "warn", "divided", "unknown", "waived")
MOST_NAMED = 3


class Summary(Struct, frozen=True, kw_only=True):
    """A fleet's audit in short.

    Attributes:
        verdict: the gravest of all.
        hosts: how many there are.
        by_verdict: how many results have each verdict, `pass` and `not_applicable` too.
        by_host: the gravest of each host; a divided group is nobody's.
        incomplete: hosts that did not answer, and results that are unknown of checks whose failure would fail, but for
            what all hosts of a group cannot tell.
    """

    verdict: Verdict
    hosts: int
    by_verdict: dict[Verdict, int]
    by_host: dict[str, Verdict]
    incomplete: int


def summary(audit: Audit) -> Summary:
    """Of all results."""
    counts: Counter[Verdict] = Counter(result.verdict for result in audit.results)
    counts["pass"] = sum(audit.passed.values())
    counts["not_applicable"] = sum(audit.not_applicable.values())
    by_host: dict[str, Verdict] = {
        name: "pass" if passed else "not_applicable" for name, passed in audit.hosts.items()
    }
    for result in audit.results:
        if result.host in by_host:
            by_host[result.host] = gravest([by_host[result.host], result.verdict])
    return Summary(
        verdict=gravest(verdict for verdict, count in counts.items() if count),
        hosts=len(audit.hosts),
        by_verdict=dict(counts),
        by_host=by_host,
        incomplete=sum(matters(result) for result in audit.results),
    )


def gravest(verdicts: Iterable[Verdict]) -> Verdict:
    """Of some verdicts; `not_applicable` of none."""
    return min(verdicts, key=GRAVEST.index, default="not_applicable")


def matters(result: Result) -> bool:
    """Whether it is unknown what might fail, but for what all hosts of a group cannot tell."""
    return result.verdict == "unknown" and result.severity == "fail" and not result.is_shared


def exit_status(audit: Audit, *, strict: bool = False) -> int:
    """0 if all is well, 1 if something fails or is an outlier, 3 if nothing does but what matters is not known.

    Strictly, warnings and divided groups fail too, and all that is unknown matters. An audit of no host is incomplete.
    """
    failing = (*FAILING, *WARNING) if strict else FAILING
    if any(result.verdict in failing for result in audit.results):
        return FAILED
    if not audit.hosts or any(
        matters(result) or (strict and result.verdict == "unknown") for result in audit.results
    ):
        return INCOMPLETE
    return PASSED


def nagios(audit: Audit, *, strict: bool = False) -> tuple[str, int]:
    """A line, and the exit status that Nagios knows: 0 for OK, 1 for WARNING, 2 for CRITICAL, 3 for UNKNOWN."""
    status = exit_status(audit, strict=strict)
    has_warnings = any(result.verdict in WARNING for result in audit.results)
    told: tuple[str, ...] = ("unknown",)
    if status == FAILED:
        word, code, told = "CRITICAL", NAGIOS_CRITICAL, (*FAILING, *WARNING)
    elif status == INCOMPLETE:
        word, code = "UNKNOWN", NAGIOS_UNKNOWN
    elif has_warnings:
        word, code, told = "WARNING", NAGIOS_WARNING, WARNING
    else:
        word, code = "OK", NAGIOS_OK
    counts = Counter(result.verdict for result in audit.results)
    figures = " ".join(f"{verdict}={counts[verdict]}" for verdict in COUNTED)
    return f"AUDIT {word} - {_said(audit, told)} | {figures} hosts={len(audit.hosts)}", code


def in_words(audit: Audit) -> str:
    """How many results there are of each verdict, the gravest first, and of how many hosts."""
    counts = summary(audit).by_verdict
    told = [f"{counts[verdict]:,} {verdict.replace('_', ' ')}" for verdict in GRAVEST if counts.get(verdict)]
    return f"{', '.join(told) or 'nothing'}; {len(audit.hosts):,} host{'s' if len(audit.hosts) != 1 else ''}"


def gravest_in_words(audit: Audit) -> str:
    """The gravest of what fails, warns or is unknown, by check, with its hosts; "" where all passes."""
    told = (*FAILING, *WARNING, "unknown")
    return _said(audit, told) if any(result.verdict in told for result in audit.results) else ""


def of_host(audit: Audit, host: str) -> Audit:
    """What is said of one host; of one that was not asked, that nothing is known of it."""
    if host not in audit.hosts:
        unasked = Result(
            check=ANSWERS, host=host, verdict="unknown", severity="fail", reason="it was not in this audit"
        )
        return Audit(results=[unasked], hosts={host: 0}, passed={}, not_applicable={})
    results = [result for result in audit.results if result.host == host]
    return Audit(
        results=results, hosts={host: audit.hosts[host]}, passed={"all": audit.hosts[host]}, not_applicable={}
    )


def _said(audit: Audit, verdicts: Container[str]) -> str:
    """The gravest findings by check, with their hosts; no character that Nagios would take for its own."""
    found = [result for result in audit.results if result.verdict in verdicts]
    if not found:
        return f"{len(audit.hosts)} hosts as they ought to be"
    worst = gravest(result.verdict for result in found)
    hosts: dict[str, list[str]] = {}
    for result in found:
        if result.verdict == worst:
            hosts.setdefault(result.check, []).append(result.host)
    told = [
        f"{check} on {ranges(names, most=MOST_NAMED)}" for check, names in list(hosts.items())[:MOST_NAMED]
    ]
    more = [f"{len(hosts) - MOST_NAMED} more checks"] if len(hosts) > MOST_NAMED else []
    return f"{worst}: {'; '.join(told + more)}".replace("|", "/").replace("\n", " ")
