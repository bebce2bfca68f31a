"""A collective's result as tables for a terminal."""

from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table

_MS_NS = 1e6


def render(result: dict[str, Any]) -> RenderableType:
    """Tables of the communicators and of their ranks, and the iterations in a line."""
    total, duration = result["total"], result["duration"]
    return Group(
        _communicators(result),
        "",
        _ranks(result),
        "",
        f"{duration['count']} iterations: {_ms(duration['p50_ns'])} ms median, {_ms(duration['p99_ns'])} ms p99, "
        f"{_ms(duration['max_ns'])} ms slowest",
        f"{total['goodput_bps'] / 1e6:,.1f} Mbit/s, {total['retransmitted_packets']} packets sent again, "
        f"{total['failed']} queue pairs failed",
    )


def _communicators(result: dict[str, Any]) -> Table:
    table = _table("COMMUNICATOR", "COLLECTIVE", "RANKS", "P50 MS", "P99 MS", "SLOWEST MS")
    for communicator in result["communicators"]:
        table.add_row(
            communicator["name"],
            communicator["collective"],
            str(len(communicator["ranks"])),
            *_spread(communicator["duration"]),
        )
    return table


def _ranks(result: dict[str, Any]) -> Table:
    table = _table("RANK", "COMMUNICATOR", "LATE P50 MS", "LATE P99 MS", "LATEST MS")
    for communicator in result["communicators"]:
        for rank in communicator["ranks"]:
            table.add_row(rank["rank"], communicator["name"], *_spread(rank["lateness"]))
    return table


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False)
    for column in columns:
        table.add_column(column, justify="right" if column.endswith(("MS", "RANKS")) else "left")
    return table


def _spread(spread: dict[str, Any]) -> list[str]:
    return [_ms(spread[key]) for key in ("p50_ns", "p99_ns", "max_ns")]


def _ms(duration_ns: int | None) -> str:
    return "-" if duration_ns is None else f"{duration_ns / _MS_NS:.2f}"
