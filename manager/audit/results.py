"""What an audit comes to: a result for all that is no pass, and how often what passed."""

from typing import Literal

from msgspec import Struct

from manager.audit.checks.model import Severity

Verdict = Literal["pass", "warn", "fail", "outlier", "divided", "unknown", "not_applicable", "waived"]

GRAVEST: tuple[Verdict, ...] = (
    "fail",
    "outlier",
    "unknown",
    "warn",
    "divided",
    "waived",
    "pass",
    "not_applicable",
)
"""The gravest first. What is not known comes before a warning: it may be a failure."""

ANSWERS = "answers"
"""The name of what is `unknown` of a host that did not answer."""

FABRIC = "fabric"
"""In place of a host, of what is no host's: links between switches."""

WAIVERS = "waivers"
"""The name under which a waiver that has expired warns."""


class Result(Struct, frozen=True, kw_only=True):
    """What a check says of a subject.

    Attributes:
        check: its name.
        host: of the subject; several as ranges, such as `gpu[001-040]`, where it is about a group.
        subject: its name on its host; "" for the host itself, and for all of a host's where nothing is known of any.
        severity: the check's.
        fact: that was judged.
        found, expected: in words, shortened, without control characters.
        why, mend, reference: as the check has them.
        group: the hosts that it was compared with, in words.
        reason: why it is `unknown`, or `waived`.
        until: the last day of the waiver, YYYY-MM-DD.
        is_shared: of what is `unknown`: all hosts of its group lack the fact for the same reason, such as a driver that
            does not tell it. Nothing is wrong with one of them then, and the audit is not incomplete by it.
    """

    check: str
    host: str
    subject: str = ""
    verdict: Verdict
    severity: Severity
    fact: str = ""
    found: str = ""
    expected: str = ""
    why: str = ""
    mend: str = ""
    reference: str = ""
    group: str = ""
    reason: str = ""
    until: str = ""
    is_shared: bool = False


class Audit(Struct, frozen=True, kw_only=True):
    """All verdicts about a fleet.

    Attributes:
        results: for all that neither passes nor is not applicable, in the order of checks, hosts and subjects.
        hosts: all that were asked, by name, and how many verdicts `pass` each has.
        passed: how many subjects pass each check.
        not_applicable: to how many each does not apply.
    """

    results: list[Result]
    hosts: dict[str, int]
    passed: dict[str, int]
    not_applicable: dict[str, int]
