"""Checks and hosts as tests say them."""

from datetime import date
from typing import Any

from cwdp.shared.audit.facts import HostFacts, Subject
from manager.audit.checks.loading import checks_of
from manager.audit.judging.judge import judge
from manager.audit.results import Audit, Result

TODAY = date(2030, 6, 1)


def check_text(fact: str, *lines: str, name: str = "c", severity: str = "fail") -> str:
    """A check as TOML."""
    return "\n".join(
        ["[[check]]", f'name = "{name}"', f'fact = "{fact}"', f'severity = "{severity}"', *lines, ""]
    )


def host(name: str = "h1", *subjects: Subject, **known: Any) -> HostFacts:
    """A host with parts; facts of its own are those of a subject of kind `host` among them."""
    return HostFacts(host=name, taken_s=1.9e9, subjects=list(subjects), **known)


def with_facts(name: str = "h1", missing: dict[str, str] | None = None, **facts: Any) -> HostFacts:
    """A host that has facts of its own only."""
    return host(name, Subject(kind="host", facts=facts, missing=missing or {}))


def judged(text: str, *facts: HostFacts, **known: Any) -> Audit:
    """Facts held against checks as TOML, without defaults."""
    return judge(checks_of([("checks.toml", text)], with_defaults=False), facts, today=TODAY, **known)


def verdicts(text: str, *facts: HostFacts, **known: Any) -> list[str]:
    """The verdicts of all results."""
    return [result.verdict for result in judged(text, *facts, **known).results]


def only(audit: Audit) -> Result:
    """The one result."""
    assert len(audit.results) == 1, audit.results
    return audit.results[0]
