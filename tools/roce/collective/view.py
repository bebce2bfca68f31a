"""A collective's result as tables for a terminal."""

from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table

_MS_NS = 1e6


def render(result: dict[str, Any]) -> RenderableType:
    """Tables of the jobs, of their communicators and of their ranks."""
    total = result["total"]
    return Group(
        _jobs(result["jobs"]),
        "",
        _communicators(result["jobs"]),
        "",
        _ranks(result["jobs"]),
        f"{total['goodput_bps'] / 1e6:,.1f} Mbit/s, {total['retransmitted_packets']} packets sent again, "
        f"{total['failed']} queue pairs failed",
        "LATE: a rank's first send after the first one's; other times: from the first rank to the last",
    )


def _jobs(jobs: list[dict[str, Any]]) -> Table:
    table = _table("JOB", "RANKS", "ITERATIONS", "P50 MS", "P99 MS", "SLOWEST MS")
    for job in jobs:
        duration = job["duration"]
        table.add_row(str(job["job"]), str(len(job["ranks"])), str(duration["count"]), *_spread(duration))
    return table


def _communicators(jobs: list[dict[str, Any]]) -> Table:
    table = _table("COMMUNICATOR", "JOB", "COLLECTIVE", "RANKS", "P50 MS", "P99 MS", "SLOWEST MS")
    for job in jobs:
        for communicator in job["communicators"]:
            table.add_row(
                communicator["name"],
                str(job["job"]),
                communicator["collective"],
                str(len(communicator["ranks"])),
                *_spread(communicator["duration"]),
            )
    return table


def _ranks(jobs: list[dict[str, Any]]) -> Table:
    table = _table("RANK", "COMMUNICATOR", "LATE P50 MS", "LATE P99 MS", "LATEST MS")
    for job in jobs:
        for communicator in job["communicators"]:
            for rank in communicator["ranks"]:
                table.add_row(rank["rank"], communicator["name"], *_spread(rank["lateness"]))
    return table


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False)
    for column in columns:
        table.add_column(
            column, justify="right" if column.endswith(("MS", "RANKS", "ITERATIONS")) else "left"
        )
    return table


def _spread(spread: dict[str, Any]) -> list[str]:
    return [ms(spread[key]) for key in ("p50_ns", "p99_ns", "max_ns")]


def ms(duration_ns: int | None) -> str:
    """A duration in ms."""
    return "-" if duration_ns is None else f"{duration_ns / _MS_NS:.2f}"
