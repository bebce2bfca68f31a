"""Verdicts as they are found: structs for what is no pass, counts for the rest."""

import re
from collections import Counter, defaultdict

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from cwdp.shared.audit.facts import Subject
from manager.audit.checks.model import Check
from manager.audit.judging.fleet import Fleet, Reason, Rows
from manager.audit.judging.groups import Groups
from manager.audit.judging.ranges import ranges
from manager.audit.judging.values import Garbled
from manager.audit.results import Result, Verdict

PASSING = re.compile(
    r"permi|denied|privilege|timed out|time-out|timeout|busy|hang|input/output", re.IGNORECASE
)
"""Reasons that are no property of the hardware, and are never taken for one."""


class Tally:
    """What is found of one check after the other; `begin` comes before the others."""

    def __init__(self, fleet: Fleet) -> None:
        self.results: list[Result] = []
        self.passed: dict[str, int] = {}
        self.not_applicable: dict[str, int] = {}
        self.by_host: NDArray[np.intp] = np.zeros(len(fleet.hosts), np.intp)
        self.owners_with_results: set[int] = set()
        self._fleet = fleet
        self._whole_host: set[tuple[int, str]] = set()
        self._own: list[tuple[int, str]] = []
        self._counts: dict[int, NDArray[np.intp]] = {}

    def host_name(self, owner: int) -> str:
        """Of a host by its number."""
        return self._fleet.hosts[owner].host

    def begin(self, check: Check, rows: Rows) -> None:
        """All rows pass, until something else is said of them."""
        self._check = check
        self._whole_host, self._own = set(), []
        if id(rows) not in self._counts:
            self._counts[id(rows)] = rows.counts(len(self._fleet.hosts))
        self.by_host += self._counts[id(rows)]
        self.passed[check.name] = len(rows)
        self.not_applicable[check.name] = 0

    def add(self, rows: Rows, row: int, verdict: Verdict, **said: str) -> None:
        """A row does not pass."""
        self.take(rows, row)
        self.add_of(rows.subjects[row], rows.owners[row], verdict, **said)

    def take(self, rows: Rows, row: int) -> None:
        """A row does not count as passed."""
        self.passed[self._check.name] -= 1
        self.by_host[rows.owners[row]] -= 1

    def add_of(self, subject: Subject, owner: int, verdict: Verdict, **said: str) -> None:
        """The same of what was no row."""
        self.owners_with_results.add(owner)
        self.add_result(self._fleet.hosts[owner].host, subject.name, verdict, **said)

    def add_result(self, host: str, subject: str, verdict: Verdict, **said: str) -> None:
        """A result about a host, or about several."""
        check = self._check
        found = Result(
            check=check.name,
            host=host,
            subject=subject,
            verdict=verdict,
            severity=check.severity,
            fact=check.fact,
            why=check.why,
            mend=check.mend,
            reference=check.reference,
        )
        self.results.append(replace(found, **said))

    def not_known(self, fact: str, rows: Rows, row: int, value: Garbled | None) -> None:
        """A row whose fact is not there, or not sane: unknown where there is a reason, else it does not apply to it."""
        subject, owner = rows.subjects[row], rows.owners[row]
        if value is not None:
            self.add(rows, row, "unknown", found=value.why, reason="what it tells makes no sense")
            return
        self.take(rows, row)
        reason = self._fleet.reason(fact, subject, owner)
        if reason is None:
            self.not_applicable[self._check.name] += 1
        else:
            self.unknown(rows.place(row), reason)

    def absent(self, fact: str, rows: Rows, lacking: list[int]) -> None:
        """Rows without the fact. Where nothing of a subject or its host is missing, it does not apply: that is counted at once."""
        plain = self._fleet.are_plain(fact, rows)
        if not plain:
            for row in lacking:
                self.not_known(fact, rows, row, None)
            return
        alike = [row for row in lacking if plain[row]]
        name = self._check.name
        self.passed[name] -= len(alike)
        self.not_applicable[name] += len(alike)
        owners = np.array([rows.owners[row] for row in alike], np.intp)
        self.by_host -= np.bincount(owners, minlength=len(self.by_host))
        for row in lacking if len(alike) < len(lacking) else ():
            if not plain[row]:
                self.not_known(fact, rows, row, None)

    def unknown(self, place: int, reason: Reason) -> None:
        """A subject, by its place among all of its kind; what all of a host lack for one reason is said once."""
        rows = self._fleet.all_of(self._check.kind)
        owner = rows.owners[place]
        if reason.is_own and not PASSING.search(reason.why):
            self._own.append((place, reason.why))
        elif not reason.is_hosts:
            self.add_of(rows.subjects[place], owner, "unknown", reason=reason.why)
        elif (owner, reason.why) not in self._whole_host:
            self._whole_host.add((owner, reason.why))
            self.add_of(Subject(kind="host"), owner, "unknown", reason=reason.why)

    def end(self, rows: Rows, groups: Groups) -> None:
        """All rows of the check were judged: what all of a group lack for one reason is said once, and is shared."""
        if not self._own:
            return
        everyone = self._fleet.all_of(self._check.kind)
        numbers = groups.of(everyone, self._check.kind)
        sizes = Counter(numbers[place] for place in rows.all_places())
        lacking: defaultdict[tuple[int | None, str], list[int]] = defaultdict(list)
        for place, why in self._own:
            lacking[numbers[place], why].append(place)
        for (number, why), places in lacking.items():
            if number is not None and len(places) == sizes[number]:
                self._add_shared(everyone, places, groups.labels[number], why)
            else:
                for place in places:
                    subject, owner = everyone.subjects[place], everyone.owners[place]
                    self.add_of(subject, owner, "unknown", reason=why)

    def _add_shared(self, everyone: Rows, places: list[int], label: str, why: str) -> None:
        owners = {everyone.owners[place] for place in places}
        self.owners_with_results |= owners
        self.add_result(
            ranges(self.host_name(owner) for owner in owners),
            everyone.subjects[places[0]].name if len(places) == 1 else "",
            "unknown",
            reason=why,
            group=f"{label}: {len(owners)} host{'' if len(owners) == 1 else 's'}",
        )
        self.results[-1] = replace(self.results[-1], is_shared=True)
