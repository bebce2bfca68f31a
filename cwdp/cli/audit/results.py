"""What audits came to, as people read it: alike findings in one row, with what to do about them."""

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from manager.audit import summary
from manager.audit.folding import Row, fold, place
from manager.audit.results import Audit

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
    rows = fold(audit.results)
    for row in rows:
        verdict = row.first.verdict
        check = row.checks[0] if len(row.checks) == 1 else f"{len(row.checks)} checks"
        table.add_row(Text(verdict, STYLES[verdict]), check, Text(place(row, audit.hosts)), _what(row))
    return Group(*([table] if rows else []), Text(summary.in_words(audit)))


def _what(row: Row) -> Text:
    one = row.first
    said = row.reason if one.verdict == "unknown" else row.found or row.reason
    what = Text(said)
    if row.expected and one.verdict != "unknown":
        what.append(f"; expected {row.expected}")
    if len(row.checks) > 1:
        what.append(f": {', '.join(row.checks)}", "dim")
    if row.reason and row.reason != said:
        what.append(f" ({row.reason})")
    if one.mend and one.verdict in ("fail", "outlier", "warn"):
        what.append(f"\n-> {one.mend}", "bold" if one.verdict != "warn" else "")
    return what
