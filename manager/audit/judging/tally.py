"""Verdicts as they are found: structs for what is no pass, counts for the rest."""

import numpy as np
from numpy.typing import NDArray

from cwdp.shared.audit.facts import Subject
from manager.audit.checks.model import Check
from manager.audit.judging.fleet import Fleet, Rows
from manager.audit.judging.values import Garbled
from manager.audit.results import Result, Verdict


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
        self._counts: dict[int, NDArray[np.intp]] = {}

    def host_name(self, owner: int) -> str:
        """Of a host by its number."""
        return self._fleet.hosts[owner].host

    def begin(self, check: Check, rows: Rows) -> None:
        """All rows pass, until something else is said of them."""
        self._check = check
        self._whole_host = set()
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
        self.results.append(
            Result(
                check=check.name,
                host=host,
                subject=subject,
                verdict=verdict,
                severity=check.severity,
                fact=check.fact,
                why=check.why,
                mend=check.mend,
                reference=check.reference,
                **said,
            )
        )

    def not_known(self, fact: str, rows: Rows, row: int, value: Garbled | None) -> None:
        """A row whose fact is not there, or not sane: unknown where there is a reason, else it does not apply to it.

        What all of a host lack for one reason is said once.
        """
        subject, owner = rows.subjects[row], rows.owners[row]
        if value is not None:
            self.add(rows, row, "unknown", found=value.why, reason="what it tells makes no sense")
            return
        self.take(rows, row)
        reason = self._fleet.reason(fact, subject, owner)
        if reason is None:
            self.not_applicable[self._check.name] += 1
            return
        why, is_whole = reason
        if not is_whole:
            self.add_of(subject, owner, "unknown", reason=why)
        elif (owner, why) not in self._whole_host:
            self._whole_host.add((owner, why))
            self.add_of(Subject(kind="host"), owner, "unknown", reason=why)
