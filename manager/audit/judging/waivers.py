"""What is known and borne with for a while: results that become `waived`, and waivers whose time is over."""

from collections.abc import Sequence
from datetime import date
from fnmatch import fnmatchcase

from msgspec.structs import replace

from cwdp.shared.audit.facts import HostFacts
from manager.audit.checks.model import Waiver
from manager.audit.results import FABRIC, WAIVERS, Result

WAIVABLE = ("fail", "outlier", "warn", "divided")
"""What is not known cannot be waived: nobody knows what would be borne with."""


def waived(results: Sequence[Result], waivers: Sequence[Waiver], today: date) -> list[Result]:
    """The results, those that a waiver of today is about as `waived`.

    A group that is divided is waived by a waiver of all hosts only, since its finding is about all of them.
    """
    holding = [waiver for waiver in waivers if waiver.until >= today]
    return [_waived(result, holding) for result in results] if holding else list(results)


def expired(waivers: Sequence[Waiver], hosts: Sequence[HostFacts], today: date) -> list[Result]:
    """A warning for each waiver that has expired."""
    names = [FABRIC, *(host.host for host in hosts)]
    return [_expired(waiver, names) for waiver in waivers if waiver.until < today]


def _waived(result: Result, waivers: Sequence[Waiver]) -> Result:
    if result.verdict not in WAIVABLE:
        return result
    for waiver in waivers:
        is_about = (
            fnmatchcase(result.check, waiver.check)
            and fnmatchcase(result.subject, waiver.subject)
            and (waiver.host == "*" if result.verdict == "divided" else fnmatchcase(result.host, waiver.host))
        )
        if is_about:
            return replace(result, verdict="waived", reason=waiver.reason, until=waiver.until.isoformat())
    return result


def _expired(waiver: Waiver, names: Sequence[str]) -> Result:
    about = "no host is called so any more"
    if any(fnmatchcase(name, waiver.host) for name in names):
        about = f"until {waiver.until}, for: {waiver.reason}"
    return Result(
        check=WAIVERS,
        host=waiver.host,
        subject=waiver.subject,
        verdict="warn",
        severity="warn",
        found=f"a waiver of {waiver.check} has expired, {about}",
        expected="waivers that hold",
        why="what it was about counts again, and may have been mended since",
        mend=f"remove it, or give it another day: {waiver.origin}",
        until=waiver.until.isoformat(),
    )
