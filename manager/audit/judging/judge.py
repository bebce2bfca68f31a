"""Facts of a fleet held against checks, check by check over columns: each value that differs is judged once. Pure."""

from collections.abc import Collection, Iterable, Mapping
from datetime import date

import numpy as np

from cwdp.shared.audit.facts import HostFacts, Subject
from manager.audit.checks.model import Check, Checks
from manager.audit.judging.expectations import expected, fits_condition, holds
from manager.audit.judging.fleet import KINDS, MOST_SUBJECTS, Fleet, Rows
from manager.audit.judging.groups import Groups
from manager.audit.judging.same import Declared, in_groups
from manager.audit.judging.tally import Tally
from manager.audit.judging.values import Garbled, Known, shown
from manager.audit.judging.waivers import expired, waived
from manager.audit.results import ANSWERS, Audit, Result, Verdict

DECLARING = ("value", "one_of")
"""Checks that say what a fact is: the majority is not asked then."""

NO_ANSWER = "did not answer"


def judge(
    checks: Checks,
    facts: Iterable[HostFacts],
    *,
    today: date,
    silent: Mapping[str, str] | Collection[str] = (),
) -> Audit:
    """Hold the facts of hosts against checks.

    Args:
        checks: what is expected, and what is waived.
        facts: of the hosts that answered; of two of one name the later.
        today: in UTC, for waivers.
        silent: hosts that were asked and did not answer; with the reason, if there is one.
    """
    fleet = Fleet(facts)
    tally = Tally(fleet)
    groups = Groups(fleet)
    declared = Declared(fleet, [check for check in checks.checks if check.expectation in DECLARING])
    for check in checks.checks:
        rows = fleet.select(check)
        tally.begin(check, rows)
        if check.expectation == "same_in_group":
            in_groups(check, declared.without(check, rows), fleet, groups, tally)
        else:
            _each(check, rows, fleet, tally)
        for each in rows.unsure:
            tally.unknown(each.place, each.reason)
        tally.end(rows, groups)
        _untold(check, fleet, tally)
    answers = [*_of_silent(fleet, silent), *_of_strange(fleet, tally)]
    results = waived([*answers, *tally.results], checks.waivers, today)
    results += expired(checks.waivers, fleet.hosts, today)
    passed_by_host = {host.host: int(count) for host, count in zip(fleet.hosts, tally.by_host, strict=True)}
    hosts = {name: passed_by_host.get(name, 0) for name in sorted({*passed_by_host, *silent})}
    return Audit(results=results, hosts=hosts, passed=tally.passed, not_applicable=tally.not_applicable)


def _each(check: Check, rows: Rows, fleet: Fleet, tally: Tally) -> None:
    """Judge every row by itself."""
    values = fleet.column(check.fact, rows, check.kind)
    if check.expectation == "equals_fact":
        _pairs(check, rows, values, fleet, tally)
        return
    distinct = set(values)
    if None in distinct:
        distinct.discard(None)
        tally.absent(check.fact, rows, [row for row, each in enumerate(values) if each is None])
    bad = _bad(check, distinct)
    if not bad:
        return
    wanted = expected(check)
    for row, value in enumerate(values):
        if value not in bad:
            continue
        if isinstance(value, Garbled):
            tally.not_known(check.fact, rows, row, value)
        elif bad[value] == "unknown":
            tally.add(rows, row, "unknown", found=shown(value), expected=wanted, reason="it is no version")
        else:
            tally.add(rows, row, bad[value], found=shown(value), expected=wanted)


def _bad(check: Check, values: Iterable[Known]) -> dict[Known, Verdict]:
    """Values that do not pass, with their verdicts."""
    is_held = holds(check)
    found: dict[Known, Verdict] = {}
    for value in values:
        verdict = None if value is None or isinstance(value, Garbled) else is_held(value)
        if not verdict:
            found[value] = "unknown" if verdict is None else check.severity
    return found


def _pairs(check: Check, rows: Rows, values: list[Known], fleet: Fleet, tally: Tally) -> None:
    """Judge every row by another fact of its own."""
    other = str(check.wanted)
    pairs = list(zip(values, fleet.column(other, rows, check.kind), strict=True))
    unequal = {
        pair for pair in set(pairs) if pair[0] != pair[1] or pair[0] is None or isinstance(pair[0], Garbled)
    }
    if not unequal:
        return
    for row, pair in enumerate(pairs):
        if pair not in unequal:
            continue
        mine, wanted = pair
        if mine is None or isinstance(mine, Garbled):
            tally.not_known(check.fact, rows, row, mine)
        elif wanted is None or isinstance(wanted, Garbled):
            tally.not_known(other, rows, row, wanted)
        else:
            said = f"{shown(wanted)}, as {other}"
            tally.add(rows, row, check.severity, found=shown(mine), expected=said)


def _untold(check: Check, fleet: Fleet, tally: Tally) -> None:
    """Hosts that could not say which subjects of the check's kind they have, so that it says nothing of them."""
    if not fleet.troubled or check.kind == "host":
        return
    have = set(next(fleet.of_kind[kind] for kind in KINDS if kind == check.kind).owners)
    for owner in fleet.troubled:
        reason = "" if owner in have else fleet.trouble(check.fact, fleet.hosts[owner], has_subjects=False)
        if reason and fleet.fits(owner, check) and not _is_ruled_out(check, owner, fleet):
            tally.add_of(Subject(kind="host"), owner, "unknown", reason=reason)


def _is_ruled_out(check: Check, owner: int, fleet: Fleet) -> bool:
    """Whether a condition about the host itself is known not to hold."""
    host = fleet.of_kind["host"]
    for name, wanted in check.when:
        if name.startswith("host."):
            value = fleet.column(name, host, "host")[owner]
            if value is None:
                return fleet.reason(name, host.subjects[owner], owner) is None
            if not isinstance(value, Garbled) and not fits_condition(value, wanted):
                return True
    return False


def _of_silent(fleet: Fleet, silent: Mapping[str, str] | Collection[str]) -> list[Result]:
    known = {host.host for host in fleet.hosts}
    reasons = silent if isinstance(silent, Mapping) else {}
    return [
        _no_answer(name, shown(reasons.get(name) or NO_ANSWER))
        for name in sorted(silent)
        if name not in known
    ]


def _of_strange(fleet: Fleet, tally: Tally) -> list[Result]:
    """Hosts that tell nothing of which anything could be said, or too much."""
    found = [
        _no_answer(fleet.hosts[owner].host, "it tells nothing that could be judged")
        for owner in np.flatnonzero(tally.by_host == 0).tolist()
        if owner not in tally.owners_with_results and fleet.tells_nothing(owner)
    ]
    found += [
        _no_answer(host.host, f"it tells of {len(host.subjects)} parts; {MOST_SUBJECTS} were judged")
        for host in fleet.hosts
        if len(host.subjects) > MOST_SUBJECTS
    ]
    return found


def _no_answer(host: str, reason: str) -> Result:
    return Result(
        check=ANSWERS,
        host=host,
        verdict="unknown",
        severity="fail",
        expected="facts",
        why="what is not known may be wrong",
        mend="see whether the host and its agent run: cwdp host",
        reason=reason,
    )
