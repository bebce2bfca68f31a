"""What audits came to, as people read it: alike findings in one row, with what to do about them."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from manager.audit import summary
from manager.audit.judging.ranges import ranges
from manager.audit.results import GRAVEST, Audit, Result

STYLES = {
    "fail": "red",
    "outlier": "red",
    "unknown": "magenta",
    "warn": "yellow",
    "divided": "yellow",
    "waived": "dim",
    "pass": "green",
}


def rendered(audit: Audit) -> RenderableType:
    """A table of what does not pass, and the sum below it."""
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 1), expand=True)
    for column in ("", "check"):
        table.add_column(column, no_wrap=True)
    for column, ratio in (("where", 2), ("what", 3)):
        table.add_column(column, overflow="fold", ratio=ratio)
    rows = _alike(audit.results)
    for alike in rows:
        one = alike[0]
        names = dict.fromkeys(each.check for each in alike)
        check = one.check if len(names) == 1 else f"{len(names)} checks"
        table.add_row(Text(one.verdict, STYLES[one.verdict]), check, _where(alike), _what(one, list(names)))
    return Group(*([table] if rows else []), Text(summary.in_words(audit)))


def _alike(results: Iterable[Result]) -> list[list[Result]]:
    """Findings that say the same, of several hosts, or, where nothing is known, of several checks; the gravest first."""
    same: defaultdict[tuple[Any, ...], list[Result]] = defaultdict(list)
    for one in results:
        said = (one.host, one.subject) if one.verdict == "unknown" else (one.check, one.found, one.expected)
        same[one.verdict, one.reason, *said].append(one)
    return sorted(same.values(), key=lambda alike: (GRAVEST.index(alike[0].verdict), alike[0].check))


def _where(alike: Sequence[Result]) -> str:
    subjects = sorted({one.subject for one in alike if one.subject})
    hosts = sorted({one.host for one in alike})
    named = ranges(hosts)
    return f"{named}: {', '.join(subjects)}" if subjects else named


def _what(one: Result, names: Sequence[str]) -> Text:
    said = one.reason if one.verdict == "unknown" else one.found or one.reason
    if one.found and one.expected:
        said = f"{one.found}; expected {one.expected}"
    what = Text(said)
    if len(names) > 1:
        what.append(f": {', '.join(names)}", "dim")
    if one.reason and said != one.reason:
        what.append(f" ({one.reason})")
    if one.mend and one.verdict in ("fail", "outlier", "warn"):
        what.append(f"\n-> {one.mend}", "bold" if one.verdict != "warn" else "")
    return what
