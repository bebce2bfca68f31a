"""Findings of many hosts in few rows: alike ones are one row, the gravest first. Pure.

A check that found much that differs, as temperatures do, is one row too. What is unknown for the same reason is one row
whatever its checks.
"""

import hashlib
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Container, Iterable, Sequence
from fnmatch import fnmatchcase
from functools import cache

from msgspec import Struct

from manager.audit.judging.ranges import among, ranges
from manager.audit.results import GRAVEST, Audit, Result

MOST_ROWS = 200
MOST_LISTED = 1000
"""Results of a row that are told one by one."""

FEW = 8
"""So many different things that a check found have rows of their own; more are one row."""

MOST_NAMED = 3
MOST_PARTS = 4


class Wanted(Struct, frozen=True, kw_only=True):
    """Which results.

    Attributes:
        verdicts: one of these; empty for all.
        host: the name of a host, or a pattern of such; empty for all. What is about a group is about each host of it.
        text: part of the name of a check, a host or a subject, in any case.
    """

    verdicts: frozenset[str] = frozenset()
    host: str = ""
    text: str = ""


class Row(Struct, frozen=True, kw_only=True):
    """Results that are alike.

    Attributes:
        key: names it among the rows of the same audit and the same filters.
        results: all of them.
        checks: their names.
        found, expected, reason: in words; of several different ones the most frequent.
        variants: how many different ones there are.
    """

    key: str
    results: Sequence[Result]
    checks: Sequence[str]
    found: str
    expected: str
    reason: str
    variants: int

    @property
    def first(self) -> Result:
        """One of them, for what all have in common."""
        return self.results[0]


def chosen(audit: Audit, wanted: Wanted) -> list[Result]:
    """Those of its results that are wanted, of any verdict."""
    text = wanted.text.lower()
    is_it = _host_test(wanted.host, audit.hosts)
    return [
        result
        for result in audit.results
        if is_it(result.host)
        and (not text or text in f"{result.check} {result.host} {result.subject}".lower())
    ]


def fold(results: Iterable[Result]) -> list[Row]:
    """Rows, the gravest first, then those with the most results."""
    kinds: defaultdict[tuple[str, ...], list[Result]] = defaultdict(list)
    for result in results:
        kinds[_kind(result)].append(result)
    rows = [row for kind, alike in kinds.items() for row in _rows(kind, alike)]
    return sorted(rows, key=_order)


def where(results: Iterable[Result], hosts: Container[str]) -> str:
    """Their hosts as ranges; what is none, such as a group, as it is called."""
    named = {result.host for result in results}
    own = {name for name in named if name in hosts}
    others = sorted(named - own)
    told = [ranges(own)] if own else []
    told += others[:FEW]
    return ", ".join(told) + (f" and {len(others) - FEW} more" if len(others) > FEW else "")


def parts(results: Iterable[Result]) -> str:
    """Their subjects in few words."""
    return ranges((result.subject for result in results if result.subject), most=MOST_PARTS)


def place(row: Row, hosts: Container[str]) -> str:
    """Where a row is: its hosts, and their parts."""
    subjects = parts(row.results)
    return f"{where(row.results, hosts)}: {subjects}" if subjects else where(row.results, hosts)


def _host_test(host: str, hosts: Collection[str]) -> Callable[[str], bool]:
    """Whether a result about a host, or several as ranges, is about one that is wanted."""
    if not host:
        return lambda _: True
    names = {name for name in hosts if name == host or fnmatchcase(name, host)}

    @cache
    def is_it(told: str) -> bool:
        if told in hosts:
            return told in names
        return told == host or any(map(among(told), names))

    return is_it


def _kind(result: Result) -> tuple[str, ...]:
    shared = "shared" if result.is_shared else ""
    if result.verdict == "unknown":
        return (result.verdict, shared, result.reason)
    return (result.verdict, shared, result.check, result.severity, result.why, result.mend, result.reference)


def _said(result: Result) -> tuple[str, ...]:
    if result.verdict == "unknown":
        return ()
    return (result.found, result.expected, result.reason, result.until)


def _rows(kind: tuple[str, ...], alike: list[Result]) -> list[Row]:
    by_said: defaultdict[tuple[str, ...], list[Result]] = defaultdict(list)
    for result in alike:
        by_said[_said(result)].append(result)
    if len(by_said) > FEW:
        return [_row((*kind, "several"), alike)]
    return [_row((*kind, *said), results) for said, results in by_said.items()]


def _row(named: tuple[str, ...], results: list[Result]) -> Row:
    return Row(
        key=hashlib.blake2s("\0".join(named).encode(errors="replace"), digest_size=6).hexdigest(),
        results=results,
        checks=sorted({result.check for result in results}),
        found=_most(result.found for result in results),
        expected=_most(result.expected for result in results),
        reason=_most(result.reason for result in results),
        variants=len({_said(result) for result in results}),
    )


def _most(texts: Iterable[str]) -> str:
    """The most frequent of some texts."""
    counts = Counter(texts)
    told = [text for text, _ in counts.most_common(MOST_NAMED) if text]
    more = [f"{len(counts) - MOST_NAMED:,} others"] if len(counts) > MOST_NAMED else []
    return "; ".join(told + more)


def _order(row: Row) -> tuple[int, int, int, str, str]:
    one = row.first
    return GRAVEST.index(one.verdict), one.severity != "fail", -len(row.results), row.checks[0], row.found
