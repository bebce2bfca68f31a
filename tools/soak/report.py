"""A soak's result as tables that fit a terminal."""

from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

Json = dict[str, Any]
MIB = 1 << 20


def render(result: Json) -> RenderableType:
    """All of it."""
    kinds: dict[str, int] = {}
    for trouble in result["troubles"]:
        kinds[trouble["kind"]] = kinds.get(trouble["kind"], 0) + 1
    troubles = ", ".join(f"{count} {kind.replace('_', ' ')}" for kind, count in sorted(kinds.items()))
    by_kind = f": {troubles}" if troubles else ""
    verdict = "everything held" if not result["failed"] else f"failed: {', '.join(result['failed'])}"
    return Group(
        _checks(result["checks"]),
        _named(result["findings"]["named"]),
        _holdings(result["holdings"]),
        _stores(result["stores"]),
        Text(f"{len(result['troubles'])} troubles in {result['minutes']:g} minutes{by_kind}"),
        Text(f"{result['lab']}; seed {result['seed']}; the machine was {result['idle_share']:.0%} idle"),
        Text(verdict, style="red" if result["failed"] else "green"),
    )


def _checks(checks: list[Json]) -> Table:
    table = _table("what must hold", "wanted", "found", "")
    for check in checks:
        mark = Text("ok", "green") if check["passed"] else Text("FAILED", "red")
        table.add_row(check["what"], check["wanted"], Text(check["found"]), mark)
    return table


def _named(named: Json) -> Table:
    table = _table("fault", "named", "median", "longest")
    for kind, row in named.items():
        table.add_row(
            kind.replace("_", " "), str(row["count"]), f"{row['p50_s']:.1f} s", f"{row['max_s']:.1f} s"
        )
    return table


def _holdings(rows: list[Json]) -> Table:
    table = _table("processes", "quantity", "median", "an hour", "99 %", "verdict")
    for row in rows:
        level = (
            f"{row['level'] / MIB:.1f} MiB" if row["quantity"].endswith("bytes") else f"{row['level']:.0f}"
        )
        interval = " to ".join(
            "?" if row[key] is None else f"{row[key]:+.1%}" for key in ("low_per_h", "high_per_h")
        )
        style = "red" if row["verdict"] == "grows" else ""
        name = row["quantity"].removesuffix("_bytes").replace("_", " ")
        table.add_row(row["role"], name, level, f"{row['per_h']:+.1%}", interval, Text(row["verdict"], style))
    return table


def _stores(rows: list[Json]) -> Table:
    table = _table("store", "size", "an hour", "bounded by")
    for row in rows:
        sizes = (f"{row[key] / MIB:.2f} MiB" for key in ("bytes", "bytes_per_h"))
        table.add_row(row["what"], *sizes, row["bound"] or "nothing known")
    return table


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False)
    for column in columns:
        table.add_column(column)
    return table
